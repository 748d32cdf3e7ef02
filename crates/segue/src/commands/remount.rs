//! `-o remount,ro` and `-o remount,rw`: a mount is read-only for a while.
//!
//! The kernel refuses the changes. So they take effect for all programs at once, and what was
//! written before still goes to the server.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use segue_client::NOSYMFOLLOW;

use crate::exit::{Exit, Failure, Outcome};
use crate::{control, mounts};

/// True if the lists of options ask for a change of a mount instead of a mount.
pub(crate) fn is_asked(options: &[String]) -> bool {
    words(options).any(|word| word == "remount")
}

/// Makes the mount at `mountpoint` read-only or writable, as the last of these options says.
/// mount(8) repeats all the others that it finds, and they stay as they are.
pub(crate) fn run(mountpoint: &Path, options: &[String]) -> Outcome {
    let mount = control::at(&mounts::list()?, mountpoint)?;
    let shown = mount.mountpoint.display();
    let wanted = words(options).rfind(|word| matches!(*word, "ro" | "rw"));
    let Some(wanted) = wanted else {
        return Err(Failure::usage(format!(
            "{shown}: only 'remount,ro' and 'remount,rw' change a mount; for other options: segue \
             umount {shown}, then mount again"
        )));
    };
    let read_only = if wanted == "ro" { MountFlags::RDONLY } else { MountFlags::empty() };
    match mount_remount(&mount.mountpoint, kept(&mount.flags) | read_only, c"") {
        Ok(()) => Ok(Exit::Done),
        Err(Errno::PERM) => {
            let words = format!(
                "{shown}: only root can remount; or: segue umount {shown}, then mount again with \
                 -o {wanted}"
            );
            Err(Failure::new(Exit::NotPermitted, words))
        }
        Err(Errno::BUSY) => Err(Failure::failed(format!(
            "{shown}: a file is open for writing; 'fuser -vm {shown}' lists the programs"
        ))),
        Err(error) => Err(Failure::io(format!("{shown}: cannot remount"), &error.into())),
    }
}

fn words(options: &[String]) -> impl DoubleEndedIterator<Item = &str> {
    options.iter().flat_map(|list| list.split(','))
}

/// The flags of a mount that are not to change, from its options in the mount list.
fn kept(flags: &str) -> MountFlags {
    flags.split(',').fold(MountFlags::empty(), |kept, flag| {
        kept | match flag {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            "nosymfollow" => NOSYMFOLLOW,
            _ => MountFlags::empty(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_flags_stay() {
        let flags = kept("rw,nosuid,nodev,relatime");
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME);
        assert_eq!(kept("ro,noexec"), MountFlags::NOEXEC);
    }
}
