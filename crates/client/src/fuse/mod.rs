//! The FUSE adaptor: translates the kernel's requests into calls of the mount, and answers
//! back. It decides nothing.
//!
//! A request that needs no wait is answered on the thread that read it; any other goes on as a
//! task, so that one slow file never holds up the rest, and ends early when its caller is
//! killed (`waiting`).

mod caller;
mod calls;
mod convert;
mod directory;
mod files;
mod names;
mod operation;
mod signals;
mod waiting;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use segue_core::nouns::Role;
use segue_fuse::abi::init;
use segue_fuse::{FuseSession, Interrupts, MountOptions, Wishes};
use tokio::runtime::Handle;

use crate::error::MountError;
use crate::mount::Shared;
use crate::options::Passthrough;

/// The adaptor.
#[derive(Debug)]
pub(crate) struct Front {
    mount: Shared,
    runtime: Handle,
    interrupts: Interrupts,
    callers: caller::Statuses,
}

/// Mounts at `mountpoint` and shakes hands with the kernel.
pub(crate) async fn session(
    mount: &Shared,
    mountpoint: PathBuf,
) -> Result<FuseSession<Front>, MountError> {
    let front = Front {
        mount: Shared::clone(mount),
        runtime: Handle::current(),
        interrupts: Interrupts::default(),
        callers: caller::Statuses::default(),
    };
    let at = mountpoint.clone();
    let opened = tokio::task::spawn_blocking(move || attach(front, &at)).await;
    let failed = |reason: String| MountError::Fuse { mountpoint: mountpoint.clone(), reason };
    match opened {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(failed(explain(&error))),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn attach(front: Front, mountpoint: &Path) -> std::io::Result<FuseSession<Front>> {
    let device = segue_fuse::mount(mountpoint, &options(&front.mount))?;
    let (wishes, front_mount) = (wishes(&front.mount), Shared::clone(&front.mount));
    let session = FuseSession::begin(device, Arc::new(front), &wishes).inspect_err(|_| {
        // The handshake failed: the mount must not stay in the tree.
        if let Err(error) = segue_fuse::detach(mountpoint) {
            tracing::warn!("{}: cannot unmount: {error}", mountpoint.display());
        }
    })?;
    pass_through(&front_mount, &session).inspect_err(|_| {
        if let Err(error) = segue_fuse::detach(mountpoint) {
            tracing::warn!("{}: cannot unmount: {error}", mountpoint.display());
        }
    })?;
    if wishes.uring && !session.agreement().has(init::OVER_IO_URING) {
        tracing::warn!(
            "{}: this kernel offers no io_uring for FUSE (it needs Linux 6.14 and Y in \
             /sys/module/fuse/parameters/enable_uring): using /dev/fuse instead",
            mountpoint.display()
        );
    }
    Ok(session)
}

/// Finds out whether files can be passed through; an error if they must be and cannot.
fn pass_through(mount: &Shared, session: &FuseSession<Front>) -> std::io::Result<()> {
    let wanted = mount.volume.options.passthrough;
    if wanted == Passthrough::Off {
        return Ok(());
    }
    let tried = match session.agreement().has(init::PASSTHROUGH) {
        true => mount.kernel.try_passthrough(&session.notifier()),
        false => Err(std::io::Error::other("this kernel has none (it needs Linux 6.9)")),
    };
    let Err(error) = tried else { return Ok(()) };
    let words = match error.raw_os_error() {
        Some(libc::EPERM) => "it needs CAP_SYS_ADMIN: mount as root".to_owned(),
        Some(libc::ELOOP) => {
            "the cache directory is on stacked file systems: choose another cache-dir".to_owned()
        }
        _ => error.to_string(),
    };
    if wanted == Passthrough::On {
        return Err(std::io::Error::other(format!("passthrough=on is not possible: {words}")));
    }
    tracing::info!("passthrough is off: {words}");
    Ok(())
}

/// How many file systems may lie upon each other below the mount, itself included: no more than
/// the cache needs, so that others may be stacked upon the mount. Linux allows 2 in all.
fn stack_depth(mount: &Shared) -> u32 {
    if mount.volume.options.passthrough == Passthrough::Off {
        return 0;
    }
    if mount.kernel.cache_is_stacked() { 2 } else { 1 }
}

fn options(mount: &Shared) -> MountOptions {
    MountOptions {
        source: mount.volume.url.clone(),
        subtype: "segue".into(),
        allow_other: mount.volume.options.allow_other,
        default_permissions: true,
        read_only: mount.volume.options.read_only || mount.volume.owner.role == Role::Reader,
        dev: mount.volume.options.dev,
        suid: mount.volume.options.suid,
        no_exec: mount.volume.options.no_exec,
        no_symfollow: mount.volume.options.no_symfollow,
        no_atime: mount.volume.options.no_atime,
        owner: (mount.volume.owner.uid, mount.volume.owner.gid),
    }
}

fn wishes(mount: &Shared) -> Wishes {
    let wishes = Wishes::default();
    let flags = init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ATOMIC_O_TRUNC
        | init::CACHE_SYMLINKS
        | init::CREATE_SUPP_GROUP
        | init::HANDLE_KILLPRIV_V2;
    Wishes {
        flags: wishes.flags | flags,
        uring: mount.volume.options.io_uring,
        stack_depth_max: stack_depth(mount),
        ..wishes
    }
}

fn explain(error: &std::io::Error) -> String {
    if !std::path::Path::new("/dev/fuse").exists() {
        return "this host has no /dev/fuse: load the kernel module (modprobe fuse)".into();
    }
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "{error}: you need read and write permission on /dev/fuse, and must own the mountpoint"
        ),
        std::io::ErrorKind::NotFound => {
            format!("{error}: fusermount3 is missing (apt-get install fuse3)")
        }
        _ => error.to_string(),
    }
}
