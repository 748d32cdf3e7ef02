//! SEMANTICS.md and the tests agree: each statement has a test that proves it, or is untested.
//!
//! A test names statements in a line of its doc comment: `/// Proves S3.2, S3.5.` A checker of the
//! simulator names them in its module's documentation.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENT: &str = "SEMANTICS.md";
const UNTESTED: &str = "*untested*";
const UNTESTED_MAX: usize = 10;

/// Section and statement: S3.2 is `(3, 2)`.
type Number = (u32, u32);

/// A statement of the document.
struct Statement {
    number: Number,
    line: usize,
    is_untested: bool,
}

fn number(text: &str) -> Option<Number> {
    let (section, statement) = text.strip_prefix('S')?.split_once('.')?;
    Some((section.parse().ok()?, statement.parse().ok()?))
}

fn shown((section, statement): Number) -> String {
    format!("S{section}.{statement}")
}

/// The statements of a document, in its order. Each begins a list item or a table row.
fn statements(document: &str) -> Vec<Statement> {
    let mut found: Vec<Statement> = Vec::new();
    for (line, text) in (1..).zip(document.lines()) {
        let bold = text.strip_prefix("* **").or_else(|| text.strip_prefix("| **"));
        let named = bold.and_then(|bold| number(bold.split_once("**")?.0));
        found.extend(named.map(|number| Statement { number, line, is_untested: false }));
        if let Some(last) = found.last_mut() {
            last.is_untested |= text.contains(UNTESTED);
        }
    }
    found
}

/// The numbers in a line that names statements, `None` for each that is none.
fn proved(line: &str) -> Option<Vec<Option<Number>>> {
    let text = line.trim_start();
    let comment = text.strip_prefix("/// ").or_else(|| text.strip_prefix("//! "))?;
    let list = comment.strip_prefix("Proves ").filter(|list| list.starts_with('S'))?;
    Some(list.strip_suffix('.').unwrap_or_default().split(", ").map(number).collect())
}

/// Where each number is named in sources, by path, and lines that do not have the form.
fn proofs(sources: &[(String, String)]) -> (BTreeMap<Number, Vec<String>>, Vec<String>) {
    let (mut proofs, mut faults) = (BTreeMap::<Number, Vec<String>>::new(), Vec::new());
    for (path, text) in sources {
        for (line, text) in (1..).zip(text.lines()) {
            let place = format!("{path}:{line}");
            for number in proved(text).into_iter().flatten() {
                match number {
                    Some(number) => proofs.entry(number).or_default().push(place.clone()),
                    None => faults.push(format!("{place}: not of the form `Proves S3.2, S3.5.`")),
                }
            }
        }
    }
    (proofs, faults)
}

/// Everything on which document and sources do not agree.
fn faults(document: &str, sources: &[(String, String)]) -> Vec<String> {
    let (proofs, mut faults) = proofs(sources);
    let (mut known, mut untested) = (BTreeSet::new(), Vec::new());
    for Statement { number, line, is_untested } in statements(document) {
        let (place, name) = (format!("{DOCUMENT}:{line}"), shown(number));
        if !known.insert(number) {
            faults.push(format!("{place}: {name} is defined twice"));
        } else if known.last() != Some(&number) {
            faults.push(format!("{place}: {name} is out of order"));
        }
        match (proofs.get(&number), is_untested) {
            (None, false) => faults.push(format!("{place}: no test proves {name}")),
            (Some(at), true) => {
                faults.push(format!("{place}: {name} is proved at {at:?}, and marked {UNTESTED}"));
            }
            _ => {}
        }
        untested.extend(is_untested.then_some(name));
    }
    for (number, places) in proofs.iter().filter(|(number, _)| !known.contains(*number)) {
        faults.push(format!("{places:?}: {DOCUMENT} has no {}", shown(*number)));
    }
    if untested.len() > UNTESTED_MAX {
        faults.push(format!("{DOCUMENT}: more than {UNTESTED_MAX} are {UNTESTED}: {untested:?}"));
    }
    faults
}

/// Every Rust file below `directory`.
fn sources(directory: PathBuf) -> Vec<(String, String)> {
    let (mut found, mut directories) = (Vec::new(), vec![directory]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn every_statement_has_a_test_or_says_that_it_has_none() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let document = fs::read_to_string(crates.join("..").join(DOCUMENT)).unwrap();
    assert!(statements(&document).len() > 100, "the statements are not where this test looks");
    let faults = faults(&document, &sources(crates.to_owned()));
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_disagreement_is_found() {
    let document = "Not **S1.9**.\n* **S1.1** Proved.\n* **S1.2** Two\n  lines. *untested*\n";
    let source = |text: &str| vec![("a.rs".to_owned(), text.to_owned())];
    let good = "    /// Proves S1.1.\n//! Proves nothing.\nlet a = \"/// Proves S1.7.\";\n";
    assert_eq!(faults(document, &source(good)), Vec::<String>::new());
    let is_found = |more: &str, text: &str, fault: &str| {
        let found = faults(&format!("{document}{more}"), &source(text));
        assert!(found.iter().any(|found| found.contains(fault)), "{fault:?} is not in {found:#?}");
    };
    is_found("* **S1.1** Again.\n", "/// Proves S1.1.", "SEMANTICS.md:5: S1.1 is defined twice");
    is_found("* **S0.9** Late.\n", "", "SEMANTICS.md:5: S0.9 is out of order");
    is_found("| **S1.10** | row |\n", "/// Proves S1.1.", "SEMANTICS.md:5: no test proves S1.10");
    is_found("", "//! Proves S1.1, S1.2.", "SEMANTICS.md:3: S1.2 is proved at [\"a.rs:1\"]");
    is_found("", "\n/// Proves S1.1, S7.3.", "[\"a.rs:2\"]: SEMANTICS.md has no S7.3");
    is_found("", "/// Proves S1.1 and S1.2.", "a.rs:1: not of the form");
    is_found("", "/// Proves S1.1", "a.rs:1: not of the form");
    let many: String = (3..13).map(|n| format!("* **S1.{n}** {UNTESTED}\n")).collect();
    is_found(&many, "", "more than 10 are *untested*");
}
