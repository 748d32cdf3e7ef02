//! Counts words of documents and comments, for the limits of STYLE.md, "Words".
//!
//! The prose of a document is its text without code blocks, inline code, link targets and
//! addresses. Headings are left out. A list item and a cell of a table begin a sentence.

use std::iter::Sum;

/// The longest line of a document or source, in characters.
pub(super) const COLUMNS_MAX: usize = 100;
/// Pronouns that often stand in place of a noun.
const PRONOUNS: [&str; 3] = ["what", "who", "whoever"];

/// Numbers of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Count {
    pub(super) words: usize,
    /// Words of [`PRONOUNS`].
    pub(super) pronouns: usize,
}

impl Count {
    /// Counts the words of `text`.
    pub(super) fn of(text: &str) -> Count {
        let mut count = Count::default();
        for word in words(text) {
            count.words += 1;
            count.pronouns += usize::from(PRONOUNS.contains(&word.to_lowercase().as_str()));
        }
        count
    }

    /// Pronouns in 1,000 words.
    pub(super) fn share(self) -> f64 {
        1_000.0 * self.pronouns as f64 / self.words.max(1) as f64
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Count {
        counts.fold(Count::default(), |sum, count| Count {
            words: sum.words + count.words,
            pronouns: sum.pronouns + count.pronouns,
        })
    }
}

/// A sentence, and the line on which its paragraph begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sentence {
    pub(super) line: usize,
    pub(super) text: String,
}

/// A paragraph, and its first line.
#[derive(Default)]
struct Paragraph {
    line: usize,
    text: String,
}

/// Returns the words of `text`: a letter or digit, and the letters, digits and signs behind it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_inner = |c: char| c.is_alphanumeric() || "_'./-".contains(c);
    text.split(move |c| !is_inner(c))
        .map(|word| {
            let word = word.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
            word.trim_end_matches(['\'', '.', '/', '-'])
        })
        .filter(|word| !word.is_empty())
}

/// Returns the sentences of a document.
pub(super) fn sentences(document: &str) -> Vec<Sentence> {
    let prose = paragraphs(document).into_iter().flat_map(|Paragraph { line, text }| {
        let split = split(&plain(&text));
        split.into_iter().map(move |text| Sentence { line, text })
    });
    prose.collect()
}

/// Returns the lines of a document that are too long, except code blocks and rows of tables.
pub(super) fn long_lines(document: &str) -> Vec<usize> {
    let mut is_code = false;
    let mut long = Vec::new();
    for (at, line) in document.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let is_exempt = is_code || is_fence || line.trim_start().starts_with('|');
        if !is_exempt && line.chars().count() > COLUMNS_MAX {
            long.push(at + 1);
        }
    }
    long
}

/// Returns the words of all line comments of a source.
pub(super) fn comments(source: &str) -> Count {
    let lines = source.lines().map(str::trim_start).filter(|line| line.starts_with("//"));
    lines.map(|line| Count::of(line.trim_start_matches(['/', '!']))).sum()
}

fn paragraphs(document: &str) -> Vec<Paragraph> {
    let mut all = vec![Paragraph::default()];
    let mut is_code = false;
    for (at, line) in document.lines().enumerate() {
        let is_inside = all.last().is_some_and(|paragraph| !paragraph.text.is_empty());
        let text = line.trim();
        if text.starts_with("```") {
            is_code = !is_code;
            all.push(Paragraph::default());
            continue;
        }
        if is_code || line.starts_with("    ") && !is_inside {
            continue;
        }
        if text.is_empty() || text.starts_with('#') {
            all.push(Paragraph::default());
        } else if let Some(cells) = text.strip_prefix('|') {
            let cells = cells.split('|').map(|cell| cell.trim().to_owned());
            all.extend(cells.map(|text| Paragraph { line: at + 1, text }));
            all.push(Paragraph::default());
        } else {
            let item = item(text);
            if item.is_some() {
                all.push(Paragraph::default());
            }
            add(&mut all, at + 1, item.unwrap_or(text));
        }
    }
    all.retain(|paragraph| !paragraph.text.is_empty());
    all
}

fn add(all: &mut [Paragraph], line: usize, text: &str) {
    let Some(paragraph) = all.last_mut() else { return };
    if paragraph.text.is_empty() {
        paragraph.line = line;
    } else {
        paragraph.text.push(' ');
    }
    paragraph.text.push_str(text);
}

