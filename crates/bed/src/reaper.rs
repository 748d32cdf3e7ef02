//! The reaper: what cleans up after a bed, whatever becomes of the bed's owner.
//!
//! A shell of its own process group that reads a pipe held by the owner. The pipe ends when
//! the bed is dropped and also when the owner dies, by SIGINT or SIGKILL alike; then the reaper
//! kills what runs in the bed's namespaces, unmounts what is mounted under the bed's
//! directory, removes the sockets that it listened on, deletes the namespaces and removes the
//! directory. There is no other clean-up.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::error::{Doing, Result};

const SCRIPT: &str = include_str!("reaper.sh");

#[derive(Debug)]
pub(crate) struct Reaper {
    shell: Child,
}

impl Reaper {
    /// Starts to guard the namespaces `PREFIX-*` and everything below `dir`.
    pub(crate) fn start(prefix: &str, dir: &Path) -> Result<Reaper> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "segue-bed-reaper", prefix]).arg(dir);
        // Its own process group: Ctrl-C must end the owner, not the clean-up.
        command.process_group(0).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        Ok(Reaper { shell: command.spawn().doing("start the bed's reaper")? })
    }

    /// Ends and unmounts everything now; the files stay until [`Reaper::finish`].
    pub(crate) fn end_all(&mut self) -> Result<()> {
        let (Some(stdin), Some(stdout)) = (&mut self.shell.stdin, &mut self.shell.stdout) else {
            return Ok(());
        };
        stdin.write_all(b"end\n").doing("tell the bed's reaper")?;
        let mut ended = String::new();
        BufReader::new(stdout).read_line(&mut ended).doing("hear from the bed's reaper")?;
        Ok(())
    }

    /// Lets the clean-up run and waits for its end.
    pub(crate) fn finish(&mut self) {
        drop(self.shell.stdin.take());
        if let Err(error) = self.shell.wait() {
            eprintln!("segue-bench: waiting for the bed's reaper: {error}");
        }
    }
}
