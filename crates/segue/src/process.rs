//! Processes: killing one, waiting for the end of one, and the end of this one after a panic.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Waits until process `pid` has ended and its locks and sockets are free; false if it runs
/// longer than `limit`.
pub(crate) fn wait_for_end(pid: i32, limit: Duration) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    // A process that cannot be opened has already ended.
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

/// Kills process `pid`; false without the permission to do so.
pub(crate) fn kill(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return true };
    matches!(kill_process(pid, Signal::KILL), Ok(()) | Err(rustix::io::Errno::SRCH))
}

/// Makes a panic of any thread or task abort this process. Otherwise the other threads would go on,
/// and some would wait for ever for the one that panicked: for write-back, or for an answer.
pub(crate) fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
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
        assert!(String::from_utf8_lossy(&ended.stderr).contains("as it must not be"), "{ended:?}");
    }

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
