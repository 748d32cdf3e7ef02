//! `segue-bench run`, at a hundredth of the standard size.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use segue_bed::Bed;
use serde_json::Value;

fn segue_bench(args: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_segue-bench"));
    command.arg("run").args(args).args(["--dirty", "--scale", "0.01", "--out"]).arg(out);
    // So that `segue` is found nowhere: these tests are of the bench.
    command.env("SEGUE_BIN", "/nonexistent/segue").output().unwrap()
}

fn result(out: &Path, extension: &str) -> String {
    let files: Vec<PathBuf> = fs::read_dir(out).unwrap().map(|f| f.unwrap().path()).collect();
    let named = files.iter().find(|path| path.extension().is_some_and(|e| e == extension));
    fs::read_to_string(named.unwrap()).unwrap()
}

fn lines(out: &Path) -> Vec<Value> {
    result(out, "jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_workload_runs_on_every_peer() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let peers = ["local", "fuse-floor", "sshfs", "rclone"];
    let mut args = vec!["all", "--repeat", "1", "--rates", "4096", "--rtt", "2", "--limit", "60"];
    peers.iter().for_each(|peer| args.extend(["--peer", peer]));
    let output = segue_bench(&args, dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");

    let lines = lines(dir.path());
    assert_eq!(lines.len(), 7 * peers.len());
    for line in &lines {
        assert!(line["seconds"].as_f64().is_some_and(|s| s > 0.0), "{line}");
        let writes = line["workload"] != "warm-read" && line["workload"] != "stat-storm";
        assert_eq!(line["until_server_seconds"].is_f64(), writes, "{line}");
        assert_eq!(line["restarted_seconds"].is_f64(), !writes, "{line}");
        if line["workload"] == "untar" && line["remote"] == true {
            // At this scale the tar brings 300 KB, and nobody here compresses.
            assert!(line["sent_bytes"].as_u64().unwrap() > 200_000, "{line}");
        }
        if line["remote"] == false {
            assert_eq!(line["sent_bytes"], 0, "{line}");
        }
    }
    let table = result(dir.path(), "md");
    assert!(table.contains("| untar | 4096 KB/s, 2 ms | rclone |"), "{table}");
    assert!(result(dir.path(), "svg").ends_with("</svg>\n"));
}

#[test]
fn a_file_system_that_fails_is_reported_with_its_reason() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["small-files", "--peer", "segue", "--peer", "local", "--repeat", "2"];
    assert!(segue_bench(&args, dir.path()).status.success());
    let lines = lines(dir.path());
    let order: Vec<_> = lines.iter().map(|line| line["file_system"].as_str().unwrap()).collect();
    assert_eq!(order, ["segue", "local", "segue", "local"]);
    assert!(lines[0]["error"].as_str().unwrap().contains("segue"), "{}", lines[0]);
    let table = result(dir.path(), "md");
    assert!(table.contains("* small-files, unlimited, segue failed: "), "{table}");
}

#[test]
fn a_question_is_timed_beside_bulk_of_the_transport() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["atp-latency", "--peer", "segue", "--rates", "2048.5", "--rtts", "2"];
    let args = [&args[..], &["--queues", "0.4", "--directions", "both", "--repeat", "1"]].concat();
    let output = segue_bench(&args, dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let lines = lines(dir.path());
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line["calls"].as_u64().is_some_and(|calls| calls >= 60), "{line}");
    for share in ["up_share", "down_share"] {
        assert!(line[share].as_f64().is_some_and(|share| share > 0.0 && share < 1.0), "{line}");
    }
    let table = result(dir.path(), "md");
    assert!(table.contains("| segue | 2048.5 | 2 | 0.4 | both | "), "{table}");
}

#[test]
fn nothing_is_lost_on_a_link_that_changes() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = segue_bench(&["train", "--repeat", "1"], dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let lines = lines(dir.path());
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    for count in ["acknowledged", "fetched", "connections"] {
        assert!(line[count].as_u64().is_some_and(|count| count > 0), "{line}");
    }
    assert_eq!(line["arrived"], line["acknowledged"], "{line}");
    assert_eq!((&line["damaged"], &line["failed"]), (&0.into(), &0.into()), "{line}");
    assert!(result(dir.path(), "svg").ends_with("</svg>\n"));
}

