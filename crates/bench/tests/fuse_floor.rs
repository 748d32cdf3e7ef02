//! `segue-bench run fuse-floor`, at a hundredth of the standard size.
//!
//! The experiment itself compares each mirror with its source, byte by byte, and fails if they
//! differ; so that every figure is there says that every mirror is right.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use segue_bed::Bed;
use segue_bench::fuse_floor;
use serde_json::Value;

const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

fn fuse_floor(peers: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue-bench"));
    command
        .args(["run", "fuse-floor", "--dirty", "--repeat", "1", "--scale", "0.01", "--out"])
        .arg(out);
    for peer in peers {
        command.args(["--peer", peer]);
    }
    command.output().unwrap()
}

fn read(out: &Path, extension: &str) -> String {
    let mut files = fs::read_dir(out).unwrap().map(|file| file.unwrap().path());
    let named = files.find(|path| path.extension().is_some_and(|e| e == extension));
    fs::read_to_string(named.unwrap()).unwrap()
}

#[test]
fn every_file_system_mirrors_its_source_and_has_its_figures() {
    if Bed::for_test().is_none() {
        return;
    }
    let uring = fs::read_to_string(ENABLE_URING).unwrap_or_default();
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<&str> = fuse_floor::ALL.iter().map(|variant| variant.name).collect();
    let output = fuse_floor(&names, dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");

    let lines = read(dir.path(), "jsonl");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tests = lines.iter().filter(|line| line["system"] == "ext4").count();
    assert!(tests > 30, "{tests}");
    assert_eq!(lines.len(), tests * names.len());
    for line in &lines {
        // The one that is not ours: it may not be installed, and has no extended attributes.
        let may_lack = line["system"] == "libfuse";
        let is_there = line["figure"].as_f64().is_some_and(|figure| figure > 0.0);
        let has_reason = line["error"].as_str().is_some_and(|error| !error.is_empty());
        assert!(is_there || may_lack && has_reason, "{line}");
    }
    let table = read(dir.path(), "md");
    assert!(table.contains("| create, write 1 KB, close, unlink | files/s |"), "{table}");
    assert!(table.contains("| READ 1 MB | microseconds |"), "{table}");
    assert!(read(dir.path(), "svg").ends_with("</svg>\n"));
    assert_eq!(fs::read_to_string(ENABLE_URING).unwrap_or_default(), uring);
}

#[test]
fn a_file_system_that_is_not_known_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!fuse_floor(&["sshfs"], dir.path()).status.success());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
