
# ---- checks --------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }
fail() { say "move $N: stop: $*" >&2; BAD=1; }
need() { command -v "$1" > /dev/null || { say "stop: $1 is missing: install it" >&2; exit 2; }; }

# Sets the variables of a move.
use() {
  N=$1 KIND=$2 LINK=$3 FROM=$4 TO=$5 TARGET=$6 PATTERN=$7 FILE_ID=$8 TARGET_DEV=$9 BYTES=${10}
  NAME=${FROM##*/} BEFORE=$NAME.larder-before NEW=$NAME.larder-new
  OLD_DIRECTORY=${FROM%/*} NEW_DIRECTORY=${TO%/*} STAGE=${TARGET%/}/.larder-balance
  OLD_DIRECTORY=${OLD_DIRECTORY:-/}
}

# Changes into a directory, unless it is this one. Other users may replace what is above it, also by
# symbolic links: the kernel tells where this process really is. All changes are made to names in
# this directory, so that none is made elsewhere.
enter() {
  [ "$1" = . ] && return
  cd -P -- "$1" && [ "$(readlink /proc/self/cwd; printf x)" = "$1
x" ]
}

# Fails if other users can replace a directory or one above it.
is_of_root() {
  local at=$1 owner mode
  while :; do
    read -r owner mode <<< "$(stat -c '%u %a' -- "$at")"
    [ "$owner" = 0 ] && { [ $((0$mode & 0022)) = 0 ] || [ $((0$mode & 01000)) != 0 ]; } || return
    [ "$at" != / ] || return 0
    at=${at%/*} at=${at:-/}
  done
}

is_moved() { [ -e "$STATE/$N.moved" ]; }

# Prints a link of /proc by which a process has $1 open or mapped; for a directory, also one to what
# matches $2 or is below it. Threads may have descriptors of their own.
first_use() {
  local found files=(/proc/[0-9]*/task/[0-9]*/fd /proc/[0-9]*/map_files)
  found=$(printf '%s\0' "${files[@]}" | SAME=$1 search '-L "$@" -maxdepth 1 -samefile "$SAME"') &&
    { [ -n "$found" ] || [ "$KIND" = file ] ||
      found=$(printf '%s\0' "${files[@]}" /proc/[0-9]*/{cwd,root,exe} |
        BELOW=$2 search '"$@" -maxdepth 1 \( -lname "$BELOW/*" -o -lname "$BELOW" \)'); } ||
    found="unknown, since the processes could not be searched"
  printf '%s\n' "$found" | head -n 1
}

# Runs find on the paths of standard input, as many at a time as a program may have arguments. It is
# no error if processes end meanwhile; it is one if find does not run.
search() { xargs -0 -r sh -c "find $1 -print -quit 2> /dev/null; [ \$? -le 1 ]" sh; }

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

rights() { stat -c '%u:%g %a' -- "$1"; }

# Fails if a directory above the new path exists with other rights than the one above the old path.
check_above() {
  local part old=
  while IFS= read -r -d / part; do
    old=$old/$part
    [ ! -d "${TARGET%/}$old" ] || [ "$(rights "${TARGET%/}$old")" = "$(rights "$old")" ] ||
      fail "$(printf %q "${TARGET%/}$old") has another owner or other rights than $(printf %q "$old")"
  done <<< "${FROM#/}"
}

# Refuses a tree that is not the one of the plan, and what would make a copy incomplete.
check_move() {
  use "$@"
  if is_moved; then say "move $N: already done"; return; fi
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
  [ "$(readlink -m -- "$TO"; printf x)" = "$TO
x" ] || fail "the new path leads through a symbolic link"
  for name in "$FROM.larder-before" "$FROM.larder-new"; do
    [ ! -e "$name" ] && [ ! -L "$name" ] || fail "$(printf %q "$name") is in the way"
  done
  is_of_root "$TARGET" || fail "other users can replace $(printf %q "$TARGET"): choose another target"
  [ "$LINK" = symlink ] || is_of_root "$OLD_DIRECTORY" ||
    fail "other users can replace the directory of the mount: use a symbolic link"
  check_above
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
  for program in awk bash cut df du find sha256sum sort stat tar xargs; do need "$program"; done
  [ -z "$NEEDS_ATTRIBUTES" ] || need getfattr
  [[ $(tar --version) == *"GNU tar"* ]] || { say "stop: tar is not GNU tar: install it" >&2; exit 2; }
  [ "$(cat /etc/machine-id 2> /dev/null)" = "$MACHINE" ] ||
    { say "stop: the plan is for another machine" >&2; exit 2; }
  BAD=0
  accepted || BAD=1
  moves check_move
  if [ "$BAD" != 0 ]; then say "stop: nothing was changed" >&2; exit 1; fi
  say "all checks passed"
}

# Makes the directory of the state, which only root may change.
make_state() {
  mkdir -p -m 700 -- "$STATE" && is_of_root "$(readlink -f -- "$STATE")" && return
  say "stop: other users can replace $STATE: set LARDER_BALANCE_STATE to a directory of root" >&2
  exit 1
}

# ---- measure -------------------------------------------------------------------------------

# Prints the use of the disks during $INTERVAL seconds, and keeps it. Under the same work, compare
# with: larder watch --for 60s -o before.json, and after.json
measure() {
  make_state
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

# tar opens directories and files without following links. Equal trees have equal archives.
pack() {
  tar -c --format=posix --pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime --sort=name \
    --numeric-owner --one-file-system "$@"
}
# ACLs are attributes as well, which tar reads from the open file; with --acls it would read them by
# name, through links.
WITH_ATTRIBUTES=(--xattrs "--xattrs-include=*")

# Prints a line for each entry: kind, rights, owners, size, time, links and name; and attributes.
# Sockets are not copied.
listing() {
  ( enter "$1" || exit
    find "./$NAME" -xdev \( -type s -o -type d -printf 'd %m %U %G %T@ %P\0' \) -o \
      -printf '%y %m %U %G %s %T@ %n %l %P\0' | sort -z
    [ -z "$HAS_GETFATTR" ] ||
      find "./$NAME" -xdev ! -type s -print0 | sort -z |
      xargs -0 -r getfattr -h -d -m - -e hex -- )
}

# Prints the checksum of the names and the content of $NAME in a directory.
sum() { ( enter "$1" && pack -f - -- "./$NAME" ) | sha256sum -b; }

# Compares $NAME in two directories.
same() {
  listing "$1" > "$STATE/$N.listing" && listing "$2" | cmp -s -- "$STATE/$N.listing" - &&
    sum "$1" > "$STATE/$N.new-sum" && sum "$2" | cmp -s -- "$STATE/$N.new-sum" -
}

# Copies an entry of a directory into another directory. Further arguments are options of tar. A
# directory whose entries are left out may change meanwhile, which tar reports with status 1.
copy() {
  ( enter "$1" || exit
    pack --sparse "${WITH_ATTRIBUTES[@]}" "${@:4}" -f - -- "./$3"
    status=$?
    [ "$status" = 0 ] || { [ "$status" = 1 ] && [ "${4-}" = --no-recursion ]; } ) |
    ( enter "$2" && tar -x -p --same-owner --numeric-owner "${WITH_ATTRIBUTES[@]}" -f - )
}

# Prints a line for each entry of $2 in a directory with the time of its last change; for $2 itself
# that of its content, since another name changes its status.
stamps() {
  ( enter "$1" || exit
    find "./$2" -maxdepth 0 -printf '%i %s %T@\0'
    find "./$2" -xdev -mindepth 1 -printf '%i %s %C@ %P\0' | sort -z )
}

# Prints a link by which a process uses the original. Below a mount its path is that of the copy.
first_use_of_original() {
  [ "$LINK" = bind ] || first_use "$OLD_DIRECTORY/$BEFORE" "$PATTERN.larder-before"
}

# Fails if the original was changed after its copy began: a program had it open.
original_is_unchanged() {
  if [ "$LINK" = symlink ]; then
    stamps "$OLD_DIRECTORY" "$BEFORE"
  else
    mkdir -p -- "$STATE/below" && mount --bind -- "$OLD_DIRECTORY" "$STATE/below" || return
    stamps "$STATE/below" "$NAME"
    umount -- "$STATE/below"
  fi | cmp -s -- "$STATE/$N.stamps" -
}

# Prints the identity of $NAME in a directory.
identity() { ( enter "$1" && stat -c %d:%i -- "./$NAME" ); }

# Removes an entry of a directory; a tree only if it has an identity: the owner of the directory
# could have put the tree of another user there.
remove() {
  ( enter "$1" || exit
    if [ -d "./$2" ] && [ ! -L "./$2" ]; then
      ( enter "${1%/}/$2" && [ "$(stat -c %d:%i .)" = "$3" ] &&
        find . -xdev -mindepth 1 -delete ) && rmdir -- "./$2"
    else
      rm -f -- "./$2"
    fi )
}

# Moves the copy from the stage to its place. Missing directories above it get the rights of those
# above the old path; others must have these rights.
place() {
  local part old=
  COPY_ID=$(identity "$STAGE") || return
  ( enter "$TARGET" || exit
    while IFS= read -r -d / part; do
      old=$old/$part
      if [ ! -e "./$part" ] && [ ! -L "./$part" ]; then
        mkdir -m 700 -- "$STAGE/.above" &&
          copy "$old" "$STAGE/.above" . --no-recursion &&
          mv -T -n -- "$STAGE/.above" "./$part" || exit
      fi
      enter "${TARGET%/}$old" || exit
      [ "$(rights .)" = "$(enter "$old" && rights .)" ] || exit
    done <<< "${FROM#/}"
    mv -T -n -- "$STAGE/$NAME" "./$NAME" && [ "$(identity .)" = "$COPY_ID" ] ) && IS_PLACED=1
}

# Replaces the old path by the new one. The original stays as $BEFORE, or below the mount.
replace() {
  if [ "$LINK" = bind ]; then
    mount --bind -- "$TO" "$FROM" || return
    say "move $N: for the next start, add a line to /etc/fstab: new path, old path, none, bind"
    return
  fi
  ( enter "$OLD_DIRECTORY" && [ "$(stat -c %d:%i -- "./$NAME")" = "$FILE_ID" ] || exit
    if [ "$KIND" = file ]; then
      ln -T -- "./$NAME" "./$BEFORE" || exit
      ln -s -T -- "$TO" "./$NEW" && mv -T -- "./$NEW" "./$NAME" || { rm -f -- "./$BEFORE"; exit 1; }
    else
      mv -T -- "./$NAME" "./$BEFORE" || exit
      ln -s -T -- "$TO" "./$NAME" || { mv -T -- "./$BEFORE" "./$NAME"; exit 1; }
    fi )
}

# Ends a move that failed.
abandon() {
  say "move $N: stop: $1; the copy was removed" >&2
  remove_copy
  exit 1
}

make_move() {
  use "$@"
  if is_moved; then return; fi
  IS_PLACED=
  say "move $N: copying"
  ( enter "$TARGET" && rm -rf -- ./.larder-balance && mkdir -m 700 -- ./.larder-balance ) || exit 1
  if ! stamps "$OLD_DIRECTORY" "$NAME" > "$STATE/$N.stamps" || ! copy "$OLD_DIRECTORY" "$STAGE" "$NAME" || ! sync -f -- "$STAGE" ||
    ! same "$OLD_DIRECTORY" "$STAGE"; then
    abandon "the copy differs or is incomplete"
  fi
  used=$(first_use "$FROM" "$PATTERN")
  [ -z "$used" ] || abandon "a process has opened it ($used)"
  mv -- "$STATE/$N.new-sum" "$STATE/$N.sum" && place ||
    abandon "the copy could not be moved to its place"
  replace || abandon "the old path could not be replaced"
  changed=
  if ! original_is_unchanged || [ -n "$(first_use_of_original)" ]; then
    bring_back && abandon "a program used it meanwhile"
    say "move $N: stop: a program used it meanwhile, and it could not be brought back" >&2
    exit 1
  fi
  printf '%s' "$COPY_ID" > "$STATE/$N.moved"
  rmdir -- "$STAGE"
  say "move $N: done"
}

# Removes the copy, and the directories above it that are empty.
remove_copy() {
  local above=$NEW_DIRECTORY part
  ( enter "$TARGET" && rm -rf -- ./.larder-balance )
  if [ -n "$IS_PLACED" ] && ! remove "$NEW_DIRECTORY" "$NAME" "$COPY_ID"; then
    say "move $N: $(printf %q "$TO") is another directory now, and was kept" >&2
    return
  fi
  while [ "$above" != "${TARGET%/}" ]; do
    part=${above##*/} above=${above%/*}
    ( enter "${above:-/}" && rmdir -- "./$part" ) 2> /dev/null || break
  done
}

move() {
  check
  make_state
  moves make_move
}

# ---- verify --------------------------------------------------------------------------------

verify_move() {
  use "$@"
  if ! is_moved; then fail "it has not been moved"; return; fi
  [ "$(stat -L -c %d:%i -- "$FROM")" = "$(identity "$NEW_DIRECTORY")" ] ||
    { fail "the old path does not point to the new path"; return; }
  [ "$(stat -c %d -- "$TO")" = "$TARGET_DEV" ] || fail "it is not on the planned file system"
  if is_unchanged; then
    say "move $N: verified, unchanged since the move"
  else
    say "move $N: verified; programs have changed it since the move"
  fi
}

is_unchanged() { sum "$NEW_DIRECTORY" | cmp -s -- "$STATE/$N.sum" -; }

verify() {
  BAD=0
  moves verify_move
  [ "$BAD" = 0 ] || exit 1
}

# ---- undo ----------------------------------------------------------------------------------

undo_move() {
  use "$@"
  if ! is_moved; then say "move $N: not made, or finished"; return; fi
  used=$(first_use "$TO" "$TO_PATTERN")
  if [ -n "$used" ]; then
    say "move $N: stop: a process has it open ($used): stop it" >&2
    exit 1
  fi
  if is_unchanged; then changed=; else changed=1; fi
  if [ -n "$changed" ] && ! original_is_unchanged; then
    say "move $N: stop: programs have changed both the original and its copy: compare them" >&2
    exit 1
  fi
  if ! bring_back; then
    say "move $N: stop: it could not be brought back" >&2
    exit 1
  fi
  IS_PLACED=1 COPY_ID=$(cat -- "$STATE/$N.moved")
  remove_copy
  rm -f -- "$STATE/$N.moved"
  say "move $N: undone${changed:+, with the changes since the move}"
}

# Puts the original back, or a copy of what programs have changed since.
bring_back() {
  ( enter "$OLD_DIRECTORY" || exit
    if [ "$LINK" = symlink ]; then
      [ -L "./$NAME" ] && [ -e "./$BEFORE" ] || exit
    else
      umount -- "$FROM" || exit
      [ -n "$changed" ] || exit 0
    fi
    if [ -n "$changed" ]; then
      copy_back
    elif [ "$KIND" = file ]; then
      mv -T -- "./$BEFORE" "./$NAME"
    else
      rm -- "./$NAME" && mv -T -- "./$BEFORE" "./$NAME"
    fi )
}

# Copies the moved data into a private directory, and replaces the old path by it. The directory is
# new, empty and of root, which enter and the checks prove; nobody else can move it to another
# directory, since that takes the right to write to it, so that .. stays the old directory.
copy_back() {
  local here
  here=$(stat -c %d:%i .) || return
  if [ -e "./$NEW" ] || [ -L "./$NEW" ]; then
    say "move $N: $(printf %q "$OLD_DIRECTORY/$NEW") is in the way: remove it" >&2
    return 1
  fi
  mkdir -m 700 -- "./$NEW" &&
    ( enter "${OLD_DIRECTORY%/}/$NEW" && [ "$(stat -c '%u %a' .)" = "0 700" ] &&
      [ -z "$(find . -mindepth 1 -print -quit)" ] && [ "$(stat -c %d:%i ..)" = "$here" ] &&
      copy "$NEW_DIRECTORY" . "$NAME" && same "$NEW_DIRECTORY" . &&
      clear_place && mv -T -- "./$NAME" "../$NAME" ) || return
  remove "$OLD_DIRECTORY" "$BEFORE" "$FILE_ID"
  rmdir -- "./$NEW"
}

# Removes the link, or the original below a bind mount, from the directory above this one.
clear_place() {
  if [ "$LINK" = symlink ]; then
    [ "$KIND" = file ] || rm -- "../$NAME"
  else
    [ "$KIND" = file ] || remove "$OLD_DIRECTORY" "$NAME" "$FILE_ID"
  fi
}

# ---- finish: removes the originals, after which undo is not possible --------------------------

# Fails if another entry is in place of the original. Below a mount of root there is none.
is_original() {
  [ "$LINK" = bind ] ||
    ( enter "$OLD_DIRECTORY" && [ "$(stat -c %d:%i -- "./$BEFORE")" = "$FILE_ID" ] )
}

finish_move() {
  use "$@"
  if ! is_original; then
    say "move $N: stop: $(printf %q "$FROM.larder-before") is not the original, and was kept" >&2
    exit 1
  fi
  if ! original_is_unchanged; then
    say "move $N: stop: a program has changed the original since it was copied: undo the move" >&2
    exit 1
  fi
  if [ "$LINK" = symlink ]; then
    remove "$OLD_DIRECTORY" "$BEFORE" "$FILE_ID" && return
    say "move $N: stop: $(printf %q "$FROM.larder-before") could not be removed" >&2
    exit 1
  fi
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

HAS_GETFATTR=$(command -v getfattr)
INTERVAL=${LARDER_BALANCE_INTERVAL:-60}
case ${1-} in
  check | measure | move | verify | undo | finish)
    action=$1
    if [ "$action" = undo ]; then moves_reversed undo_move; else "$action"; fi ;;
  *) say "usage: bash $0 check | measure | move | verify | undo | finish" >&2; exit 2 ;;
esac
