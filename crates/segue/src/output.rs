//! Output for users and for scripts.
//!
//! A result goes to stdout in one write, all other text to stderr: `segue invite | ssh laptop ..`
//! carries the result only.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use segue_client::quantity;
use serde::Serialize;

use crate::exit::Failure;

/// Interval between two checks for a reader on stdout.
const LOOK: Duration = Duration::from_millis(200);

/// Writes `text` to stdout; names in it are [`printable`] already.
///
/// A reader that closed the pipe early (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_to_reader(&printable(text, &['\n', '\t'])).map(drop)
}

/// Writes `value` to stdout as one line of JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print_to_reader(&json_line(value)?).map(drop)
}

/// [`print`] for output without an end: false once the reader has closed the pipe.
pub(crate) fn print_to_reader(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::io("cannot write the result to stdout", &error)),
    }
}

/// Returns once stdout has no reader. The kernel reports this for a pipe without a write.
pub(crate) async fn reader_gone() {
    while !is_closed() {
        tokio::time::sleep(LOOK).await;
    }
}

fn is_closed() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && !polled[0].revents().is_empty()
}

/// `value` as a line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string(value)
        .map_err(|error| Failure::failed(format!("cannot write the result as JSON: {error}")))?;
    text = printable_json(&text);
    text.push('\n');
    Ok(text)
}

/// Writes one line for the user to stderr. A failure is ignored: stderr was the place to report it.
pub(crate) fn note(words: &str) {
    let _ = writeln!(io::stderr().lock(), "segue: {}", printable(&without_numbers(words), &[]));
}

/// `words` without the numbers of errors, which the standard library puts behind their names.
fn without_numbers(words: &str) -> String {
    let mut parts = words.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')').filter(|_| rest.len() < part.len()) {
            Some(rest) => plain.push_str(rest),
            None => plain.extend([" (os error ", part]),
        }
    }
    plain
}

/// [`printable`] for the name of a file.
pub(crate) fn path(path: &Path) -> String {
    printable(&path.to_string_lossy(), &[])
}

/// The object of a finding, as a prefix of its message.
pub(crate) fn place(path: Option<&str>, ino: Option<u64>) -> String {
    match (path, ino) {
        (Some(path), _) => format!("{}: ", printable(path, &[])),
        (None, Some(ino)) => format!("inode {ino} (find it with: find DIR -inum {ino}): "),
        (None, None) => String::new(),
    }
}

/// `text` with all control characters escaped but these. On a terminal a file's name could do what
/// its maker wants, and in a log it could look like another line.
pub(crate) fn printable(text: &str, kept: &[char]) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match is_control(c) && !kept.contains(&c) {
            true => printable.extend(c.escape_default()),
            false => printable.push(c),
        }
    }
    printable
}

/// [`printable`] for JSON on one line, which stays the same JSON.
pub(crate) fn printable_json(json: &str) -> String {
    let mut printable = String::with_capacity(json.len());
    for c in json.chars() {
        match is_control(c) {
            // Such a character stands in a string only.
            true => printable.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => printable.push(c),
        }
    }
    printable
}

/// True for a character that does something instead of being shown.
fn is_control(c: char) -> bool {
    // The others turn the direction of the text that follows.
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How much of a whole is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Share {
    /// The part that is done.
    pub(crate) done: u64,
    /// The whole; 0 while it is not known.
    pub(crate) whole: u64,
}

/// A line on the terminal that shows the progress of a wait. It is rewritten in place, and cut to
/// the width of the terminal.
///
/// Silent when stderr is not a terminal: a script needs only the result.
pub(crate) struct Progress {
    line: ProgressBar,
}

impl Progress {
    /// A progress line that is not shown yet.
    pub(crate) fn new() -> Progress {
        Progress::on(ProgressDrawTarget::stderr())
    }

    fn on(target: ProgressDrawTarget) -> Progress {
        Progress { line: ProgressBar::with_draw_target(None, target) }
    }

    /// Replaces the line by `words`, with a bar for the share.
    pub(crate) fn show(&mut self, words: &str, share: Share) {
        let template = match share.whole {
            0 => "segue: {wide_msg}",
            _ => "segue: {bar:16.cyan} {wide_msg}",
        };
        // Both templates are well-formed; the default style shows the same words.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.line.set_style(style);
        }
        self.line.set_length(share.whole);
        self.line.set_position(share.done.min(share.whole));
        self.line.set_message(printable(words, &[]));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

/// `words; more`, or `words` alone.
pub(crate) fn joined(words: &str, more: &str) -> String {
    if more.is_empty() { words.to_owned() } else { format!("{words}; {more}") }
}

/// How long ago a moment was, in seconds since 1970: `3 h ago`, or `never`.
pub(crate) fn ago(seconds: Option<i64>) -> String {
    let Some(then) = seconds.and_then(|seconds| u64::try_from(seconds).ok()) else {
        return "never".to_owned();
    };
    let since = SystemTime::UNIX_EPOCH + Duration::from_secs(then);
    let age = SystemTime::now().duration_since(since).unwrap_or_default();
    format!("{} ago", quantity::age(age))
}

/// Aligns `rows` under `head`: two spaces between columns, no trailing blanks.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let printable = |row: &Vec<String>| row.iter().map(|cell| printable(cell, &[])).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(printable).collect();
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{is_control, json_line, printable, table, without_numbers};

    #[test]
    fn a_name_does_nothing_to_the_terminal() {
        let name = "a\x1b[2J\nsegue: all is safe\u{202e}txt\u{9b}";
        let shown = "a\\u{1b}[2J\\nsegue: all is safe\\u{202e}txt\\u{9b}";
        assert_eq!(printable(name, &[]), shown);
        assert!(table(&["PATH"], &[vec![name.to_owned()]]).contains(shown));
        assert_eq!(printable("a\nb\tc\r", &['\n', '\t']), "a\nb\tc\\r");
        assert_eq!(printable("grün, 文", &[]), "grün, 文");
        let line = json_line(&[name]).unwrap();
        assert_eq!(serde_json::from_str::<Vec<String>>(&line).unwrap(), [name]);
        assert!(!line.trim_end_matches('\n').contains(is_control), "{line:?}");
    }

    #[test]
    fn errors_have_names_and_no_numbers() {
        let words = "/a: No such file or directory (os error 2); create it: mkdir /a";
        assert_eq!(without_numbers(words), "/a: No such file or directory; create it: mkdir /a");
        for kept in ["", "/a (os error x)", "/a (os error ", "/a (os error )"] {
            assert_eq!(without_numbers(kept), kept);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["home".to_owned(), "1".to_owned()], vec!["a".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["NAME", "ID"], &rows), "NAME  ID\nhome  1\na     22\n");
    }
}
