//! Help texts at the width of the terminal: a list keeps its lines and its columns.

use clap::{Command, CommandFactory};
use terminal_size::{Width, terminal_size};

use crate::cli::Cli;

/// Columns where neither a terminal nor COLUMNS says how many.
const DEFAULT: usize = 100;
/// Longer lines are hard to read.
const MOST: usize = 100;
/// Fewer do not hold a word.
const LEAST: usize = 24;
/// How far the rest of a line without columns is indented.
const HANG: usize = 4;

/// The command line, with its help for this terminal.
pub(crate) fn command() -> Command {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = match terminal_size() {
        Some((Width(width), _)) => usize::from(width),
        None => columns().unwrap_or(DEFAULT),
    };
    let width = width.clamp(LEAST, MOST);
    fitted(Cli::command(), width).term_width(width)
}

/// Fits the lists of `command` and of all below it into `width` columns.
fn fitted(mut command: Command, width: usize) -> Command {
    if let Some(lists) = command.get_after_help().map(ToString::to_string) {
        let lines: Vec<String> = lists.lines().map(|line| fit(line, width)).collect();
        command = command.after_help(lines.join("\n"));
    }
    let names: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |below| fitted(below, width));
    }
    command
}

/// Breaks a line of a list: the rest of its last column stands below that column.
fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let (head, words) = split(line, indent);
    let column = head.chars().count();
    let (mut text, column) = match column {
        0 => (" ".repeat(indent), indent + HANG),
        // The first column leaves no room beside it.
        wide if wide > width / 2 => {
            (format!("{}\n{}", head.trim_end(), " ".repeat(indent + HANG)), indent + HANG)
        }
        fits => (head.to_owned(), fits),
    };
    let mut used = text.chars().rev().take_while(|c| *c != '\n').count();
    let mut is_first = true;
    for word in words.split_whitespace() {
        let len = word.chars().count();
        if !is_first && used + 1 + len > width {
            text.push('\n');
            text.push_str(&" ".repeat(column));
            used = column;
            is_first = true;
        }
        if !is_first {
            text.push(' ');
            used += 1;
        }
        text.push_str(word);
        used += len;
        is_first = false;
    }
    text
}

/// The line up to its second column, and what stands there; nothing, and the line, if it has one.
fn split(line: &str, indent: usize) -> (&str, &str) {
    let Some(gap) = line.get(indent..).and_then(|rest| rest.find("  ")) else { return ("", line) };
    let from = indent + gap;
    let blanks = line.get(from..).map_or(0, |rest| rest.len() - rest.trim_start().len());
    line.split_at_checked(from + blanks).unwrap_or(("", line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_stays_in_its_column() {
        let line = "  ro      refuse all changes of this mount";
        assert_eq!(fit(line, 60), line);
        let broken = "  ro      refuse all\n          changes of\n          this mount";
        assert_eq!(fit(line, 22), broken);
    }

    #[test]
    fn a_wide_first_column_stands_alone() {
        let line = "  segue mount segue://server/home ~/home      later mounts of this";
        assert_eq!(
            fit(line, 44),
            "  segue mount segue://server/home ~/home\n      later mounts of this"
        );
    }

    #[test]
    fn a_line_without_columns_is_broken_at_words() {
        let line = "  one two three four five";
        assert_eq!(fit(line, 16), "  one two three\n      four five");
        assert_eq!(fit("segue://a-word-that-is-too-long", 24), "segue://a-word-that-is-too-long");
    }
}
