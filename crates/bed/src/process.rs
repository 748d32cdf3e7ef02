//! A program running on a host, killed by its id when it is dropped.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};

/// A started program. Dropping it kills it.
#[derive(Debug)]
pub struct Proc {
    child: Child,
}

impl Proc {
    pub(crate) fn new(child: Child) -> Proc {
        Proc { child }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill9(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Waits for its own end.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Its exit status, if it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Takes its standard input, where the command made it a pipe.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes its standard output, where the command made it a pipe.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes its standard error, where the command made it a pipe.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
