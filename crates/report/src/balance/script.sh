
# ---- checks --------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }
fail() { say "move $N: stop: $*" >&2; BAD=1; }
need() { command -v "$1" > /dev/null || { say "stop: $1 is missing: install it" >&2; exit 2; }; }

# Sets the variables of a move.
use() {
  N=$1 KIND=$2 LINK=$3 FROM=$4 TO=$5 TARGET=$6 PATTERN=$7 FILE_ID=$8 TARGET_DEV=$9 BYTES=${10}
  BEFORE=$FROM.larder-before NEW=$FROM.larder-new
}

is_moved() { [ -e "$STATE/$N.moved" ]; }

# Prints a file system path that a process has open, maps or works in, at or below $1.
first_use() {
  { find -L /proc/[0-9]*/fd /proc/[0-9]*/map_files -maxdepth 1 -samefile "$1" -print -quit
    [ "$KIND" = file ] || find /proc/[0-9]*/fd /proc/[0-9]*/map_files /proc/[0-9]*/cwd \
      /proc/[0-9]*/root /proc/[0-9]*/exe -maxdepth 1 \( -lname "$2/*" -o -lname "$2" \) \
      -print -quit
  } 2> /dev/null | head -n 1
}

# Fails if a mount or a loop device is on $FROM or below it.
check_mounts() {
  PATH_BELOW=$FROM awk '{ point = $5
      gsub(/\\040/, " ", point); gsub(/\\011/, "\t", point); gsub(/\\012/, "\n", point)
      gsub(/\\043/, "#", point); gsub(/\\134/, "\\", point)
      if (point == ENVIRON["PATH_BELOW"] || index(point, ENVIRON["PATH_BELOW"] "/") == 1) exit 1
    }' /proc/self/mountinfo || fail "a file system is mounted on it or below it: unmount it"
  for backing in /sys/block/loop*/loop/backing_file; do
    [ -e "$backing" ] || continue
    case $(cat "$backing") in
      "$FROM" | "$FROM"/*) fail "${backing%/loop/backing_file} is a loop device on it" ;;
    esac
  done
}

check_links() {
  if [ "$KIND" = file ]; then
    [ "$(stat -c %h -- "$FROM")" = 1 ] || fail "it has other names (hard links)"
  else
    find "$FROM" -xdev -type f -links +1 -printf '%i %n\n' | sort | uniq -c |
      awk '$1 < $3 { exit 1 }' || fail "a file in it has names outside of it (hard links)"
  fi
}

# Refuses a tree that is not the one of the plan, and what would make a copy incomplete.
check_move() {
  use "$@"
  if is_moved; then say "move $N: made already"; return; fi
  if [ -L "$FROM" ] || { [ "$KIND" = file ] && [ ! -f "$FROM" ]; } ||
    { [ "$KIND" = directory ] && [ ! -d "$FROM" ]; }; then
    fail "it is missing, or no $KIND any more"
    return
  fi
  [ "$(stat -c %d:%i -- "$FROM")" = "$FILE_ID" ] ||
    fail "it is another $KIND than that of the plan: make the plan again"
  [ "$(readlink -f -- "$FROM"; printf x)" = "$FROM
x" ] || fail "its path leads through a symbolic link"
  [ -d "$TARGET" ] && [ "$(stat -c %d -- "$TARGET")" = "$TARGET_DEV" ] ||
    fail "the target is missing, or on another file system than that of the plan (not mounted?)"
  [ ! -e "$TO" ] && [ ! -L "$TO" ] || fail "the new path exists already"
  for name in "$BEFORE" "$NEW"; do
    [ ! -e "$name" ] && [ ! -L "$name" ] || fail "$(printf %q "$name") is in the way"
  done
  check_mounts
  check_links
  used=$(first_use "$FROM" "$PATTERN")
  [ -z "$used" ] || fail "a process has it open ($used): stop the process"
  size=$(du -s -x -B1 -- "$FROM" | head -n 1 | cut -f 1)
  [ "$size" -le $((BYTES + BYTES / 10 + 1048576)) ] ||
    fail "it has grown to $size bytes: make the plan again"
  [ "$(df -B1 --output=avail -- "$TARGET" | tail -n 1)" -gt $((size + size / 20)) ] ||
    fail "the target has not enough free space"
}

check() {
  [ "$(id -u)" = 0 ] || { say "stop: run it as root, so that owners are kept" >&2; exit 2; }
  for program in awk bash cut df du find sha256sum sort stat xargs; do need "$program"; done
  [ -z "$NEEDS_ATTRIBUTES" ] || need getfattr
  [ "$(cat /etc/machine-id 2> /dev/null)" = "$MACHINE" ] ||
    { say "stop: the plan is for another machine" >&2; exit 2; }
  BAD=0
  accepted || BAD=1
  moves check_move
  if [ "$BAD" != 0 ]; then say "stop: nothing was changed" >&2; exit 1; fi
  say "all checks passed"
}

# ---- measure -------------------------------------------------------------------------------

# Prints the use of the disks during $INTERVAL seconds, and keeps it. Under the same work, compare
# with: larder watch --for 60s -o before.json, and after.json
measure() {
  mkdir -p -m 700 -- "$STATE"
  name=before
  [ -z "$(find "$STATE" -maxdepth 1 -name '*.moved' -print -quit)" ] || name=after
  { cat /proc/diskstats; echo end; sleep "$INTERVAL"; cat /proc/diskstats; } |
    awk -v disks=" $DISKS " -v seconds="$INTERVAL" '
      $1 == "end" { second = 1; next }
      index(disks, " " $3 " ") {
        requests = $4 + $8
        if (!second) { was[$3] = requests; busy[$3] = $13; next }
        printf "%-12s %10.1f requests/s %6.1f %% busy\n", $3, (requests - was[$3]) / seconds,
          ($13 - busy[$3]) / seconds / 10
      }' | tee "$STATE/measured-$name"
}

# ---- move ----------------------------------------------------------------------------------

# Prints a line for each entry: kind, rights, owners, size, time, links and name; and attributes.
listing() {
  if [ -d "$1" ]; then
    ( cd -- "$1" || exit 1
      find . -xdev \( -type d -printf 'd %m %U %G %T@ %P\0' \) -o \
        -printf '%y %m %U %G %s %T@ %n %l %P\0' | sort -z
      [ -z "$HAS_GETFATTR" ] ||
        find . -xdev -print0 | sort -z | xargs -0 -r getfattr -h -d -m - -e hex -- )
  else
    find "$1" -maxdepth 0 -printf '%y %m %U %G %s %T@\n'
    [ -z "$HAS_GETFATTR" ] || getfattr -h -d -m - -e hex --absolute-names -- "$1" | tail -n +2
  fi
}

# Prints the checksum of each file.
sums() {
  if [ -d "$1" ]; then
    ( cd -- "$1" && find . -xdev -type f -print0 | sort -z | xargs -0 -r sha256sum -b -- )
  else
    sha256sum -b < "$1"
  fi
}

same() {
  listing "$1" > "$STATE/$N.listing" && listing "$2" | cmp -s -- "$STATE/$N.listing" - &&
    sums "$1" > "$STATE/$N.new-sums" && sums "$2" | cmp -s -- "$STATE/$N.new-sums" -
}

# Copies $1 to $2, which is missing; with a third argument, below it with the directories above.
copy() {
  if [ -n "${3-}" ]; then
    if [ -n "$HAS_RSYNC" ]; then
      rsync -aHAXSx --modify-window=-1 --numeric-ids --relative -- "$1" "$3/"
    else
      # cp looks for the directories above an absolute path in the current directory.
      ( cd / && cp -a -x --parents --sparse=always -- "${1#/}" "$3/" )
    fi
  elif [ -n "$HAS_RSYNC" ] && [ -d "$1" ]; then
    rsync -aHAXSx --modify-window=-1 --numeric-ids -- "$1/" "$2/"
  else
    cp -a -x -T --sparse=always -- "$1" "$2"
  fi
}

# Replaces the old path by the new one. The original stays as $BEFORE, or below the mount.
replace() {
  if [ "$LINK" = bind ]; then
    mount --bind -- "$TO" "$FROM" || return
    say "move $N: for the next start, add a line to /etc/fstab: new path, old path, none, bind"
  elif [ "$KIND" = file ]; then
    ln -- "$FROM" "$BEFORE" && ln -s -- "$TO" "$NEW" && mv -T -- "$NEW" "$FROM"
  else
    mv -T -- "$FROM" "$BEFORE" || return
    ln -s -T -- "$TO" "$FROM" || { mv -T -- "$BEFORE" "$FROM"; return 1; }
  fi
}

make_move() {
  use "$@"
  if is_moved; then return; fi
  say "move $N: copying"
  if ! copy "$FROM" "$TO" "$TARGET" || ! sync -f -- "$TO" || ! same "$FROM" "$TO"; then
    remove_copy
    say "move $N: stop: the copy differs or is incomplete, and was removed" >&2
    exit 1
  fi
  used=$(first_use "$FROM" "$PATTERN")
  if [ -n "$used" ]; then
    remove_copy
    say "move $N: stop: a process has opened it ($used); the copy was removed" >&2
    exit 1
  fi
  mv -- "$STATE/$N.new-sums" "$STATE/$N.sums"
  if ! replace; then
    remove_copy
    say "move $N: stop: the old path could not be replaced; the copy was removed" >&2
    exit 1
  fi
  : > "$STATE/$N.moved"
  say "move $N: made"
}

# Removes the copy, and the directories above it that are empty.
remove_copy() {
  rm -rf -- "$TO"
  above=${FROM%/*}
  [ -z "$above" ] ||
    ( cd -- "$TARGET" && rmdir -p --ignore-fail-on-non-empty -- "${above#/}" 2> /dev/null )
}

move() {
  check
  mkdir -p -m 700 -- "$STATE"
  moves make_move
}

# ---- verify --------------------------------------------------------------------------------

verify_move() {
  use "$@"
  if ! is_moved; then fail "it was not made"; return; fi
  [ "$(stat -L -c %d:%i -- "$FROM")" = "$(stat -c %d:%i -- "$TO")" ] ||
    { fail "the old path does not lead to the new one"; return; }
  [ "$(stat -c %d -- "$TO")" = "$TARGET_DEV" ] || fail "it is not on the planned file system"
  if sums "$TO" | cmp -s -- "$STATE/$N.sums" -; then
    say "move $N: verified, unchanged since the move"
  else
    say "move $N: verified; programs have changed it since the move"
  fi
}

verify() {
  BAD=0
  moves verify_move
  [ "$BAD" = 0 ] || exit 1
}

# ---- undo ----------------------------------------------------------------------------------

undo_move() {
  use "$@"
  if ! is_moved; then return; fi
  used=$(first_use "$TO" "$TO_PATTERN")
  if [ -n "$used" ]; then
    say "move $N: stop: a process has it open ($used): stop it" >&2
    exit 1
  fi
  if sums "$TO" | cmp -s -- "$STATE/$N.sums" -; then changed=; else changed=1; fi
  if [ "$LINK" = bind ]; then undo_bind || exit 1; else undo_symlink || exit 1; fi
  remove_copy
  rm -f -- "$STATE/$N.moved"
  say "move $N: undone${changed:+, with the changes since the move}"
}

undo_symlink() {
  if [ ! -L "$FROM" ] || [ ! -e "$BEFORE" ]; then
    say "move $N: stop: the link or the original is missing" >&2
    return 1
  fi
  if [ -z "$changed" ]; then
    if [ "$KIND" = file ]; then mv -T -- "$BEFORE" "$FROM"; return; fi
    rm -- "$FROM" && mv -T -- "$BEFORE" "$FROM"
    return
  fi
  rm -rf -- "$NEW"
  if ! copy "$TO" "$NEW" || ! same "$TO" "$NEW"; then
    say "move $N: stop: the copy back differs" >&2
    return 1
  fi
  if [ "$KIND" = file ]; then mv -T -- "$NEW" "$FROM"; else
    rm -- "$FROM" && mv -T -- "$NEW" "$FROM"
  fi && rm -rf -- "$BEFORE"
}

undo_bind() {
  umount -- "$FROM" || return
  [ -n "$changed" ] || return 0
  if [ "$KIND" = file ]; then
    copy "$TO" "$NEW" && same "$TO" "$NEW" && mv -T -- "$NEW" "$FROM"
  else
    need rsync
    rsync -aHAXSx --modify-window=-1 --numeric-ids --delete -- "$TO/" "$FROM/" && same "$TO" "$FROM"
  fi
}

# ---- finish: removes the originals, after which undo is not possible --------------------------

finish_move() {
  use "$@"
  if [ "$LINK" = symlink ]; then rm -rf -- "$BEFORE"; return; fi
  mkdir -p -- "$STATE/below" && mount --bind -- "${FROM%/*}/" "$STATE/below" || exit 1
  if [ "$KIND" = file ]; then : > "$STATE/below/${FROM##*/}"; else
    find "$STATE/below/${FROM##*/}" -xdev -mindepth 1 -delete
  fi
  umount -- "$STATE/below"
}

finish() {
  verify
  moves finish_move
  rm -f -- "$STATE"/*.moved
}

HAS_RSYNC=$(command -v rsync) HAS_GETFATTR=$(command -v getfattr)
INTERVAL=${LARDER_BALANCE_INTERVAL:-60}
case ${1-} in
  check | measure | move | verify | undo | finish)
    action=$1
    if [ "$action" = undo ]; then moves_reversed undo_move; else "$action"; fi ;;
  *) say "usage: bash $0 check | measure | move | verify | undo | finish" >&2; exit 2 ;;
esac
