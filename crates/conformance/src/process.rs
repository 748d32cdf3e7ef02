//! Another process of a case, or the one of a case itself: started by fork, with its outcome
//! sent through a pipe.
//!
//! After a fork the child has one thread, whatever its parent had; so it may take any user, any
//! umask and any limit. It never returns into its parent's code, and it dies with its parent.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, pidfd_open,
    set_parent_process_death_signal, setpgid, waitpid,
};

use crate::expect::{Failure, Outcome};
use crate::sys;

/// A verdict is one byte and the reason, written at once: no longer than what a pipe takes whole.
const VERDICT_BYTES_MAX: usize = 4_096;
const PASSED: u8 = b'+';
const FAILED: u8 = b'-';
/// How long a killed child may take to end. One that is stuck in the kernel does not.
const KILLED_SECONDS: i64 = 5;

/// A forked child at work. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    verdict: OwnedFd,
    is_reaped: bool,
}

impl Process {
    /// Forks a child that does `work`. It has its parent's descriptors.
    pub(crate) fn start(work: impl FnOnce() -> Outcome) -> Result<Process, Failure> {
        Process::fork(|verdict| report(&verdict, work))
    }

    /// Forks a child that has none of its parent's descriptors but the standard ones, and leads
    /// a process group. What is open in the parent stays the parent's: it may hold the other
    /// end of the very mount on which the child gets stuck.
    pub(crate) fn start_alone(work: impl FnOnce() -> Outcome) -> Result<Process, Failure> {
        let alone = Process::fork(|verdict| {
            sys::close_all_but(verdict.as_raw_fd());
            let grouped = setpgid(None, None).map_err(Failure::from);
            report(&verdict, || grouped.and_then(|()| work()));
        })?;
        // Said by both, so that it is so whoever comes first.
        let _ = setpgid(Some(alone.pid), Some(alone.pid));
        Ok(alone)
    }

    fn fork(work: impl FnOnce(OwnedFd)) -> Result<Process, Failure> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let pid = sys::fork_and_exit(|| {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            work(writer);
        })?;
        Ok(Process { pid, verdict: reader, is_reaped: false })
    }

    /// Waits for the child's end, and returns its outcome.
    pub(crate) fn join(mut self) -> Outcome {
        let status = self.wait()?;
        self.outcome(status)
    }

    /// Waits for the child's end without asking for an outcome: it is expected to be killed.
    pub(crate) fn ending(mut self) -> Result<WaitStatus, Failure> {
        self.wait()
    }

    /// Ends the child with SIGKILL.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Waits like [`Process::join`], but ends the child and all that it started after `seconds`.
    pub(crate) fn join_within(mut self, seconds: i64) -> Outcome {
        if self.ends_within(seconds)? {
            let status = self.wait()?;
            return self.outcome(status);
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        let is_stuck = !self.ends_within(KILLED_SECONDS)?;
        // One that cannot be killed is left behind: waiting for it would hang all others too.
        self.is_reaped = is_stuck;
        let stuck = if is_stuck { ", and cannot be killed" } else { "" };
        Err(Failure(format!("did not end within {seconds} s{stuck}")))
    }

    fn ends_within(&self, seconds: i64) -> Result<bool, Failure> {
        let child = pidfd_open(self.pid, PidfdFlags::empty())?;
        Ok(becomes_ready(&child, seconds)?)
    }

    fn wait(&mut self) -> Result<WaitStatus, Failure> {
        loop {
            match waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(rustix::io::Errno::INTR) | Ok(None) => {}
                Err(errno) => return Err(errno.into()),
                Ok(Some((_, status))) => {
                    self.is_reaped = true;
                    return Ok(status);
                }
            }
        }
    }

    /// What the child, which has ended, has said. A process of its own may still hold the pipe.
    fn outcome(&self, status: WaitStatus) -> Outcome {
        let mut said = vec![0; VERDICT_BYTES_MAX];
        if becomes_ready(&self.verdict, 0)? {
            let length = rustix::io::read(&self.verdict, &mut said[..])?;
            said.truncate(length);
        } else {
            said.clear();
        }
        match said.split_first() {
            Some((&PASSED, _)) => Ok(()),
            Some((_, reason)) => Err(Failure(String::from_utf8_lossy(reason).into_owned())),
            None => Err(Failure(format!("ended without a verdict, by {}", Ending(status)))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.wait();
        }
    }
}

struct Ending(WaitStatus);

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.terminating_signal(), self.0.exit_status()) {
            (Some(signal), _) => write!(f, "signal {signal}"),
            (_, Some(status)) => write!(f, "exit with {status}"),
            _ => f.write_str("something unknown"),
        }
    }
}

/// Whether `fd` can be read within so many seconds.
pub(crate) fn becomes_ready(fd: &OwnedFd, seconds: i64) -> Result<bool, rustix::io::Errno> {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    Ok(poll(&mut polled, Some(&timeout))? > 0)
}

/// Does `work`; a panic becomes a failure.
pub(crate) fn without_panic(work: impl FnOnce() -> Outcome) -> Outcome {
    let panicked = |_| Err(Failure("panicked".to_owned()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// The child's whole life. Unwinding further would run the parent's code a second time.
fn report(verdict: &OwnedFd, work: impl FnOnce() -> Outcome) {
    let said = match without_panic(work) {
        Ok(()) => vec![PASSED],
        Err(failure) => [&[FAILED], failure.0.as_bytes()].concat(),
    };
    let length = said.len().min(VERDICT_BYTES_MAX);
    let _ = rustix::io::write(verdict, &said[..length]);
}
