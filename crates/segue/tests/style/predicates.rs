//! Functions named like questions answer and do nothing else (STYLE.md, "Words").
//!
//! A function whose name begins with `is_`, `was_`, `has_` or `are_` returns a `bool`, or a
//! `Result` or an `Option` of one where asking can fail, and takes no `&mut self`. The test reads
//! text, not syntax: a declaration begins a line, and its signature may span several.

use super::sources;

const QUESTIONS: [&str; 4] = ["is_", "was_", "has_", "are_"];
/// Words that may stand before `fn`.
const MODIFIERS: [&str; 8] = ["pub", "crate", "super", "self", "in", "async", "const", "unsafe"];

/// The text behind `fn`, if the line declares a function that is named like a question.
fn declared(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_separator = |c: char| c.is_whitespace() || "():".contains(c);
    let mut words = before.split(is_separator).filter(|word| !word.is_empty());
    let is_question = QUESTIONS.iter().any(|question| rest.starts_with(question));
    (is_question && words.all(|word| MODIFIERS.contains(&word))).then_some(rest)
}

/// The bytes up to the first `end` outside of all brackets.
fn until(text: &str, end: &[char]) -> usize {
    let (mut depth, mut last) = (0, ' ');
    for (at, c) in text.char_indices() {
        if depth == 0 && end.contains(&c) {
            return at;
        }
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if last != '-' && last != '=' => depth -= 1,
            _ => {}
        }
        last = c;
    }
    text.len()
}

/// The arguments and the returned type of a signature, of which `text` is the part behind `fn`.
fn parts(text: &str) -> (&str, String) {
    let (_, arguments) = text.split_at(until(text, &['(']));
    let arguments = arguments.strip_prefix('(').unwrap_or("");
    let (arguments, returned) = arguments.split_at(until(arguments, &[')']));
    let returned = returned.strip_prefix(')').unwrap_or("").trim_start();
    let returned = returned.strip_prefix("->").unwrap_or("");
    let returned = returned.split_at(until(returned, &['{', ';'])).0;
    let returned = returned.split_whitespace().take_while(|word| *word != "where");
    (arguments, returned.collect::<Vec<_>>().join(" "))
}

fn is_answer(returned: &str) -> bool {
    let Some((outer, inner)) = returned.split_once('<') else { return returned == "bool" };
    let outer = outer.rsplit("::").next();
    let inner = inner.split([',', '>']).next().unwrap_or("");
    outer.is_some_and(|outer| ["Result", "Option"].contains(&outer)) && inner.trim() == "bool"
}

fn has_changing_receiver(arguments: &str) -> bool {
    let first = arguments.split(',').next().unwrap_or("");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let words: Vec<&str> = first.split(|c| !is_word(c)).collect();
    words.contains(&"mut") && ["self", "Self"].iter().any(|receiver| words.contains(receiver))
}

/// Functions of `text` that are named like questions and are none: their lines and names.
fn faults(text: &str) -> Vec<(usize, &str)> {
    let mut faults = Vec::new();
    let mut rest = text;
    for (number, line) in text.lines().enumerate() {
        if let Some(declared) = declared(line) {
            let begin = line.len() - declared.len();
            let (arguments, returned) = parts(&rest[begin..]);
            if !is_answer(&returned) || has_changing_receiver(arguments) {
                let is_end = |c: char| !c.is_alphanumeric() && c != '_';
                faults.push((number + 1, declared.split(is_end).next().unwrap_or("")));
            }
        }
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    faults
}

#[test]
fn functions_named_like_questions_only_answer() {
    let mut found = Vec::new();
    for path in sources() {
        let text = std::fs::read_to_string(&path).unwrap();
        for (line, name) in faults(&text) {
            found.push(format!("{}:{line}: {name}", path.display()));
        }
    }
    assert!(found.is_empty(), "these act, or return no bool; use a verb:\n{}", found.join("\n"));
}

#[test]
fn acting_questions_are_found() {
    let bad = [
        "fn is_back(&mut self, seq: u64) {}",
        "    pub fn was_sent(&mut self) -> bool { true }",
        "pub(crate) fn is_clear(&self) -> io::Result<()> {",
        "    pub(in super::super) async fn has_room(&self) -> Option<(usize, usize)> {",
        "pub const fn are_same(&self, one: &Attr) -> Result<Are, Refusal>;",
        "fn is_tidy<T: Fn(u64) -> bool>(txn: &mut T) -> Result<(), Fault<T::Error>>",
        "fn is_done(&self, wanted: impl Fn(&[u8]) -> bool) {",
        "fn is_own(mut self) -> bool {",
        "fn has_left(self: Pin<&mut Self>) -> bool {",
        "fn is_one(&'a mut self) -> bool {",
        "fn is_many(\n    &mut self,\n    seq: u64,\n) -> bool {",
        "fn are_others(\n    &self,\n    wanted: impl Fn(&[u8]) -> bool,\n) -> Result<()> {",
    ];
    for text in bad {
        assert_eq!(faults(&format!("\n{text}\n")).len(), 1, "{text}");
        assert_eq!(faults(&format!("\n{text}\n"))[0].0, 2, "{text}");
    }
}

#[test]
fn questions_that_only_answer_pass() {
    let good = [
        "fn is_back(&self) -> bool {",
        "pub fn is_back(seq: u64, items: &mut Vec<u64>) -> bool {",
        "fn is_gone<T: Fn() -> u64>(mut tree: Tree<'_, T>) -> Result<bool, Fault<T::Error>> {",
        "fn has_room(&self, more: u64) -> io::Result<bool>;",
        "fn was_left(&self) -> Option<bool>",
        "fn is_sure<T>(&self) -> bool\nwhere\n    T: Fn() -> u64,\n{",
        "fn is_many(\n    &self,\n    seq: u64,\n) -> bool {",
        "// fn is_back(&mut self) {",
        "let text = \"fn is_back(&mut self) {\";",
        "fn mark_sent(&mut self) {",
        "fn issue(&mut self) {",
        "fn is_same((one, other): (Attr, Attr)) -> bool {",
    ];
    for text in good {
        assert_eq!(faults(text), [], "{text}");
    }
}
