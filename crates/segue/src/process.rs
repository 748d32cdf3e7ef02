//! Other processes: ending one, and waiting until one has really ended.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Waits until process `pid` has ended, so that its locks and sockets are free; false if it
/// has not within `limit`.
pub(crate) fn wait_for_end(pid: i32, limit: Duration) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    // A process that cannot be opened is gone already.
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Ends process `pid` at once; false if it may not be.
pub(crate) fn kill(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    matches!(kill_process(pid, Signal::KILL), Ok(()) | Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!wait_for_end(pid, Duration::from_millis(1)));
        assert!(kill(pid));
        assert!(wait_for_end(pid, Duration::from_secs(60)));
        child.wait().unwrap();
        assert!(wait_for_end(pid, Duration::from_millis(1)));
    }
}
