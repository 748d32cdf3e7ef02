//! The mount option `io-uring`: the kernel's requests without a system call for each.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use segue_bed::segue::SegueMount;
use segue_bed::{FuseUring, Proc, Rng};

use crate::tree::{hash, hash_of, noise};
use crate::world::{World, arg, end, eventually, save, segue};

/// Whether the mount's process has a thread for a ring.
fn has_rings(mount: &SegueMount) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", mount.pid().unwrap())).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name: String| name.starts_with("fuse-ring"))
}

/// Asked for where the kernel has it: work as ever, and readers of a dead link can be killed.
/// Proves S16.1.
#[test]
fn a_mount_over_io_uring() {
    let Some(world) = World::new() else { return };
    let Ok(offered) = FuseUring::offer() else {
        eprintln!("SKIPPED: this kernel has no FUSE over io_uring");
        return;
    };
    let mut mount = world.mount_with(&world.a, "io-uring,grace=10min");
    drop(offered);
    // Their threads begin when the mount can be used already.
    eventually("the rings turn", || has_rings(&mount));
    let other = world.mount(&world.b);
    for number in 0..200_u64 {
        save(&mount.path().join(format!("here{number}")), &noise(number, 50_000)).unwrap();
        save(&other.path().join(format!("there{number}")), &noise(number, 50_000)).unwrap();
    }
    mount.sync().unwrap();
    other.sync().unwrap();
    eventually("both hosts list all", || {
        [&mount, &other].iter().all(|top| fs::read_dir(top.path()).unwrap().count() == 400)
    });
    for number in 0..200_u64 {
        let expected = hash_of(&noise(number, 50_000));
        assert_eq!(hash(&other.path().join(format!("here{number}"))), expected);
        // Without this the host may know the file from before its bytes came, and show it empty
        // while it is offline.
        let seen = fs::metadata(mount.path().join(format!("there{number}"))).unwrap().len();
        assert_eq!(seen, 50_000, "there{number}");
    }
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    let copies = world.local("copies");
    let mut waiting: Vec<Proc> = (0..50)
        .map(|number| {
            let mut cat = world.a.command("cat");
            cat.arg(mount.path().join(format!("there{number}")));
            let output = fs::File::create(copies.join(format!("{number}"))).unwrap();
            world.a.spawn(cat.stdout(output).stderr(Stdio::null())).unwrap()
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    for (number, process) in waiting.iter_mut().enumerate() {
        let read = fs::metadata(copies.join(format!("{number}"))).unwrap().len();
        let status = segue(&world.a, &["status", "--json", arg(mount.path())]).out;
        let ended = process.try_wait().unwrap();
        assert_eq!(ended, None, "{number} did not wait, and read {read} bytes: {status}");
        let pid = rustix::process::Pid::from_raw(process.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    eventually("all are dead", || waiting.iter_mut().all(|one| one.try_wait().unwrap().is_some()));
    mount.umount(&["--now"]).unwrap();
    assert!(!mount.is_mounted());
    world.a.link_up().unwrap();
}

/// A file is looked up in the moment in which it gets its bytes: once its writer's close has
/// returned, nobody sees it as it was before. An answer that the kernel has not taken in yet is
/// overtaken by no invalidation.
#[test]
fn what_is_looked_up_while_it_is_stored_is_seen_as_it_is() {
    let Some(world) = World::new() else { return };
    let Ok(offered) = FuseUring::offer() else {
        eprintln!("SKIPPED: this kernel has no FUSE over io_uring");
        return;
    };
    let mount = world.mount_with(&world.a, "io-uring");
    drop(offered);
    eventually("the rings turn", || has_rings(&mount));
    let other = world.mount_with(&world.b, "write-back=close");
    let (number, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let stale = thread::scope(|scope| {
        for looker in 0..4_u64 {
            let (number, ends, top) = (&number, &ends, mount.path());
            scope.spawn(move || {
                let mut rng = Rng::new(looker);
                while !ends.load(Ordering::Relaxed) {
                    let path = top.join(format!("{}", number.load(Ordering::Relaxed)));
                    fs::metadata(path).ok();
                    thread::sleep(Duration::from_micros(rng.below(1000)));
                }
            });
        }
        let mut stale = Vec::new();
        for file in 0..std::env::var("FILES").map_or(300, |n| n.parse().unwrap()) {
            number.store(file, Ordering::Relaxed);
            fs::write(other.path().join(format!("{file}")), b"text").unwrap();
            let seen = fs::metadata(mount.path().join(format!("{file}"))).unwrap().len();
            stale.extend((seen != 4).then_some((file, seen)));
        }
        ends.store(true, Ordering::Relaxed);
        stale
    });
    assert_eq!(stale, []);
}

/// Asked for where the kernel does not offer it, the device does as well.
#[test]
fn without_the_kernels_offer_requests_come_over_the_device() {
    let Some(world) = World::new() else { return };
    // An error says that this kernel never offers it.
    let _withheld = FuseUring::withhold().ok();
    let mount = world.mount_with(&world.a, "io-uring");
    assert!(!has_rings(&mount));
    save(&mount.path().join("file"), b"text").unwrap();
    let read = end(world.a.command("cat").arg(arg(&mount.path().join("file"))));
    assert_eq!(read.out, "text");
}
