//! Copies there and back, by rsync and by tar, of files with all that a file can have.

use std::os::unix::net::UnixListener;

use super::World;
use crate::disk::WORK_MAX_S;
use crate::prove::prelude::*;

/// What every copy has to keep: hard and symbolic links, owners, modes with their upper bits,
/// times in nanoseconds and of other centuries, attributes, ACLs, holes, special files, odd names.
const TREE: &str = r#"
set -e
cd "$1"
mkdir -p deep/er/still plain acl
for n in $(seq 1 40); do head -c $((n * 997)) /dev/urandom > plain/$n; done
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
"#;

/// Everything about a tree that can be said in words. Links come in groups of the same number.
const LISTING: &str = r#"
set -e
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
"#;

/// Runs a script on a directory.
fn shell(script: &str, place: &Path) -> Result<String> {
    text(cmd!(WORK_MAX_S, "sh -c {script} sh {place}"))
}

/// An error, with the first difference, unless two trees are alike.
fn alike(what: &str, one: &Path, other: &Path) -> Result<()> {
    let (one, other) = (shell(LISTING, one)?, shell(LISTING, other)?);
    if let Some((a, b)) = one.lines().zip(other.lines()).find(|(a, b)| a != b) {
        bail!("{what}: '{a}' became '{b}'");
    }
    ensure!(one == other, "{what}: one has more than the other");
    ensure!(one.lines().count() > 150, "there is hardly anything to compare");
    Ok(())
}

pub(super) fn run(world: &World<'_>, claims: &mut Claims) -> Result<()> {
    let origin = world.directory("origin")?;
    shell(TREE, &origin)?;
    // tar passes over sockets, rsync copies them.
    drop(UnixListener::bind(origin.join("socket")).context("make a socket")?);
    for (what, copy) in [("rsync -aHAX", rsync as fn(&Path, &Path) -> Result<()>), ("tar", tar)] {
        claims.tried(format!("{what} there and back: no difference"), || {
            let back = world.path("back");
            let figure = world.mounted("copy", |place| {
                let there = place.join("tree");
                for dir in [&there, &back] {
                    std::fs::create_dir(dir).context("make a directory for the copy")?;
                }
                copy(&origin, &there)?;
                alike("there", &origin, &there)?;
                copy(&there, &back)?;
                alike("back", &origin, &back)?;
                Ok("links, holes, owners, attributes, ACLs, special files, times".into())
            })?;
            // The holes of a file are still holes.
            let sparse = std::fs::metadata(back.join("sparse")).context("look at a sparse file")?;
            let taken = std::os::unix::fs::MetadataExt::blocks(&sparse) * 512;
            ensure!(taken < sparse.len() / 16, "the sparse file takes {taken} bytes");
            std::fs::remove_dir_all(&back).context("remove the copy")?;
            Ok(figure)
        });
    }
    std::fs::remove_dir_all(&origin).context("remove the tree")
}

/// Copies, and then finds nothing left to copy.
fn rsync(from: &Path, to: &Path) -> Result<()> {
    let rsync = |more: &[&str]| {
        let how = ["-aHAX", "--sparse", "--numeric-ids", "--modify-window=-1", "--delete"];
        text(cmd!(WORK_MAX_S, "rsync {how...} {more...} {from}/ {to}"))
    };
    rsync(&[])?;
    let left = rsync(&["--dry-run", "--checksum", "--itemize-changes"])?;
    ensure!(left.trim().is_empty(), "rsync would copy again:\n{}", run::tail(&left));
    Ok(())
}

fn tar(from: &Path, to: &Path) -> Result<()> {
    let script = "set -e; set -o pipefail; tar --create --sparse --acls --xattrs \
                  --xattrs-include='*' --format=posix --numeric-owner --directory=\"$1\" . \
                  | tar --extract --acls --xattrs --xattrs-include='*' --numeric-owner \
                  --preserve-permissions --directory=\"$2\"";
    text(cmd!(WORK_MAX_S, "bash -c {script} bash {from} {to}")).map(drop)
}
