//! Limits of STYLE.md, "Words": of documents, and of the comments of all crates.

use std::path::{Path, PathBuf};

use super::sources;
use super::words::{self, COLUMNS_MAX, Count};

/// Documents at the root. All files of `docs` and `docs/decisions` belong to them, too.
const DOCUMENTS: [&str; 7] = [
    "README.md",
    "SEMANTICS.md",
    "ARCHITECTURE.md",
    "GLOSSARY.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];
/// Words of a sentence in a document.
const SENTENCE_MAX: usize = 30;
/// "What", "who" and "whoever" in 1,000 words of all documents.
const DOCUMENTS_SHARE_MAX: f64 = 8.0;
/// The same in all line comments. It falls with the comments, and never rises; the goal is 12.
const COMMENTS_SHARE_MAX: f64 = 18.6;
/// Lines of a decision: half a page.
const DECISION_LINES_MAX: usize = 42;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn files_of(directory: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(directory)).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    files.sort();
    files
}

/// The documents by their names below the root, with their texts.
fn documents() -> Vec<(String, String)> {
    let at_root = DOCUMENTS.iter().map(|name| root().join(name));
    let others = ["docs", "docs/decisions"].into_iter().flat_map(files_of);
    let named = at_root.chain(others).map(|path| {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}", path.display());
        });
        (path.strip_prefix(root()).unwrap().display().to_string(), text)
    });
    named.collect()
}

fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn documents_have_short_lines() {
    let long = documents().into_iter().flat_map(|(name, text)| {
        words::long_lines(&text).into_iter().map(move |line| format!("{name}:{line}"))
    });
    assert_none(&long.collect::<Vec<_>>(), "lines of documents have at most 100 columns");
}

#[test]
fn documents_have_short_sentences() {
    let mut long = Vec::new();
    for (name, text) in documents() {
        for sentence in words::sentences(&text) {
            let words = Count::of(&sentence.text).words;
            if words > SENTENCE_MAX {
                let start: String = sentence.text.chars().take(80).collect();
                long.push(format!("{name}:{}: {words} words: {start}", sentence.line));
            }
        }
    }
    assert_none(&long, "sentences of documents have at most 30 words");
}

#[test]
fn documents_name_their_subjects() {
    let counts: Vec<(String, Count)> = documents()
        .into_iter()
        .map(|(name, text)| {
            let sentences = words::sentences(&text);
            (name, sentences.iter().map(|sentence| Count::of(&sentence.text)).sum())
        })
        .collect();
    let share = counts.iter().map(|(_, count)| *count).sum::<Count>().share();
    let by_document: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name}: {:.1}", count.share())).collect();
    assert!(
        share <= DOCUMENTS_SHARE_MAX,
        "{share:.1} of 1,000 words are \"what\", \"who\" or \"whoever\":\n{}",
        by_document.join("\n")
    );
}

#[test]
fn decisions_have_half_a_page() {
    let decisions =
        files_of("docs/decisions").into_iter().filter(|path| !path.ends_with("README.md"));
    let long = decisions.filter_map(|path| {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        (lines > DECISION_LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
    });
    assert_none(&long.collect::<Vec<_>>(), "a decision has about half a page");
}

#[test]
fn sources_have_short_lines() {
    let mut long = Vec::new();
    for path in sources() {
        for (at, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                let name = path.strip_prefix(root()).unwrap_or(&path).display();
                long.push(format!("{name}:{}: {columns} columns", at + 1));
            }
        }
    }
    assert_none(&long, "lines of sources have at most 100 columns");
}

#[test]
fn comments_name_their_subjects() {
    let texts = sources().into_iter().map(|path| std::fs::read_to_string(path).unwrap());
    let share = texts.map(|text| words::comments(&text)).sum::<Count>().share();
    assert!(
        share <= COMMENTS_SHARE_MAX,
        "{share:.1} of 1,000 words of comments are \"what\", \"who\" or \"whoever\", \
         {COMMENTS_SHARE_MAX} before: name the noun"
    );
    assert!(
        share + 1.0 >= COMMENTS_SHARE_MAX,
        "only {share:.1} of 1,000 words of comments are \"what\", \"who\" or \"whoever\": \
         lower COMMENTS_SHARE_MAX from {COMMENTS_SHARE_MAX}"
    );
}
