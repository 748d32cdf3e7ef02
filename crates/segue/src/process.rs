//! Processes: the one behind a socket, killing it, waiting for its end, the files that a daemon
//! inherits, and the end of this process after a panic.

#![allow(unsafe_code, reason = "no library does these calls")]

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Has programs that this process starts inherit only the standard files. A file of a mount that
/// the user's shell has open would keep that mount busy for a daemon's life.
pub(crate) fn bequeath_standard_files_only() {
    let after_stderr = 3;
    // SAFETY: it closes nothing here: the mark counts when another program begins. A kernel before
    // 5.11 does not know the mark, and its daemons inherit the files.
    unsafe { libc::close_range(after_stderr, libc::c_uint::MAX, CLOSE_AT_EXEC) };
}

/// The mark `CLOSE_RANGE_CLOEXEC`.
const CLOSE_AT_EXEC: i32 = 4;

/// Linux 6.5; the C library's header does not have it everywhere.
const SO_PEERPIDFD: i32 = 77;

/// Another process. If it ends, and another gets its number, this does not mean the other.
#[derive(Debug)]
pub(crate) struct Process {
    pid: i32,
    handle: OwnedFd,
}

impl Process {
    /// The process at the other end of `socket`: the one that began to listen there. Linux tells
    /// it since 6.5; before, it is the process that has this number now.
    pub(crate) fn behind(socket: &impl AsFd, pid: i32) -> io::Result<Process> {
        let (mut handle, mut len) = (-1, 4);
        // SAFETY: both point to places that outlive the call and have the lengths of the option.
        let asked = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERPIDFD,
                (&raw mut handle).cast(),
                &raw mut len,
            )
        };
        if asked == 0 {
            // SAFETY: the kernel has just opened it for us.
            let handle = unsafe { OwnedFd::from_raw_fd(handle) };
            return Ok(Process { pid, handle });
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ENOPROTOOPT) => Process::now(pid),
            _ => Err(error),
        }
    }

    /// The process that has this number now.
    pub(crate) fn now(pid: i32) -> io::Result<Process> {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Process { pid: pid.as_raw_nonzero().get(), handle })
    }

    /// Its number, for messages.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Its table of mounts; an error also if it has ended.
    pub(crate) fn mount_table(&self) -> io::Result<Vec<u8>> {
        self.about("mountinfo")
    }

    /// The user whose rights it has; an error also if it has ended.
    pub(crate) fn user(&self) -> io::Result<u32> {
        effective_user(&self.about("status")?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The contents of one of its files in /proc.
    fn about(&self, file: &str) -> io::Result<Vec<u8>> {
        let text = std::fs::read(format!("/proc/{}/{file}", self.pid))?;
        // Until then the number was its own.
        match self.wait_for_end(Duration::ZERO) {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(text),
        }
    }

    /// Waits until it has ended and its locks and sockets are free; false if it runs longer than
    /// `limit`.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// True if it was killed or has ended, also while the kernel waits for one of its threads: its
    /// files are open until then, and calls on a mount of it wait.
    pub(crate) fn has_died(&self) -> bool {
        self.about("status").map_or(true, |status| is_over(&status))
    }

    /// Kills it; false without the permission to do so.
    pub(crate) fn kill(&self) -> bool {
        let killed = pidfd_send_signal(&self.handle, Signal::KILL);
        matches!(killed, Ok(()) | Err(rustix::io::Errno::SRCH))
    }
}

/// The effective uid in a `/proc/PID/status`.
fn effective_user(status: &[u8]) -> Option<u32> {
    // Real, effective, saved, of the file system.
    value_of(status, b"Uid:")?.split_whitespace().nth(1)?.parse().ok()
}

/// The value of `key` in a `/proc/PID/status`.
fn value_of<'a>(status: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(key))?;
    std::str::from_utf8(line).ok()
}

/// True if a `/proc/PID/status` is that of a process whose main thread has ended.
fn is_over(status: &[u8]) -> bool {
    let state = value_of(status, b"State:").map(str::trim_start);
    state.is_some_and(|state| state.starts_with(['Z', 'X']))
}

/// What a user is told of a process that found itself wrong.
const ENDED: &str = "segue: an internal check failed, and this process ends before it can do harm. \
                     No acknowledged change is lost: the update log has them all, and the next \
                     mount sends them. Please send us the lines above with the output of \
                     'segue --version' and of 'segue log' after the next mount.";

/// Makes a panic of any thread or task abort this process. Otherwise the other threads would go on,
/// and some would wait for ever for the one that panicked: for write-back, or for an answer.
pub(crate) fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        writeln!(io::stderr(), "{ENDED}").ok();
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Write-back had stopped after a panic, and `segue sync` waited for ever.
    #[test]
    fn a_thread_that_panics_takes_the_others_along() {
        const TOLD: &str = "SEGUE_TEST_PANICS";
        const THIS: &str = "process::tests::a_thread_that_panics_takes_the_others_along";
        if std::env::var_os(TOLD).is_some() {
            abort_on_panic();
            std::thread::spawn(|| panic!("as it must not be")).join().ok();
            return;
        }
        let program = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(program);
        let ended = child.args(["--exact", THIS, "--nocapture"]).env(TOLD, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(Signal::ABORT.as_raw()), "{ended:?}");
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(told.contains("as it must not be") && told.contains(ENDED), "{told}");
    }

    #[test]
    fn a_killed_process_is_known_by_its_state() {
        assert!(is_over(b"Name:\ta\nState:\tZ (zombie)\n") && is_over(b"State:\tX (dead)"));
        assert!(!is_over(b"Name:\tState:\tZ\nState:\tS (sleeping)\n") && !is_over(b""));
    }

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::now(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!process.wait_for_end(Duration::from_millis(1)));
        assert!(!process.mount_table().unwrap().is_empty());
        assert_eq!(process.user().unwrap(), rustix::process::geteuid().as_raw());
        assert!(process.kill());
        assert!(process.wait_for_end(Duration::from_secs(60)));
        child.wait().unwrap();
        assert!(process.wait_for_end(Duration::from_millis(1)) && process.kill());
        assert!(process.mount_table().is_err() && process.user().is_err());
    }

    #[test]
    fn a_process_has_the_rights_of_its_effective_user() {
        let status = b"Name:\tUid:\nUid:\t5\t1000\t5\t5\nGid:\t7\t7\t7\t7\n";
        assert_eq!(effective_user(status), Some(1000));
        assert_eq!(effective_user(b"Name:\tsegue\n"), None);
    }

    #[test]
    fn the_process_behind_a_socket_is_the_one_that_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        // Whatever number it is said to have.
        let process = Process::behind(&stream, 1).unwrap();
        let info =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.handle.as_raw_fd()));
        let line = format!("Pid:\t{}\n", std::process::id());
        assert!(info.unwrap().contains(&line));
        drop(listener);
    }
}
