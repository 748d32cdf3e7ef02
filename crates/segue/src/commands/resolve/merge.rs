//! Merging a conflict copy with what has the name, by a program that the user chose.
//!
//! The program is called as git calls its merge drivers, so that those serve here, too: it leaves
//! what it makes in `%A` and ends with 0 if that is right. It works on copies outside of the mount.
//! What it made takes the name by a rename, with the owner, mode and extended attributes of what had
//! it, and then the copy goes: at any moment there is what there was, or what was made.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{XattrFlags, fsetxattr, lgetxattr, lgetxattr_query, llistxattr, llistxattr_query};

use crate::exit::{Exit, Failure};

/// What processes of one id left behind that were ended in a merge.
const SCRATCHES_MAX: u32 = 100;

/// What `program` makes of the conflict copy `copy` and of what has the name, `of`, takes the name,
/// and the copy goes. What it prints goes to stderr if `is_quiet`.
pub(super) fn merge(
    program: &str,
    (copy, of): (&Path, &Path),
    is_quiet: bool,
) -> Result<(), Failure> {
    let before = [file(copy)?, file(of)?];
    if before[1].nlink() > 1 {
        // A rename would part them.
        return Err(Failure::failed(format!(
            "{}: has other names, which would keep what it was: merge it by hand, in its place",
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
        return Err(both_stay(&format!("{shown}: one of them has changed meanwhile")));
    }
    file(&ours)?;
    take_name(&ours, of, &before[1]).map_err(|error| Failure::io(shown, &error))?;
    fs::remove_file(copy).map_err(|error| Failure::io(copy.display(), &error))
}

fn both_stay(why: &str) -> Failure {
    Failure::new(Exit::Conflict, format!("{why}: both stay"))
}

/// What is known of a file; others have nothing to merge.
fn file(path: &Path) -> Result<Metadata, Failure> {
    let about = path.symlink_metadata().map_err(|error| Failure::io(path.display(), &error))?;
    match about.is_file() {
        true => Ok(about),
        false => {
            Err(Failure::failed(format!("{}: not a file: --merge is for two", path.display())))
        }
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    let of = |about: &Metadata| (about.ino(), about.len(), about.mtime(), about.mtime_nsec());
    of(one) == of(other)
}

/// As a file that the user may write, whatever he may do with the other one.
fn copied(from: &Path, to: &Path) -> io::Result<u64> {
    io::copy(&mut File::open(from)?, &mut File::create(to)?)
}

/// Has a file with the contents of `merged` take the place of `of`, its owner, mode and extended attributes.
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

/// Gives `to` the extended attributes of `from` that are a user's to give: his own, and who may what.
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

/// The shell command for `program`: `%A`, `%B`, `%O` and `%P` stand for these, `%%` for a `%`.
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
            "'{program}': without %A, the file in which a program leaves what it makes"
        ))),
    }
}

/// A directory of this process, which goes with it.
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
        Err(Failure::failed(format!("{}: it is full of earlier merges", all.display())))
    }

    /// A file in it that ends like `of`: programs go by that.
    fn file(&self, name: &str, of: &Path) -> PathBuf {
        let path = self.0.join(name);
        of.extension().map_or(path.clone(), |extension| path.with_extension(extension))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("{}: {error}", self.0.display());
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
