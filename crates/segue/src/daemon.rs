//! Daemons in the background: the command returns only when its daemon is usable.
//!
//! The parent starts the program again with a hidden argument and the write end of a pipe as
//! its stdout. The child works as in the foreground and reports over the pipe, one line for each
//! report: progress, then "ready" or "failed". At "ready" it leaves the parent's session and closes
//! the pipe. Until then Ctrl-C in the terminal ends both. A fork without exec would copy a process
//! that already has threads.
//!
//! ```text
//!   parent ── start again ──▶ child: stdout = pipe, stderr = log file
//!     │ ◀──── progress .. ──── │
//!     │ ◀──── ready, words ─── │ own session, stdout closed
//!   prints, exits 0            serves
//! ```

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sd_notify::NotifyState;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::log_file::LogFile;
use crate::output::{self, Progress, Share};
use crate::process::bequeath_standard_files_only;

/// Hidden argument that tells a child that its stdout is the pipe to a parent.
pub(crate) const READY_FLAG: &str = "--ready-on-stdout";

/// One line in the pipe.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Progress(String),
    Ready(String),
    Failed { code: u8, words: String },
}

/// Starts this program again with `arguments` in the background, with `input` on its stdin and
/// its log in `log`. Returns the message of its "ready" report.
pub(crate) fn launch(
    arguments: &[OsString],
    input: Option<&str>,
    log: &Path,
) -> Result<String, Failure> {
    let (mut log_file, log_start) = LogFile::open(log)
        .and_then(|log| log.handle())
        .map_err(|error| Failure::io(format!("cannot open the log {}", log.display()), &error))?;
    let start_failed = |error| Failure::io("cannot start the background process", &error);
    let log_handle = log_file.try_clone().map_err(start_failed)?;
    let program = std::env::current_exe().map_err(start_failed)?;
    bequeath_standard_files_only();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(log_handle)
        .spawn()
        .map_err(start_failed)?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // If the child ended without reading, its report below has the reason.
        let _ = writeln!(stdin, "{input}");
    }
    match wait_for_report(&mut child) {
        Some(Report::Ready(words)) => Ok(words),
        Some(Report::Failed { code, words }) => {
            let _ = child.wait();
            Err(Failure::new(Exit::from_code(code), words))
        }
        Some(Report::Progress(_)) | None => Err(died(&mut child, &mut log_file, log_start, log)),
    }
}

/// Shows the child's progress; returns its "ready" or "failed", `None` if it ended without one.
fn wait_for_report(child: &mut Child) -> Option<Report> {
    let mut progress = Progress::new();
    for line in BufReader::new(child.stdout.take()?).lines() {
        match serde_json::from_str(&line.ok()?).ok()? {
            Report::Progress(words) => progress.show(&words, Share::default()),
            last => return Some(last),
        }
    }
    None
}

/// The failure for a child that ended without a report: it quotes the last line of the log.
fn died(child: &mut Child, log_file: &mut File, log_start: u64, log: &Path) -> Failure {
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let mut text = String::new();
    let _ = log_file.seek(SeekFrom::Start(log_start));
    let _ = log_file.read_to_string(&mut text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(no line)");
    Failure::failed(format!(
        "the background process ended before it was ready ({status}); the last line of its log \
         {}: {last}",
        log.display()
    ))
}

/// Reports of a daemon: to the terminal, or to a waiting parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcer {
    /// True if stdout is the pipe to a parent.
    pub(crate) detached: bool,
}

impl Announcer {
    /// Reports progress before "ready".
    pub(crate) fn progress(self, words: String) {
        if self.detached {
            // A parent that has ended is noticed at "ready".
            let _ = send(&Report::Progress(words));
        } else {
            output::note(&words);
        }
    }

    /// Reports that the daemon is usable, and leaves the parent's session. An error means that
    /// the parent has ended: the daemon should end too.
    pub(crate) fn ready(self, words: &str) -> std::io::Result<()> {
        if !self.detached {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{words}").and_then(|()| out.flush())?;
            return tell_systemd(NotifyState::Ready);
        }
        // The working directory must not keep a file system busy for the daemon's life.
        std::env::set_current_dir("/")?;
        rustix::process::setsid()?;
        send(&Report::Ready(words.to_owned()))?;
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(nowhere)?;
        Ok(())
    }

    /// Reports that the daemon was told to end.
    pub(crate) fn stopping(self) {
        if !self.detached {
            let _ = tell_systemd(NotifyState::Stopping);
        }
    }

    /// Reports to a waiting parent that the daemon failed.
    pub(crate) fn failed(self, failure: &Failure) {
        if self.detached {
            let report = Report::Failed { code: failure.exit.code(), words: failure.to_string() };
            let _ = send(&report);
        }
    }
}

/// Tells the service manager, if one has started this process (sd_notify(3)).
fn tell_systemd(state: NotifyState<'_>) -> std::io::Result<()> {
    sd_notify::notify(&[state])
}

fn send(report: &Report) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
