//! Log lines go to stderr. The stderr of a background process is its log file.

use std::io::{self, Write};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::exit::Failure;
use crate::log_file::LogFile;
use crate::output::{printable, printable_json};

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Plain text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging, into `log` or else to stderr. `wanted` is a filter as in SEGUE_LOG (`info`,
/// `segue_client=debug`). The default is `info` for daemons and `warn` for commands.
pub(crate) fn start(
    wanted: Option<&str>,
    format: LogFormat,
    is_daemon: bool,
    log: Option<LogFile>,
) -> Result<(), Failure> {
    // What the kernel says of a packet that cannot be sent is told as the state of the link.
    let default = if is_daemon { "info,quinn_udp=error" } else { "warn,quinn_udp=error" };
    let wanted = wanted.filter(|text| !text.is_empty()).unwrap_or(default);
    let filter = EnvFilter::try_new(wanted).map_err(|error| {
        Failure::usage(format!("SEGUE_LOG '{wanted}' is not a log filter such as 'info': {error}"))
    })?;
    let log: Option<&LogFile> = log.map(|log| &*Box::leak(Box::new(log)));
    let to = move || -> Box<dyn Write> {
        match log {
            Some(log) => Box::new(log),
            None => Box::new(io::stderr()),
        }
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Lines(to(), format))
        .with_ansi(false);
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::failed(format!("cannot start logging: {error}")))
}

/// Where log lines go, each with one write. Names of files in them are as their makers wanted.
struct Lines<W>(W, LogFormat);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let (text, end) = match line {
            [text @ .., b'\n'] => (text, "\n"),
            text => (text, ""),
        };
        let text = String::from_utf8_lossy(text);
        let text = match self.1 {
            LogFormat::Text => printable(&text, &[]),
            LogFormat::Json => printable_json(&text),
        };
        let text = text + end;
        // A line that finds no room is lost. If it were an error here, tracing would print that to
        // stderr, which is the same file, and panic: a full disk would end the mount.
        self.0.write_all(text.as_bytes()).ok();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().ok();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mount ended by a panic when the disk of its log was full.
    #[test]
    fn a_full_disk_is_no_failure_of_a_log() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let mut lines = Lines(Full, LogFormat::Text);
        lines.write_all(b"a line\n").and_then(|()| lines.flush()).unwrap();
    }

    #[test]
    fn a_name_makes_no_line_of_the_log() {
        let mut lines = Lines(Vec::new(), LogFormat::Text);
        lines.write_all(b"WARN a\n2026-11-25 INFO all is safe\x1b[2J: no such file\n").unwrap();
        let expected = "WARN a\\n2026-11-25 INFO all is safe\\u{1b}[2J: no such file\n";
        assert_eq!(String::from_utf8(lines.0).unwrap(), expected);
        let mut lines = Lines(Vec::new(), LogFormat::Json);
        lines.write_all("{\"name\":\"a\u{9b}2J\"}\n".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(lines.0).unwrap(), "{\"name\":\"a\\u009b2J\"}\n");
    }
}
