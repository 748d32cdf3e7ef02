//! Merges a conflict copy with the file of the original name, by a program that the user chose.
//!
//! The program is called like a git merge driver, so git's drivers work here too: it writes its
//! output to `%A` and exits with 0 on success. It works on copies outside of the mount. A rename
//! then gives the output the original name, with the owner, mode and extended attributes of the
//! replaced file, and the conflict copy is removed. At every moment the name leads to the old file
//! or to the output.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{XattrFlags, fsetxattr, lgetxattr, lgetxattr_query, llistxattr, llistxattr_query};

use crate::exit::{Exit, Failure};

/// Most scratch directories of one process ID: processes killed during a merge leave theirs.
const SCRATCHES_MAX: u32 = 100;

/// Replaces `of`, the file of the original name, by the output of `program` for `of` and the
/// conflict copy `copy`, and removes `copy`. The program's stdout goes to stderr if `is_quiet`.
pub(super) fn merge(
    program: &str,
    (copy, of): (&Path, &Path),
    is_quiet: bool,
) -> Result<(), Failure> {
    let before = [file(copy)?, file(of)?];
    if before[1].nlink() > 1 {
        // The rename would separate the hard links.
        return Err(Failure::failed(format!(
            "{}: has other names (hard links), which would keep the old contents: merge it by \
             hand, in place",
            of.display()
        )));
    }
    let place = Scratch::new()?;
    let [ours, theirs, base] = ["ours", "theirs", "base"].map(|name| place.file(name, of));
    for (from, to) in [(copy, &ours), (of, &theirs)] {
        copied(from, to).map_err(|error| Failure::io(from.display(), &error))?;
    }
    File::create(&base).map_err(|error| Failure::io(base.display(), &error))?;
    let command = filled(program, [&ours, &theirs, &base, of])?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    if is_quiet {
        shell.stdout(Stdio::from(io::stderr()));
    }
    let ended = shell.status().map_err(|error| Failure::io("sh", &error))?;
    let shown = of.display();
    if !ended.success() {
        return Err(both_stay(&format!("{shown}: '{program}' ended with {ended}")));
    }
    let is_as_before = |path: &Path, before| file(path).is_ok_and(|now| is_same(&now, before));
    if !is_as_before(copy, &before[0]) || !is_as_before(of, &before[1]) {
        return Err(both_stay(&format!("{shown}: the file or its copy has changed meanwhile")));
    }
    file(&ours)?;
    take_name(&ours, of, &before[1]).map_err(|error| Failure::io(shown, &error))?;
    fs::remove_file(copy).map_err(|error| Failure::io(copy.display(), &error))
}

fn both_stay(why: &str) -> Failure {
    Failure::new(Exit::Conflict, format!("{why}: both stay"))
}

