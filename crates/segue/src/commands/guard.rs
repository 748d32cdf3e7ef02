//! `segue guard`, a hidden command. Each mount starts it as a second process.
//!
//! A killed process ends with its last thread. A thread that tells the kernel to forget a name can
//! wait there for a call on the mount, and this call waits for the killed process. Then the kernel
//! ends neither of them, the device stays open, and calls on the mount hang. The guard ends them.

#![allow(unsafe_code, reason = "no library changes the namespace of mounts safely")]

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, set_name, unshare_unsafe};

use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::{self, CONNECTIONS, Mount};
use crate::process::Process;

/// Time between two looks at the process.
const LOOK: Duration = Duration::from_secs(5);
/// A killed process needs less time to end, unless the kernel holds one of its threads.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watch the process of a mount, and end the calls on the mount if it was killed and hangs
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The process
    pid: i32,
    /// The mount's device, as in its line of mountinfo
    device: String,
}

/// Starts the guard of `mount`, which this process serves.
pub(crate) fn start(mount: &Mount) -> io::Result<()> {
    let mut guard = Command::new(std::env::current_exe()?);
    guard.arg("guard").arg(std::process::id().to_string()).arg(&mount.device);
    guard.current_dir("/").process_group(0);
    guard.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    guard.spawn().map(drop)
}

/// Watches until the process has ended.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    // 'killall -9 segue' leaves it.
    set_name(c"segue-guard").ok();
    let failed = |error: io::Error| Failure::io(format!("process {}", arguments.pid), &error);
    let process = Process::now(arguments.pid).map_err(failed)?;
    // It may have ended before, and its number may be another's.
    if i64::from(std::os::unix::process::parent_id()) != i64::from(arguments.pid) {
        return Ok(Exit::Done);
    }
    while !process.wait_for_end(LOOK) {
        if process.has_died() && !process.wait_for_end(PATIENCE) {
            end_calls(&arguments.device).map_err(failed)?;
            return Ok(Exit::Done);
        }
    }
    Ok(Exit::Done)
}

/// Ends the calls on the mount with this device, which stays mounted. Root mounts the kernel's list
/// of connections for itself where the host has none.
fn end_calls(device: &str) -> io::Result<()> {
    let Err(error) = mounts::end_calls(device) else { return Ok(()) };
    if error.kind() != io::ErrorKind::NotFound || !Path::new(CONNECTIONS).exists() {
        return Err(error);
    }
    // SAFETY: this process has one thread, and no file that depends on its namespace of mounts.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("fusectl", CONNECTIONS, "fusectl", MountFlags::empty(), None::<&std::ffi::CStr>)?;
    mounts::end_calls(device)
}
