//! Taking a mount out of the tree.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::mount::UnmountFlags;

/// Unmounts, unless something of the mount is in use.
pub(super) fn unmount(path: &Path) -> io::Result<()> {
    let unmounted = take_out(path, UnmountFlags::empty(), &["-u", "--"]);
    unmounted.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => {
            let path = path.display();
            let words = format!("something of it is in use ('fuser -vm {path}' shows by whom)");
            io::Error::new(io::ErrorKind::ResourceBusy, words)
        }
        _ => error,
    })
}

/// Takes the mount out of the tree at once; what is still open ends by itself.
pub(crate) fn detach(path: &Path) -> io::Result<()> {
    take_out(path, UnmountFlags::DETACH, &["-u", "-z", "--"])
}

fn take_out(path: &Path, flags: UnmountFlags, arguments: &[&str]) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(rustix::mount::unmount(path, flags)?);
    }
    // A process group of its own: Ctrl-C ends the mount, not the unmounting.
    let mut command = Command::new("fusermount3");
    let output = command.args(arguments).arg(path).process_group(0).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
