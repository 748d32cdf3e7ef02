//! The index of the results agrees with them.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use segue_bench::index::{FILE, index, overfull};

fn results() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results"))
}

#[test]
fn the_index_is_made_of_the_results_that_are_here() {
    let committed = fs::read_to_string(results().join(FILE)).unwrap();
    let made = index(&results()).unwrap();
    assert!(committed == made, "not up to date: run `segue-bench index`\n{made}");
}

#[test]
fn at_most_two_runs_of_an_experiment_stay() {
    assert_eq!(overfull(&results()).unwrap(), [""; 0], "remove older runs: git keeps them");
}
