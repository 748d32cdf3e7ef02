//! The FUSE adaptor: translates the kernel's requests into calls of the mount, and answers
//! back. It decides nothing.
//!
//! A request that needs no wait is answered on the thread that read it; any other goes on as a
//! task, so that one slow file never holds up the rest.

mod answer;
mod attach;
mod caller;
mod convert;
mod directory;
mod filesystem;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Waker};

use fuser::Session;
use tokio::runtime::Handle;

use crate::error::MountError;
use crate::mount::Shared;

/// The adaptor.
#[derive(Debug)]
pub(crate) struct Front {
    mount: Shared,
    runtime: Handle,
}

impl Front {
    /// Runs `work` here as far as it gets without waiting, and the rest as a task.
    fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
        let _entered = self.runtime.enter();
        // A task is polled again when it is spawned, so this waker need not wake anybody.
        let mut context = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut context).is_pending() {
            self.runtime.spawn(work);
        }
    }
}

/// Mounts at `mountpoint` and shakes hands with the kernel.
pub(crate) async fn session(
    mount: &Shared,
    mountpoint: PathBuf,
) -> Result<Session<Front>, MountError> {
    let front = Front { mount: Shared::clone(mount), runtime: Handle::current() };
    let at = mountpoint.clone();
    let opened = tokio::task::spawn_blocking(move || attach::attach(front, &at)).await;
    let failed = |reason: String| MountError::Fuse { mountpoint: mountpoint.clone(), reason };
    match opened {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(failed(explain(&error))),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn explain(error: &std::io::Error) -> String {
    if !std::path::Path::new("/dev/fuse").exists() {
        return "this host has no /dev/fuse: load the kernel module (modprobe fuse)".into();
    }
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "{error}: /dev/fuse must be readable and writable for you, and the mount point yours"
        ),
        std::io::ErrorKind::NotFound => {
            format!("{error}: fusermount3 is missing (apt-get install fuse3)")
        }
        _ => error.to_string(),
    }
}