#[test]
fn modeless_and_modal_adaptation_are_compared() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = segue_bench(&["mfs-fig2", "--repeat", "1"], dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let lines = lines(dir.path());
    let names: Vec<_> = lines.iter().map(|line| line["application"].as_str().unwrap()).collect();
    assert_eq!(names, ["modeless", "modal", "modal, even"]);
    for line in &lines {
        assert!(line["message_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{line}");
    }
    assert!(result(dir.path(), "md").contains("times what modal does"));
}

#[test]
fn grep_and_write_contend_on_two_beds_at_once() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["mfs-fig4", "--configurations", "sshfs,local", "--tests", "GW", "--rates", "4096"];
    let args = [&args[..], &["--repeat", "2", "--beds", "2", "--limit", "60"]].concat();
    let output = segue_bench(&args, dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let lines = lines(dir.path());
    assert_eq!(lines.len(), 4, "{said}");
    for line in &lines {
        for time in ["foreground_seconds", "background_seconds", "log_empty_seconds"] {
            assert!(line[time].as_f64().is_some_and(|seconds| seconds > 0.0), "{line}");
        }
        // A file of 1 MB of noise, and nobody makes that smaller.
        let is_sent = line["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20);
        assert_eq!(is_sent, line["system"] == "sshfs", "{line}");
    }
    assert!(result(dir.path(), "md").contains("| 4096 | GW | sshfs | "));
}

#[test]
fn every_part_of_every_test_is_a_row() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["mfs-table2", "--configurations", "close-uniform", "--tests", "RW"];
    let args = [&args[..], &["--rates", "1024", "--repeat", "1"]].concat();
    assert!(segue_bench(&args, dir.path()).status.success());
    // Segue is not found here, which is a result; the local disk needs none.
    let table = result(dir.path(), "md");
    for row in ["| RW | read | - | - | ", "| RW | write | - | - | "] {
        let local = table.lines().find_map(|line| line.strip_prefix(row)?.strip_suffix(" |"));
        let seconds = local.and_then(|local| local.parse::<f64>().ok());
        assert!(seconds.is_some_and(|seconds| seconds > 0.0), "{row}: {table}");
    }
    assert!(table.contains("| RW | log empty | - |"), "{table}");
    assert!(table.contains("* RW, close-uniform, 1024 KB/s #1 failed: "), "{table}");
    assert!(result(dir.path(), "svg").ends_with("</svg>\n"));
}

#[test]
fn each_trace_is_played_on_two_beds_at_once() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["mfs-fig5", "--configurations", "sshfs,local", "--rates", "4096"];
    let args = [&args[..], &["--repeat", "1", "--beds", "2", "--limit", "60"]].concat();
    let output = segue_bench(&args, dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let lines = lines(dir.path());
    assert_eq!(lines.len(), 6, "{said}");
    for line in &lines {
        for time in ["last_read_seconds", "last_write_seconds", "write_returned_seconds"] {
            assert!(line[time].as_f64().is_some_and(|seconds| seconds > 0.0), "{line}");
        }
        // At least 35 KB of noise are written, and 110 KB read.
        let has_moved = |bytes: &str, least| line[bytes].as_u64().unwrap() > least;
        let is_moved = has_moved("sent_bytes", 35_000) && has_moved("received_bytes", 110_000);
        assert_eq!(is_moved, line["system"] == "sshfs", "{line}");
    }
    let table = result(dir.path(), "md");
    assert!(table.contains("| mostly-writes | last read | "), "{table}");
    assert!(result(dir.path(), "svg").ends_with("</svg>\n"));
}

#[test]
fn the_traces_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    assert!(segue_bench(&["mfs-table3"], dir.path()).status.success());
    assert_eq!(lines(dir.path()).len(), 3);
    let table = result(dir.path(), "md");
    assert!(table.contains("| unique files | 2952 | 29 | 276 | 2 | 3312 | 33 |"), "{table}");
    assert!(result(dir.path(), "svg").ends_with("</svg>\n"));
}

#[test]
fn what_a_kilobyte_costs_is_counted() {
    if Bed::for_test().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let args = ["edit-big", "--megabytes", "64", "--repeat", "1"];
    let args = [&args[..], &["--peer", "sshfs", "--peer", "rsync"]].concat();
    let output = segue_bench(&args, dir.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let lines = lines(dir.path());
    assert_eq!(lines.len(), 10, "{lines:?}");
    for line in &lines {
        assert!(line["figure"].as_f64().is_some_and(|kilobytes| kilobytes > 0.9), "{line}");
    }
    assert!(result(dir.path(), "md").contains("| 64 MB, 1 KB appended | KB | "));
}

#[test]
fn what_is_not_known_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["no-such-workload"][..],
        &["untar", "--peer", "nfs"],
        &["untar", "--rates", "x"],
        &["atp-latency", "--peer", "local"],
        &["atp-latency", "--rates", "0"],
        &["edit-big", "--peer", "rclone"],
        &["train", "--rates", "64"],
        &["mfs-table2", "--peer", "sshfs"],
        &["mfs-table2", "--tests", "WG"],
        &["mfs-table2", "--beds", "3"],
        &["mfs-fig4", "--configurations", "nfs"],
        &["mfs-fig5", "--tests", "GW"],
        &["mfs-fig5", "--rates", "unlimited,64"],
        &["mfs-table3", "--rates", "64"],
    ] {
        assert!(!segue_bench(args, dir.path()).status.success(), "{args:?}");
    }
    let list = Command::new(env!("CARGO_BIN_EXE_segue-bench")).arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for name in ["warm-read", "stat-storm", "untar", "small-files", "sshfs", "rclone", "segue"] {
        assert!(list.contains(name), "{list}");
    }
}
