//! One word names one type (STYLE.md, "Words"): words that once had several types each.

use std::collections::BTreeMap;

use super::sources;

const WORDS: [&str; 8] =
    ["Ahead", "Found", "Lane", "Link", "Place", "Session", "Through", "Waiting"];

/// The name of the type that the line defines, if it defines one.
fn defined(line: &str) -> Option<&str> {
    let is_separator = |c: char| c.is_whitespace() || "():<{;=".contains(c);
    let mut words = line.split(is_separator).filter(|word| !word.is_empty());
    let kind = words.find(|word| !["pub", "crate", "super", "self", "in", "unsafe"].contains(word));
    ["struct", "enum", "union", "type", "trait"].contains(&kind?).then(|| words.next())?
}

#[test]
fn one_word_names_one_type() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = defined(line).filter(|word| WORDS.contains(word)) {
                let place = format!("{}:{}", path.display(), number + 1);
                places.entry(word.to_owned()).or_default().push(place);
            }
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "find another noun for all but one: {places:#?}");
}

#[test]
fn definitions_are_found() {
    assert_eq!(defined("pub(crate) struct Lane {"), Some("Lane"));
    assert_eq!(defined("pub(in super::super) enum Found<R> {"), Some("Found"));
    assert_eq!(defined("    type Place = (Ino, Name);"), Some("Place"));
    assert_eq!(defined("struct Waiting(Arc<AtomicUsize>);"), Some("Waiting"));
    assert_eq!(defined("pub trait Session: Send {"), Some("Session"));
    assert_eq!(defined("struct Through;"), Some("Through"));
    assert_eq!(defined("// struct Lane {"), None);
    assert_eq!(defined("use super::Lane;"), None);
    assert_eq!(defined("    Link {"), None);
}
