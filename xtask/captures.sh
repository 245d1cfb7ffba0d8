#!/bin/bash
# Writes the screens of `larder top`, captured by tmux, into docs/top.md. Usage: captures.sh BINARY,
# as root, in the root directory of the repository.
#
# The views run in separate namespaces, which contain only a server, a benchmark and the views
# themselves, so that the page reveals nothing about the machine but the names of its disks. Only
# the view `uses` runs outside, since events contain process IDs of the initial namespace; there a
# filter selects the benchmark.
set -eu

# Captures the screens that standard input lists; "$1" is the program, "$2" are keys to press.
screens() {
  echo 'set -g status off' >tmux.conf
  mkdir -p screens
  while read -r columns lines view; do
    server="larder-$columns-$view"
    tmux -L "$server" -f tmux.conf new-session -d -x "$columns" -y "$lines" "'$1' top --view $view"
    sleep 2
    # shellcheck disable=SC2086
    [ -z "$2" ] || tmux -L "$server" send-keys $2
    sleep 6
    tmux -L "$server" capture-pane -p >"screens/$columns-$lines-$view"
    tmux -L "$server" kill-server
  done
}

if [ "$1" = --inside ]; then
  mount --bind "$2" /srv
  mount -t tmpfs -o mode=755 none /run
  cd /srv
  # The page must not show files that the caller has open.
  for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done
  exec >scene.out 2>&1
  export TMPDIR=/srv/tmp HOME=/srv
  mkdir -p tmp
  truncate -s 256M disk.img
  larder=/srv/larder
  "$larder" serve disk.img --memory 64MiB --listen unix:/run/larder-disk.sock 2>serve.log >serve.out &
  "$larder" trace synth mix mix.ltr --requests 2000000 --pages 32768 --rate 2000
  until [ -S /run/larder-disk.sock ]; do sleep 0.1; done
  export_uri='nbd+unix:///disk?socket=/run/larder-disk.sock'
  "$larder" trace replay mix.ltr --to "$export_uri" --wrap --speed 1 >replay.out 2>&1 &
  "$larder" bench probe /srv --size 512MiB --length 20s >probe.out 2>&1 &
  sleep 5
  screens "$larder" "" <asked
  exit
fi

mkdir -p /srv
# A short name that reveals nothing about the machine.
dir=$(mktemp -d /srv/larder-XXXXXX)
# The last two servers of tmux run outside of the namespaces.
trap 'for view in 80-uses 200-uses; do tmux -L "larder-$view" kill-server 2>/dev/null || true; done
  rm -rf "$dir"' EXIT
# The copy is called larder in lists of processes, and the namespaces can see it.
cp "$1" "$dir/larder"
cp "$0" "$dir/captures.sh"
printf '%s\n' '80 24 '{files,processes,disks,caches} '200 50 files' >"$dir/asked"
unshare --mount --pid --fork --mount-proc --kill-child -- \
  bash "$dir/captures.sh" --inside "$dir" || { cat "$dir/scene.out" >&2; exit 1; }
(
  cd "$dir"
  ./larder bench probe "$dir" --size 256MiB --length 20s >probe.out 2>&1 &
  printf '%s\n' '80 24 uses' '200 50 uses' | screens "$dir/larder" '/ larder-probe Enter'
  # On a slow machine the benchmark may have ended already.
  kill $! || true
)
for screen in "$dir"/screens/*; do
  IFS=- read -r columns lines view <<<"${screen##*/}"
  mark="<!-- screen ${columns}x$lines $view -->"
  grep -q 'q quit' "$screen" || { echo "the screen $view does not show the view" >&2; exit 1; }
  grep -qx "$mark" docs/top.md || { echo "docs/top.md has no line $mark" >&2; exit 1; }
  # The substitution removes empty lines at the end.
  text=$(sed 's/ *$//' "$screen") mark=$mark awk '
    $0 == ENVIRON["mark"] { print $0 "\n```text\n" ENVIRON["text"] "\n```"; inside = 1 }
    $0 == "<!-- end -->" { inside = 0 }
    !inside { print }' docs/top.md >"$dir/page"
  cp "$dir/page" docs/top.md
done
