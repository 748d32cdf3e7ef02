//! The benchmarks of the server's store, at a hundredth of their size and less: that they measure
//! what they say.

#![allow(clippy::unwrap_used)]

use std::fs;

use segue_bed::Bed;
use segue_bench::record::Context;
use segue_bench::store::{Plan, dense};
use serde_json::Value;

/// "Beside each test, in turns, runs its floor": every test has a figure for the server, and
/// what SQLite can do alone has one for that.
#[test]
fn the_store_is_measured_beside_sqlite_alone() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan { repeats: 1, scale: 0.01 };
    let table = plan.run(dir.path(), Context::now()).unwrap();

    let mut files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
    let lines = files.find(|path| path.extension().is_some_and(|e| e == "jsonl")).unwrap();
    let lines = fs::read_to_string(lines).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert!(line["figure"].as_f64().is_some_and(|figure| figure > 0.0), "{line}");
    }
    let tests = |system: &str| lines.iter().filter(|line| line["system"] == system).count();
    assert!(tests("segue") > 20 && tests("sqlite") > 10, "{table}");
    for row in ["| changes, one in flight | ops/s |", "| open after kill -9 | milliseconds |"] {
        assert!(table.contains(row), "{table}");
    }
}

/// "Files of 100 GB and of 8 TiB": what is sent comes back as it was, and its space as well.
#[test]
fn large_files_are_measured() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // 10 MB, in two groups of chunks.
    let table = dense::run(dir.path(), Context::now(), 0.0001).unwrap();
    for row in ["| upload | MB/s |", "| 8 TiB: delete | milliseconds |", "| disk: packs | MB |"] {
        assert!(table.contains(row), "{table}");
    }
    assert!(!table.contains("| - |"), "{table}");
}
