//! Putting a file system into the tree and taking it out: root calls mount(2) and umount2(2),
//! a user has fusermount3 do it.

use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::device::Device;

/// MS_NOSYMFOLLOW of mount(2), since Linux 5.10.
pub const NOSYMFOLLOW: MountFlags = MountFlags::from_bits_retain(256);

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountOptions {
    /// The source in the list of mounts.
    pub source: String,
    /// The file system's type there, behind `fuse.`.
    pub subtype: String,
    /// Users other than the mounting one get in.
    pub allow_other: bool,
    /// The kernel checks permissions by the files' modes.
    pub default_permissions: bool,
    /// No changes.
    pub read_only: bool,
    /// Device nodes count. Root only.
    pub dev: bool,
    /// Set-id bits count. Root only.
    pub suid: bool,
    /// Programs on it cannot be started.
    pub no_exec: bool,
    /// No symbolic link on it is followed (Linux 5.10, root only).
    pub no_symfollow: bool,
    /// Access times stay as they are.
    pub no_atime: bool,
    /// Whose mount it is, where root mounts.
    pub owner: (u32, u32),
}

/// Mounts at `mountpoint`; [`FuseSession::begin`](crate::FuseSession::begin) takes the returned
/// descriptor.
pub fn mount(mountpoint: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    if rustix::process::geteuid().is_root() {
        mount_as_root(mountpoint, options)
    } else {
        have_mounted(mountpoint, options)
    }
}

fn mount_as_root(mountpoint: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let device = Device::open()?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    flags.set(NOSYMFOLLOW, options.no_symfollow);
    flags.set(MountFlags::NOATIME, options.no_atime);
    let (uid, gid) = options.owner;
    let fd = device.as_raw_fd();
    let mut data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid}");
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let (data, kind) = (CString::new(data)?, format!("fuse.{}", options.subtype));
    rustix::mount::mount(options.source.as_str(), mountpoint, kind, flags, data.as_c_str())?;
    Ok(device)
}

/// fusermount3 is set-user-id root: it mounts, and passes the device back over its standard
/// input.
fn have_mounted(mountpoint: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let output = Command::new("fusermount3")
        .args(["-o", &user_options(options), "--"])
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .output()?;
    if !output.status.success() {
        return Err(said(&output.stderr));
    }
    receive(&ours)
}

fn user_options(options: &MountOptions) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut text =
        format!("fsname={},subtype={}", escaped(&options.source), escaped(&options.subtype));
    let flags = [
        (options.default_permissions, ",default_permissions"),
        (options.allow_other, ",allow_other"),
        (options.read_only, ",ro"),
        (options.no_exec, ",noexec"),
        (options.no_symfollow, ",nosymfollow"),
        (options.no_atime, ",noatime"),
    ];
    text.extend(flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name));
    text
}

/// Receives the descriptor that fusermount3 sends.
fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let device = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    device.ok_or_else(|| io::Error::other("fusermount3 passed no descriptor of /dev/fuse"))
}

fn said(stderr: &[u8]) -> io::Error {
    io::Error::other(String::from_utf8_lossy(stderr).trim().to_owned())
}

/// Unmounts, unless something of the mount is in use.
pub fn unmount(mountpoint: &Path) -> io::Result<()> {
    let unmounted = take_out(mountpoint, UnmountFlags::empty(), &["-u", "--"]);
    unmounted.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => {
            let path = mountpoint.display();
            let words = format!("it is in use ('fuser -vm {path}' lists the processes)");
            io::Error::new(io::ErrorKind::ResourceBusy, words)
        }
        _ => error,
    })
}

/// Takes the mount out of the tree at once; open files end by themselves.
pub fn detach(mountpoint: &Path) -> io::Result<()> {
    take_out(mountpoint, UnmountFlags::DETACH, &["-u", "-z", "--"])
}

fn take_out(mountpoint: &Path, flags: UnmountFlags, arguments: &[&str]) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(rustix::mount::unmount(mountpoint, flags)?);
    }
    // A process group of its own: Ctrl-C ends the mount, not the unmounting.
    let mut command = Command::new("fusermount3");
    let output = command.args(arguments).arg(mountpoint).process_group(0).output()?;
    if output.status.success() { Ok(()) } else { Err(said(&output.stderr)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_the_source_do_not_become_options() {
        let options = MountOptions {
            source: "segue://h/a,allow_other".into(),
            subtype: "segue".into(),
            read_only: true,
            ..MountOptions::default()
        };
        assert_eq!(user_options(&options), r"fsname=segue://h/a\,allow_other,subtype=segue,ro");
    }
}
