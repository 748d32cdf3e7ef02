//! README's first command: the script behind `make run`, without the build.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use segue_bed::Bed;
use segue_bed::segue::is_mounted;

use crate::world::eventually;

/// Whoever presses Ctrl-C twice finds neither the mount nor the server running.
#[test]
fn a_second_signal_leaves_nothing_running() {
    let Some(bed) = Bed::for_test() else { return };
    let host = bed.host("a").unwrap();
    let (clone, tools) = (host.mkdir("clone").unwrap(), host.mkdir("tools").unwrap());
    let script = clone.join("scripts/run.sh");
    for directory in ["scripts", "target/release"] {
        fs::create_dir_all(clone.join(directory)).unwrap();
    }
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/run.sh"), &script).unwrap();
    symlink(env!("CARGO_BIN_EXE_segue"), clone.join("target/release/segue")).unwrap();
    fs::write(tools.join("make"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(tools.join("make"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut command = host.command(&script);
    command.env("PATH", path).env_remove("CARGO_TARGET_DIR");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = host.spawn(&mut command).unwrap();
    let (point, state) = (clone.join("mnt-segue"), clone.join(".segue-run"));
    eventually("volume home is mounted", || is_mounted(&point));
    fs::write(point.join("file"), "written").unwrap();
    let pid = fs::read_to_string(state.join("pid")).unwrap().trim().parse().unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    eventually("it ends", || {
        // As often as somebody can press it. (SIGINT is ignored where the tests run in the
        // background.)
        kill_process(pid, Signal::TERM).ok();
        run.try_wait().unwrap().is_some()
    });
    assert!(!is_mounted(&point));
    assert!(!state.join("data/control.sock").exists(), "the server runs");
}