/// The metadata of a regular file. Other objects cannot be merged.
fn file(path: &Path) -> Result<Metadata, Failure> {
    let about = path.symlink_metadata().map_err(|error| Failure::io(path.display(), &error))?;
    match about.is_file() {
        true => Ok(about),
        false => {
            let words = format!("{}: not a file: --merge takes regular files", path.display());
            Err(Failure::failed(words))
        }
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let of = |about: &Metadata| (about.ino(), about.len(), about.mtime(), about.mtime_nsec());
    of(one) == of(other)
}

/// Copies the contents only: the user must be able to write the new file, also if `from` is
/// read-only.
fn copied(from: &Path, to: &Path) -> io::Result<u64> {
    io::copy(&mut File::open(from)?, &mut File::create(to)?)
}

/// Replaces `of` by a file with the contents of `merged`, and with the owner, mode and extended
/// attributes of `of`.
fn take_name(merged: &Path, of: &Path, about: &Metadata) -> io::Result<()> {
    let beside = of.with_file_name(format!(".segue-merge-{}", std::process::id()));
    let mut from = File::open(merged)?;
    let mut file = File::create_new(&beside)?;
    let mut fill = || {
        io::copy(&mut from, &mut file)?;
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (about.uid(), about.gid()) {
            fchown(&file, Some(about.uid()), Some(about.gid()))?;
        }
        carry_attributes(of, &file)?;
        file.set_permissions(about.permissions())?;
        file.sync_all()?;
        fs::rename(&beside, of)
    };
    let done = fill();
    if done.is_err() {
        fs::remove_file(&beside).ok();
    }
    done
}

/// Copies to `to` the extended attributes of `from` that a user may set: `user.*`, and the ACL.
fn carry_attributes(from: &Path, to: &File) -> io::Result<()> {
    let mut names = vec![0; llistxattr_query(from)?];
    let len = llistxattr(from, &mut names[..])?;
    names.truncate(len);
    let is_users = |name: &&[u8]| name.starts_with(b"user.") || name == b"system.posix_acl_access";
    for name in names.split(|byte| *byte == 0).filter(is_users) {
        let mut value = vec![0; lgetxattr_query(from, name)?];
        let len = lgetxattr(from, name, &mut value[..])?;
        value.truncate(len);
        fsetxattr(to, name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

/// The shell command for `program`: `%A`, `%B`, `%O` and `%P` become the given paths, `%%` a `%`.
fn filled(program: &str, [ours, theirs, base, path]: [&Path; 4]) -> Result<String, Failure> {
    let (mut command, mut is_given) = (String::new(), false);
    let mut rest = program.chars();
    while let Some(next) = rest.next() {
        let path = match (next, rest.clone().next()) {
            ('%', Some('A')) => ours,
            ('%', Some('B')) => theirs,
            ('%', Some('O')) => base,
            ('%', Some('P')) => path,
            ('%', Some('%')) => {
                rest.next();
                command.push('%');
                continue;
            }
            _ => {
                command.push(next);
                continue;
            }
        };
        is_given |= path == ours;
        rest.next();
        command.push_str(&format!("'{}'", path.display().to_string().replace('\'', r"'\''")));
    }
    match is_given {
        true => Ok(command),
        false => Err(Failure::usage(format!(
            "'{program}': without %A, the file to which a merge program writes its output"
        ))),
    }
}

/// A temporary directory of this process, removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let all = std::env::temp_dir();
        for number in 0..SCRATCHES_MAX {
            let path = all.join(format!("segue-merge-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(path.display(), &error)),
            }
        }
        Err(Failure::failed(format!(
            "{}: {SCRATCHES_MAX} directories of earlier merges are there: remove segue-merge-*",
            all.display()
        )))
    }

    /// A path in the directory with the extension of `of`: some programs depend on it.
    fn file(&self, name: &str, of: &Path) -> PathBuf {
        let path = self.0.join(name);
        of.extension().map_or(path.clone(), |extension| path.with_extension(extension))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("{}: cannot remove this directory: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_given_its_files() {
        let files = ["/t/ours.c", "/t/theirs.c", "/t/base.c", "/m/it's.c"].map(Path::new);
        let fill = |program| filled(program, files).map_err(|failure| failure.exit);
        assert_eq!(
            fill("merge -L %P %A %O %B # 5%% %s %").unwrap(),
            r"merge -L '/m/it'\''s.c' '/t/ours.c' '/t/base.c' '/t/theirs.c' # 5% %s %"
        );
        for program in ["true", "cat %B %O", "echo %%A"] {
            assert_eq!(fill(program), Err(Exit::Usage), "{program}");
        }
    }

    /// Proves S10.4, S10.5.
    #[test]
    fn what_was_made_takes_the_name_or_both_stay() {
        let dir = tempfile::tempdir().unwrap();
        let [copy, of] = ["copy", "of.txt"].map(|name| dir.path().join(name));
        let write = || {
            fs::write(&copy, "ours\n").unwrap();
            fs::write(&of, "theirs\n").unwrap();
            fs::set_permissions(&of, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        };
        let by = |program: &str| merge(program, (&copy, &of), true);
        let text = |path: &Path| fs::read_to_string(path).ok();
        write();
        for (program, words) in [
            ("echo x > %A; exit 3", "ended with exit status: 3: both stay"),
            ("rm %A", "No such file"),
            ("echo more >> %P; true %A", "changed meanwhile: both stay"),
        ] {
            let failure = by(program).unwrap_err().to_string();
            assert!(failure.contains(words), "{failure}");
            assert_eq!(text(&copy).as_deref(), Some("ours\n"));
            assert!(text(&of).unwrap().starts_with("theirs\n"));
        }
        write();
        for (name, value) in [("user.tag", &b"draft"[..]), ("user.empty", b"")] {
            rustix::fs::setxattr(&of, name, value, XattrFlags::empty()).unwrap();
        }
        let other = dir.path().join("other");
        fs::hard_link(&of, &other).unwrap();
        assert!(by("true %A").unwrap_err().to_string().contains("has other names"));
        fs::remove_file(&other).unwrap();
        by("case %A in *.txt) test ! -s %O && cat %B >> %A ;; *) exit 1 ;; esac").unwrap();
        let mut value = [0; 10];
        assert_eq!(lgetxattr(&of, "user.tag", &mut value).unwrap(), 5);
        assert_eq!((&value[..5], lgetxattr_query(&of, "user.empty").unwrap()), (&b"draft"[..], 0));
        assert_eq!((text(&of).as_deref(), text(&copy)), (Some("ours\ntheirs\n"), None));
        assert_eq!(of.metadata().unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::create_dir(&copy).unwrap();
        assert!(by("true %A").unwrap_err().to_string().contains("not a file"));
    }
}
