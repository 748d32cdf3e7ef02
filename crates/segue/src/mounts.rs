//! The Segue mounts of this host, read from the kernel's mount list.
//!
//! The list is the only registry: a mount exists if the kernel shows it, also if its process has
//! ended. Listing touches no mountpoint: a call on a dead or busy mount can fail or block.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use rustix::mount::{UnmountFlags, unmount};

use crate::exit::Failure;

/// The file system type that the kernel shows for Segue mounts.
const FILE_SYSTEM_TYPE: &[u8] = b"fuse.segue";

/// Where the kernel lists its connections to FUSE processes, if fusectl is mounted.
pub(crate) const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// One Segue mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount {
    /// The mountpoint, absolute and without symbolic links.
    pub(crate) mountpoint: PathBuf,
    /// The mounted volume: `segue://HOST[:PORT]/VOLUME`.
    pub(crate) source: String,
    /// The user whose process serves it.
    pub(crate) owner: u32,
    /// Its flags, as the kernel lists them: `rw,nosuid`.
    pub(crate) flags: String,
    /// The number of its device, which no other mount of this host has.
    pub(crate) device: String,
}

impl Mount {
    /// The absolute path on this host of `inside`, a path relative to the mountpoint.
    pub(crate) fn absolute(&self, inside: &str) -> String {
        self.mountpoint.join(inside.trim_start_matches('/')).display().to_string()
    }
}

/// Every Segue mount that this process can see, oldest first.
pub(crate) fn list() -> Result<Vec<Mount>, Failure> {
    let path = "/proc/self/mountinfo";
    let table =
        std::fs::read(path).map_err(|error| Failure::io(format!("cannot read {path}"), &error))?;
    Ok(in_table(&table))
}

/// The mount whose mountpoint is exactly `mountpoint`; of several stacked there, the topmost.
pub(crate) fn at(mounts: &[Mount], mountpoint: &Path) -> Option<Mount> {
    mounts.iter().rev().find(|mount| mount.mountpoint == mountpoint).cloned()
}

/// The mount that `path` lies in. A `..` that could not be resolved may lead out of it.
pub(crate) fn holding(mounts: &[Mount], path: &Path) -> Option<Mount> {
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let inside = mounts.iter().filter(|mount| path.starts_with(&mount.mountpoint));
    inside.max_by_key(|mount| mount.mountpoint.as_os_str().len()).cloned()
}

/// `path` made absolute, with symbolic links of its parent resolved and its last part unchanged.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let clean: PathBuf = absolute.components().collect();
    match (clean.parent().map(Path::canonicalize), clean.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        // The path ends with '..', or its parent does not exist.
        _ => clean.canonicalize().unwrap_or(clean),
    }
}

/// True if the process behind the mount at `mountpoint` has ended.
pub(crate) fn is_dead(mountpoint: &Path) -> bool {
    let error = std::fs::metadata(mountpoint).err().and_then(|error| error.raw_os_error());
    error == Some(rustix::io::Errno::NOTCONN.raw_os_error())
}

/// Detaches a mount whose process has ended or hangs, also if files on it are open. Calls that wait
/// for its answer fail.
pub(crate) fn detach(mount: &Mount) -> Result<(), Failure> {
    let mountpoint = &mount.mountpoint;
    let failed = |why: &dyn std::fmt::Display| {
        Failure::failed(format!("{}: cannot detach the mount: {why}", mountpoint.display()))
    };
    match unmount(mountpoint, UnmountFlags::FORCE | UnmountFlags::DETACH) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::PERM) => {}
        Err(error) => return Err(failed(&error)),
    }
    // Detaching alone leaves calls waiting if a thread of the process hangs.
    end_calls(&mount.device).ok();
    let helper = Command::new("fusermount3").args(["-u", "-z", "--"]).arg(mountpoint).output();
    match helper {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(&String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => {
            let words = format!("cannot run fusermount3: {error} (Debian package: fuse3)");
            Err(failed(&words))
        }
    }
}

/// Fails the calls that wait for an answer on the mount with this device, of this user.
pub(crate) fn end_calls(device: &str) -> io::Result<()> {
    let (_, minor) = device.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::OpenOptions::new()
        .write(true)
        .open(Path::new(CONNECTIONS).join(minor).join("abort"))?
        .write_all(b"1")
}

/// The Segue mounts of a table as in `/proc/PID/mountinfo`.
pub(crate) fn in_table(table: &[u8]) -> Vec<Mount> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// One line of proc(5): `36 35 98:0 /root /point rw - fuse.segue source rw,user_id=0`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let separator = fields.iter().position(|field| field == b"-")?;
    let [kind, source, options, ..] = fields.get(separator + 1..)? else {
        return None;
    };
    if *kind != FILE_SYSTEM_TYPE {
        return None;
    }
    let owner = options.split(|&byte| byte == b',').find_map(|option| {
        std::str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?.parse().ok()
    });
    Some(Mount {
        mountpoint: PathBuf::from(unescape(fields.get(4)?)),
        source: unescape(source).to_string_lossy().into_owned(),
        owner: owner.unwrap_or(0),
        flags: unescape(fields.get(5)?).to_string_lossy().into_owned(),
        device: unescape(fields.get(2)?).to_string_lossy().into_owned(),
    })
}

/// Decodes the kernel's octal escapes: `\040` is a blank.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        match octal(rest) {
            Some((byte, tail)) => {
                bytes.push(byte);
                rest = tail;
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn octal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.strip_prefix(b"\\")?.split_at_checked(3)?;
    let digits = std::str::from_utf8(digits).ok()?;
    Some((u8::from_str_radix(digits, 8).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
        90 27 0:50 / /home/a/my\\040files rw,nosuid shared:9 - fuse.segue segue://h/home \
        rw,user_id=1000,group_id=0\n\
        91 27 0:51 / /home/a/my\\040files/deep rw - fuse.segue segue://h/deep rw,user_id=0\n\
        92 27 0:52 / /mnt rw - fuse.sshfs host: rw,user_id=1000\n";

    #[test]
    fn only_our_mounts_are_listed_with_blanks_in_names() {
        let mounts = in_table(TABLE);
        assert_eq!(mounts.len(), 2);
        let mount = at(&mounts, Path::new("/home/a/my files")).unwrap();
        assert_eq!((mount.source.as_str(), mount.owner), ("segue://h/home", 1000));
        assert_eq!(mount.device, "0:50");
        assert_eq!(at(&mounts, Path::new("/mnt")), None);
    }

    #[test]
    fn a_path_belongs_to_the_deepest_mount_above_it() {
        let mounts = in_table(TABLE);
        let source = |path: &str| holding(&mounts, Path::new(path)).map(|mount| mount.source);
        assert_eq!(source("/home/a/my files/x"), Some("segue://h/home".to_owned()));
        assert_eq!(source("/home/a/my files/deep/x"), Some("segue://h/deep".to_owned()));
        assert_eq!(source("/home/a/my filesystem"), None);
        assert_eq!(source("/home/a/my files/none/../../x"), None);
    }

    #[test]
    fn a_path_is_resolved_without_touching_its_last_part() {
        assert_eq!(resolve(Path::new("/proc/self/../no-such")), Path::new("/proc/no-such"));
        assert_eq!(resolve(Path::new("/")), Path::new("/"));
    }
}
