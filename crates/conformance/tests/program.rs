//! The program around the cases: what it says, and how it ends.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    // Relative to where it is started, as people call it.
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_segue-conformance");
    Command::new(program).args(arguments).current_dir(dir.path()).output().unwrap()
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_good_run_ends_with_success() {
    let output = run(&[".", "--filter", "unlink::counts_down"]);
    assert_eq!(last_line(&output), "1 passed, 0 failed, 0 skipped");
    assert!(output.status.success());
}

#[test]
fn a_failure_is_said_and_is_the_exit_status() {
    let output = run(&["missing", "--filter", "unlink::counts_down"]);
    assert_eq!(last_line(&output), "0 passed, 1 failed, 0 skipped");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("FAILED unlink::counts_down: "), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_skipped_is_counted() {
    let output = run(&[".", "--filter", "unlink::counts", "--skip", "unlink::counts_down"]);
    assert_eq!(last_line(&output), "0 passed, 0 failed, 1 skipped");
}

#[test]
fn the_list_needs_no_directory() {
    let output = run(&["--list", "--filter", "rename::over_it"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "rename::over_itself\n");
}

#[test]
fn json_has_every_verdict() {
    let output = run(&[".", "--filter", "unlink::counts_down", "--json"]);
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["passed"], 1);
    assert_eq!(said["cases"][0]["name"], "unlink::counts_down");
}
