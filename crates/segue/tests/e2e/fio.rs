//! fio, which writes blocks that it can recognise.

use std::process::Command;

use segue_bed::run;

use crate::world::World;

/// Runs four jobs, each on its own file; fails if a block is not what was written there.
fn fio(dir: &std::path::Path, scratch: &std::path::Path, extra: &[&str]) -> String {
    let mut command = Command::new("fio");
    command.args(["--name=blocks", "--bs=4k", "--size=8m", "--numjobs=4", "--group_reporting"]);
    command.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    command.args(["--randrepeat=1", "--allrandrepeat=1", "--fallocate=none", "--end_fsync=1"]);
    command.arg(format!("--directory={}", dir.display())).args(extra);
    run(command.current_dir(scratch)).unwrap()
}

/// Blocks written at random places, by several jobs at once and between reads, are read back
/// as written: at once, and by another host after close.
/// Proves S1.1.
#[test]
fn random_blocks_are_what_was_written() {
    let Some(world) = World::new() else { return };
    let scratch = world.local("fio");
    let mut mount = world.mount(&world.a);
    let said = fio(mount.path(), &scratch, &["--rw=randrw", "--do_verify=1"]);
    assert!(said.contains("err= 0"), "{said}");
    let said = fio(mount.path(), &scratch, &["--rw=randwrite", "--do_verify=1"]);
    assert!(said.contains("err= 0"), "{said}");
    mount.umount(&[]).unwrap();

    let mount = world.mount(&world.b);
    let said = fio(mount.path(), &scratch, &["--rw=randwrite", "--verify_only=1"]);
    assert!(said.contains("err= 0"), "{said}");
    // It would notice.
    let file = mount.path().join("blocks.2.0");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4_096 * 77 + 100] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let mut command = Command::new("fio");
    command.args(["--name=blocks", "--bs=4k", "--size=8m", "--numjobs=4", "--verify=crc32c"]);
    command.args(["--verify_fatal=1", "--verify_state_save=0", "--rw=randwrite"]);
    command.args(["--randrepeat=1", "--allrandrepeat=1", "--verify_only=1"]);
    command.arg(format!("--directory={}", mount.path().display())).current_dir(&scratch);
    assert!(!command.output().unwrap().status.success());
}

/// The same through mapped memory, and with several writes of one job under way.
/// Proves S1.1.
#[test]
fn mapped_and_queued_blocks() {
    let Some(world) = World::new() else { return };
    let scratch = world.local("fio");
    let mut mount = world.mount(&world.a);
    let queued = ["--rw=randwrite", "--ioengine=libaio", "--iodepth=8", "--do_verify=1"];
    let said = fio(mount.path(), &scratch, &queued);
    assert!(said.contains("err= 0"), "{said}");
    let mapped = ["--rw=randwrite", "--ioengine=mmap", "--do_verify=1"];
    let said = fio(mount.path(), &scratch, &mapped);
    assert!(said.contains("err= 0"), "{said}");
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    let said = fio(mount.path(), &scratch, &["--rw=randwrite", "--verify_only=1"]);
    assert!(said.contains("err= 0"), "{said}");
}