/// Returns the text of a list item.
fn item(line: &str) -> Option<&str> {
    let (mark, text) = line.split_once(' ')?;
    let is_number = |mark: &str| !mark.is_empty() && mark.bytes().all(|b| b.is_ascii_digit());
    let is_item = ["*", "+", "-"].contains(&mark) || mark.strip_suffix('.').is_some_and(is_number);
    is_item.then_some(text)
}

/// Puts `X` in place of inline code and addresses, and removes the targets of links.
fn plain(text: &str) -> String {
    let text = replace(text, "`", "`", "X");
    let text = replace(&text, "](", ")", "]");
    let is_address = |word: &str| word.contains("http://") || word.contains("https://");
    let words = text.split_whitespace().map(|word| if is_address(word) { "X" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Replaces each part of `text` from `begin` to the next `end`.
fn replace(text: &str, begin: &str, end: &str, with: &str) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(begin) {
        let Some((_, after)) = behind.split_once(end) else { break };
        replaced.push_str(before);
        replaced.push_str(with);
        rest = after;
    }
    replaced + rest
}

/// Splits a paragraph behind each sign that ends a clause, if a capital or a mark follows.
fn split(paragraph: &str) -> Vec<String> {
    let mut all: Vec<String> = vec![String::new()];
    let mut words = paragraph.split(' ').peekable();
    while let Some(word) = words.next() {
        let Some(last) = all.last_mut() else { break };
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
        let is_end =
            word.trim_end_matches([')', '*', '"', ']']).ends_with(['.', '!', '?', ';', ':']);
        let begins =
            |word: &&str| word.starts_with(|c: char| c.is_ascii_uppercase() || "*`[(".contains(c));
        if is_end && words.peek().is_some_and(begins) {
            all.push(String::new());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(document: &str) -> Vec<usize> {
        sentences(document).iter().map(|sentence| Count::of(&sentence.text).words).collect()
    }

    #[test]
    fn words_have_signs_inside_and_none_at_the_end() {
        let found: Vec<&str> = words("The host's `a/b.rs`, 2.5 KB - well-known; who?").collect();
        assert_eq!(found, ["The", "host's", "a/b.rs", "2.5", "KB", "well-known", "who"]);
    }

    #[test]
    fn a_text_with_nouns_has_no_pronoun_in_their_place() {
        let good = "A file that another process unlinked keeps its unsent data. A holder waits.";
        assert_eq!(Count::of(good).pronouns, 0);
    }

    #[test]
    fn pronouns_are_counted_wherever_they_stand() {
        let bad = "What nobody can send is not taken. Whoever waits knows who, and what.";
        assert_eq!(Count::of(bad), Count { words: 13, pronouns: 4 });
        assert!((Count::of(bad).share() - 307.7).abs() < 0.1);
    }

    #[test]
    fn a_sentence_ends_at_a_sign_before_a_capital() {
        let document =
            "Two words (see\nbelow). **Bold ends.** `code` begins, e.g. this one: A\nclause.";
        assert_eq!(lengths(document), [4, 2, 5, 2]);
    }

    #[test]
    fn a_long_sentence_is_found_with_the_line_of_its_paragraph() {
        let long = vec!["word"; 31].join(" ");
        let document = format!("# Title\n\nShort one.\n\n{long}\n");
        let found = sentences(&document);
        assert_eq!(lengths(&document), [2, 31]);
        assert_eq!(found.last().map(|sentence| sentence.line), Some(5));
    }

    #[test]
    fn items_and_cells_begin_sentences_and_code_is_none() {
        let document = "Lead in\n* one item\n  goes on\n2. second\n\n| a cell | another |\n\
                        |---|---|\n\
                        ```\nwhat is code is left out\n```\n\n    so is what is indented\n";
        assert_eq!(lengths(document), [2, 4, 1, 2, 1, 0, 0]);
    }

    #[test]
    fn links_and_inline_code_count_as_one_word_each() {
        assert_eq!(
            lengths("See [the text](docs/who/what.md), https://example.org/what `who is it`."),
            [5]
        );
    }

    #[test]
    fn long_lines_are_prose_only() {
        let long = "x".repeat(COLUMNS_MAX + 1);
        let document = format!("{long}\n| {long} |\n```\n{long}\n```\n{}\n", &long[1..]);
        assert_eq!(long_lines(&document), [1]);
    }

    #[test]
    fn comments_are_lines_that_begin_with_slashes() {
        let source =
            "//! What it is.\nfn what() {} // what\n    /// Who asks.\n    // Three more words.\n";
        assert_eq!(comments(source), Count { words: 8, pronouns: 2 });
    }
}
