//! What every command answers to wrong input, word for word, in `answers.golden`. It is read in
//! review as a text: each answer says what failed, on which thing, why, and what to do.
//!
//! `SEGUE_RECORD=1 cargo test -p segue --test answers` writes the file anew.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// One command line each; `~` is the home directory, with a file, an empty directory `empty`, and a
/// directory `full`.
const WRONG: &[&str] = &[
    "nosuch",
    "mount",
    "mount segue://server/home",
    "mount segue://server ~/empty",
    "mount nfs://server/home ~/empty",
    "mount segue://server:0/home ~/empty",
    "mount segue://ser..ver!/home ~/empty",
    "mount segue://server/a/b ~/empty",
    "mount segue://server/home?invite=x ~/empty",
    "mount segue://server/home ~/none",
    "mount segue://server/home ~/file",
    "mount segue://server/home ~/full",
    "mount segue://server/home ~/empty",
    "mount segue://server/home ~/empty -o nosuch",
    "mount segue://server/home ~/empty -o prefetch=on",
    "mount segue://server/home ~/empty -o cache-size=5",
    "mount segue://server/home ~/empty -o cache-size=5K",
    "mount segue://server/home ~/empty -o grace=5",
    "mount segue://server/home ~/empty -o bwlimit=fast",
    "mount segue://server/home ~/empty -o write-back=later",
    "mount segue://server/home ~/empty -o fsync=never",
    "mount segue://server/home ~/empty -o uid=me",
    "umount",
    "umount ~/none",
    "umount ~/empty",
    "umount ~/empty --timeout 5",
    "status ~/none",
    "status ~/empty",
    "sync ~/none",
    "sync ~/empty",
    "sync ~/file --timeout 5x",
    "sync --level moon",
    "where",
    "where ~/none",
    "where ~/file",
    "why ~/none",
    "why ~/file",
    "log ~/none",
    "log ~/empty",
    "persist",
    "persist ~/none --lm sync",
    "persist ~/file --lm sync",
    "persist ~/file --lm later",
    "persist ~/file --lm delay:99d",
    "push ~/none",
    "push ~/file",
    "watch ~/none",
    "watch ~/file",
    "watch ~/empty",
    "conflicts ~/none",
    "conflicts ~/empty",
    "resolve ~/none",
    "resolve --ours ~/none",
    "resolve --ours ~/file",
    "bwlimit ~/none",
    "bwlimit ~/empty 1M",
    "bwlimit ~/empty fast",
    "recover ~/none",
    "recover ~/file",
    "recover ~/empty",
    "metrics ~/empty",
    "serve --listen here",
    "serve --data ~/file",
    "serve --data ~/full",
    "serve --stop",
    "serve --stop --data ~/none",
    "invite --data ~/none",
    "invite --ttl 5",
    "invite --role king",
    "volume list --data ~/full",
    "volume check --rate 50",
    "volume set home",
    "volume set home --quota 20",
    "volume set home --quota 99999999T",
    "volume backup home",
    "volume backup home ~/none --list",
    "volume backup home ~/full --list",
    "volume restore home ~/none",
    "identity revoke",
    "identity list --data ~/none",
    "completions tcsh",
];

#[test]
fn wrong_input_is_answered_as_in_the_golden_file() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path().to_str().unwrap();
    for directory in ["empty", "full"] {
        fs::create_dir(home.path().join(directory)).unwrap();
    }
    fs::write(home.path().join("file"), "text").unwrap();
    fs::write(home.path().join("full/file"), "text").unwrap();
    let answer = |line: &&str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        for (name, _) in std::env::vars() {
            if name.starts_with("SEGUE_") || name.starts_with("XDG_") {
                command.env_remove(name);
            }
        }
        command.args(line.split(' ').map(|word| word.replace('~', at)));
        command.env("HOME", at).env("COLUMNS", "100").stdin(Stdio::null());
        let ended = command.output().unwrap();
        let words = String::from_utf8(ended.stderr).unwrap().replace(at, "~");
        assert!(ended.stdout.is_empty(), "{line}: {}", String::from_utf8_lossy(&ended.stdout));
        assert!(!words.contains("(os error") && !words.contains("panicked"), "{line}: {words}");
        format!("$ segue {line}\n[exit {}]\n{words}\n", ended.status.code().unwrap())
    };
    let found: String = WRONG.iter().map(answer).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers.golden");
    if std::env::var_os("SEGUE_RECORD").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    for (found, golden) in found.lines().zip(golden.lines()) {
        assert_eq!(found, golden, "see the top of this file");
    }
    assert_eq!(found.len(), golden.len());
}
