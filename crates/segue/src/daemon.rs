//! Going to the background: a command that returns only when its daemon is usable.
//!
//! The parent starts the program again with a hidden argument and the write end of a pipe as
//! its stdout. The child does its work as in the foreground and reports over the pipe, a line
//! each: progress, then "ready" or "failed". Only at "ready" does it leave the parent's session and close the
//! pipe, so until then Ctrl-C in the terminal ends both. A fork without exec would copy a
//! process that already has threads; starting again does not.
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
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::output::{self, Progress};

/// Hidden argument by which a child knows that its stdout is the pipe to a parent.
pub(crate) const READY_FLAG: &str = "--ready-on-stdout";
/// A log longer than this starts anew when its daemon does; one older log is kept.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// One line in the pipe.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Progress(String),
    Ready(String),
    Failed { code: u8, words: String },
}

/// Starts this program again with `arguments` in the background, `input` on its stdin, its log
/// in `log`; returns when it reports that it is usable, with its words.
pub(crate) fn launch(
    arguments: &[OsString],
    input: Option<&str>,
    log: &Path,
) -> Result<String, Failure> {
    let (mut log_file, log_start) = open_log(log)
        .map_err(|error| Failure::io(format!("cannot open the log {}", log.display()), &error))?;
    let start_failed = |error| Failure::io("cannot start the background process", &error);
    let log_handle = log_file.try_clone().map_err(start_failed)?;
    let program = std::env::current_exe().map_err(start_failed)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(log_handle)
        .spawn()
        .map_err(start_failed)?;
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        // A child that ended without reading says why below.
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

/// The child's last line, none if it ended without it; shows those before.
fn wait_for_report(child: &mut Child) -> Option<Report> {
    let mut progress = Progress::new();
    for line in BufReader::new(child.stdout.take()?).lines() {
        match serde_json::from_str(&line.ok()?).ok()? {
            Report::Progress(words) => progress.show(&words),
            last => return Some(last),
        }
    }
    None
}

/// The words for a child that ended without any: the last line that it logged.
fn died(child: &mut Child, log_file: &mut File, log_start: u64, log: &Path) -> Failure {
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    let mut text = String::new();
    let _ = log_file.seek(SeekFrom::Start(log_start));
    let _ = log_file.read_to_string(&mut text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    Failure::failed(format!(
        "the background process ended before it was ready ({status}); its last words: {last}; \
         its log is {}",
        log.display()
    ))
}

fn open_log(log: &Path) -> std::io::Result<(File, u64)> {
    if let Some(directory) = log.parent() {
        std::fs::create_dir_all(directory)?;
    }
    if std::fs::metadata(log).is_ok_and(|meta| meta.len() > LOG_BYTES_MAX) {
        std::fs::rename(log, log.with_extension("log.1"))?;
    }
    let file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(log)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// How a daemon tells its user that it is usable: on the terminal, or to a waiting parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcer {
    /// True if stdout is the pipe to a parent.
    pub(crate) detached: bool,
}

impl Announcer {
    /// Tells how far the way to "ready" is gone.
    pub(crate) fn progress(self, words: String) {
        if self.detached {
            // A parent that went away is noticed at "ready".
            let _ = send(&Report::Progress(words));
        } else {
            output::note(&words);
        }
    }

    /// Tells that the daemon is usable and, before a parent, leaves it. An error means that
    /// nobody waits any more: the daemon should end.
    pub(crate) fn ready(self, words: &str) -> std::io::Result<()> {
        if !self.detached {
            let mut out = std::io::stdout().lock();
            return writeln!(out, "{words}").and_then(|()| out.flush());
        }
        // The working directory must not keep a file system busy for the daemon's life.
        std::env::set_current_dir("/")?;
        rustix::process::setsid()?;
        send(&Report::Ready(words.to_owned()))?;
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(nowhere)?;
        Ok(())
    }

    /// Tells a parent, if one waits, why this will never be ready.
    pub(crate) fn failed(self, failure: &Failure) {
        if self.detached {
            let report = Report::Failed { code: failure.exit.code(), words: failure.to_string() };
            let _ = send(&report);
        }
    }
}

fn send(report: &Report) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
