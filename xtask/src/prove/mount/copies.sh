#!/usr/bin/env bash
# Copies files with all kinds of attributes: `make TREE` creates them, and
# `compare COPY TREE THERE BACK` copies them in both directions with `by_rsync` or `by_tar`. Any
# difference is a failure.
set -euo pipefail
shopt -s inherit_errexit

# Every copy must keep hard and symbolic links, owners, modes with set-ID and sticky bits, times in
# nanoseconds and of other centuries, extended attributes, ACLs, holes, special files, and unusual
# names.
make() { # TREE
  mkdir "$1"
  cd "$1"
  mkdir -p deep/er/still plain acl
  for n in $(seq 1 40); do head -c $((n * 997)) /dev/urandom >"plain/$n"; done
  : > empty
  head -c 5000000 /dev/urandom > large
  ln large hard; ln large deep/hard-too; ln plain/7 deep/er/seven
  ln -s large soft; ln -s ../nowhere dangling; ln -s "$(printf 'x%.0s' $(seq 1 1000))" long
  truncate -s 200M sparse
  printf middle | dd of=sparse bs=1 seek=104857600 conv=notrunc status=none
  printf end | dd of=sparse bs=1 seek=209715000 conv=notrunc status=none
  mkfifo pipe; mknod char c 1 3; mknod block b 7 200
  cp plain/3 suid; chmod 4755 suid; cp plain/4 sgid; chmod 2755 sgid
  mkdir sticky; chmod 1777 sticky; mkdir group; chmod 2770 group
  cp plain/5 nobody; chown 65534:65534 nobody; chown -h 12345:54321 soft
  touch "$(printf 'new\nline')" ' blanks ' "$(printf 'bytes\377\201')" -- -dash
  touch "$(printf 'n%.0s' $(seq 1 255))"
  setfattr -n user.one -v value plain/1
  setfattr -n user.large -v "$(printf 'y%.0s' $(seq 1 3000))" plain/2
  setfattr -n user.dir -v 1 deep; setfattr -n trusted.two -v 2 plain/1
  setfacl -m u:12345:rwx,g:54321:r-x,m::rwx plain/9
  setfacl -d -m u:12345:rw-,g::r-x acl; cp plain/10 acl/inherits
  touch -d '2001-02-03 04:05:06.789012345 UTC' plain/11
  touch -d '1950-01-01 00:00:00.5 UTC' plain/12
  touch -d '2100-12-31 23:59:59.999999999 UTC' plain/13
  touch -h -d '1999-09-09 09:09:09.090909091 UTC' soft
  chmod 0 plain/14
  touch -d '2011-11-11 11:11:11.111111111 UTC' deep/er deep
}

# Prints all properties of a tree as text. Hard links to the same file have the same number.
listing() { # TREE
  cd "$1"
  find . -mindepth 1 ! -type s ! -type d -printf '%p %m %U %G %y %l %n %s %T@ ' \
    \( -type f -exec sha256sum {} \; -o -printf '\n' \) | sort
  find . -mindepth 1 -type d -printf '%p %m %U %G %T@\n' | sort
  find . -type f -links +1 -printf '%i %p\n' | sort -k2 \
    | awk '{ if (!($1 in n)) n[$1] = ++k; print "link", n[$1], $2 }'
  find . \( -type c -o -type b \) -exec stat -c '%n %t %T' {} + | sort
  find . ! -type l ! -type s -print0 | sort -z | xargs -0 getfacl --numeric --absolute-names
  find . ! -type l ! -type s -print0 | sort -z \
    | xargs -0 getfattr --no-dereference --dump --match=- --encoding=hex --absolute-names
}

alike() { # WHAT TREE COPY
  local expected found
  expected=$(listing "$2") found=$(listing "$3")
  [ "$(wc -l <<<"$expected")" -gt 150 ] || { echo 'there are too few files to compare'; exit 1; }
  diff <(echo "$expected") <(echo "$found") || { echo "$1: the copy differs"; exit 1; }
}

by_rsync() { # FROM TO
  local left how=(-aHAX --sparse --numeric-ids --modify-window=-1 --delete)
  rsync "${how[@]}" "$1/" "$2"
  left=$(rsync "${how[@]}" --dry-run --checksum --itemize-changes "$1/" "$2")
  [ -z "$left" ] || { echo "rsync would copy again: $left"; exit 1; }
}

by_tar() { # FROM TO
  tar --create --sparse --acls --xattrs --xattrs-include='*' --format=posix --numeric-owner \
    --directory="$1" . | tar --extract --acls --xattrs --xattrs-include='*' --numeric-owner \
    --preserve-permissions --directory="$2"
}

compare() { # COPY TREE THERE BACK
  mkdir "$3" "$4"
  "$1" "$2" "$3"
  alike there "$2" "$3"
  "$1" "$3" "$4"
  alike back "$2" "$4"
  # The holes of a file must be preserved.
  read -r blocks size < <(stat -c '%b %s' "$4/sparse")
  [ $((blocks * 512)) -lt $((size / 16)) ] || { echo "$blocks blocks for a sparse file"; exit 1; }
  rm -r "$4"
}

"$@"
