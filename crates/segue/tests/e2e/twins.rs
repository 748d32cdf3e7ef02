//! Random work in a mount and the same in a local directory: both are the same at the end of each
//! round, and on another host, whatever happened to the mount and its link in between.
//!
//! Simulated hosts do so by the million; here a kernel, a disk and threads are between.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use segue_bed::Rng;

use crate::tree::{assert_same, noise, read_files};
use crate::world::{World, arg, segue};

const WORKERS: u64 = 3;
const ROUNDS: usize = 8;
const NAMES: [&str; 8] = ["f0", "f1", "f2", "f3", "f4", "d/f5", "d/f6", "d/f7"];
/// With what it is mounted, one round after the other.
const OPTIONS: [&str; 4] = ["write-back=async", "cache-size=1M", "write-back=delay:5s", "due=1s"];

/// What is done to a file, by programs that open it each time.
#[derive(Debug)]
enum Operation {
    Append(Vec<u8>),
    Replace(Vec<u8>),
    Write(u64, Vec<u8>),
    Truncate(u64),
    /// As editors do.
    Save(Vec<u8>),
    Unlink,
    Rename(&'static str),
    Link(&'static str),
    /// Written, synced, and written again.
    Sync(Vec<u8>, Vec<u8>),
    Mode(u32),
}

impl Operation {
    fn draw(rng: &mut Rng) -> Operation {
        let size = *pick(rng, &[1, 10, 300, 300, 700, 3000, 9000, 70_000, 200_000]);
        let (bytes, at) = (noise(rng.below(1 << 40), size), rng.below(2 * size as u64 + 1));
        let other = *pick(rng, &NAMES);
        match rng.below(50) {
            0..18 => Operation::Append(bytes),
            18..24 => Operation::Replace(bytes),
            24..29 => Operation::Write(at, bytes),
            29..31 => Operation::Truncate(at),
            31..36 => Operation::Save(bytes),
            36..40 => Operation::Unlink,
            40..44 => Operation::Rename(other),
            44..46 => Operation::Link(other),
            46..49 => Operation::Sync(bytes, noise(at, 50)),
            _ => Operation::Mode(0o600 + u32::try_from(at % 64).unwrap()),
        }
    }

    fn carry_out(&self, dir: &Path, name: &str) -> io::Result<()> {
        let path = dir.join(name);
        let file = |options: &mut OpenOptions| options.open(&path);
        match self {
            Operation::Append(bytes) => append(&path, bytes).map(drop),
            Operation::Replace(bytes) => fs::write(&path, bytes),
            Operation::Write(at, bytes) => {
                file(OpenOptions::new().write(true))?.write_all_at(bytes, *at)
            }
            Operation::Truncate(size) => file(OpenOptions::new().write(true))?.set_len(*size),
            Operation::Save(bytes) => {
                let temporary = dir.join(format!("{name}.tmp"));
                fs::write(&temporary, bytes)?;
                fs::rename(temporary, path)
            }
            Operation::Unlink => fs::remove_file(path),
            Operation::Rename(to) => fs::rename(path, dir.join(to)),
            Operation::Link(to) => fs::hard_link(path, dir.join(to)),
            Operation::Sync(before, after) => {
                let file = append(&path, before)?;
                file.sync_all()?;
                file.write_all_at(after, file.metadata()?.len())
            }
            Operation::Mode(mode) => fs::set_permissions(path, Permissions::from_mode(*mode)),
        }
    }

    /// Names of which nobody knows what they are if it was cut off.
    fn names(&self, name: &'static str) -> Vec<String> {
        let other = match self {
            Operation::Rename(to) | Operation::Link(to) => (*to).to_owned(),
            _ => format!("{name}.tmp"),
        };
        vec![name.to_owned(), other]
    }
}

/// Writes behind the end of a file, which is made if it is not there.
fn append(path: &Path, bytes: &[u8]) -> io::Result<fs::File> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    io::Write::write_all(&mut file, bytes)?;
    Ok(file)
}

/// Works in `mounted` and in `twin` until that `ends`, or the mount is dead: then it returns the
/// names that it was about.
fn work(mounted: &Path, twin: &Path, seed: u64, ends: &AtomicBool) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mut number = 0;
    while !ends.load(Ordering::Relaxed) {
        number += 1;
        let name = *pick(&mut rng, &NAMES);
        let operation = Operation::draw(&mut rng);
        let done = operation.carry_out(mounted, name);
        if done.as_ref().is_err_and(|error| is_cut_off(error, mounted)) {
            return operation.names(name);
        }
        let kind = |done: &io::Result<()>| done.as_ref().map_err(io::Error::kind).copied();
        let expected = operation.carry_out(twin, name);
        // Without the bytes that it writes.
        let words: String = format!("{operation:?}").chars().take(200).collect();
        let words = format!("{seed}: {number}: {name}: {words}: {done:?}, and {expected:?}");
        assert_eq!(kind(&done), kind(&expected), "{words}");
        if rng.below(20) == 0 {
            sleep(Duration::from_millis(rng.below(20)));
        }
    }
    Vec::new()
}

/// True for what a call gets under which the mount at `mounted` died. That is EIO if the kernel was
/// handing over the call.
fn is_cut_off(error: &io::Error, mounted: &Path) -> bool {
    let dies = || {
        sleep(Duration::from_millis(50));
        fs::metadata(mounted).is_err_and(|error| is_dead(&error))
    };
    let is_io = error.raw_os_error() == Some(Errno::IO.raw_os_error());
    is_dead(error) || is_io && (0..100).any(|_| dies())
}

/// True for what a call gets whose mount has died.
fn is_dead(error: &io::Error) -> bool {
    let dead = [Errno::NOTCONN, Errno::CONNABORTED];
    error.raw_os_error().is_some_and(|code| dead.iter().any(|errno| errno.raw_os_error() == code))
}

fn pick<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[usize::try_from(rng.below(all.len() as u64)).unwrap()]
}

/// Where a worker works.
fn of(root: &Path, worker: u64) -> PathBuf {
    root.join(format!("worker-{worker}"))
}

/// Removes what each worker was about when the mount died under it.
fn forget(mounted: &Path, twin: &Path, cut_off: Vec<Vec<String>>) {
    for (worker, names) in (0..).zip(cut_off).filter(|(_, names)| !names.is_empty()) {
        for name in aliases(&of(twin, worker), names) {
            for root in [twin, mounted] {
                let gone = fs::remove_file(of(root, worker).join(&name));
                let is_gone = gone.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::NotFound);
                assert!(is_gone, "{name}: {gone:?}");
            }
        }
    }
}

/// All names of the files that have one of these in `twin`, and these.
fn aliases(twin: &Path, names: Vec<String>) -> BTreeSet<String> {
    let number = |name: &str| fs::symlink_metadata(twin.join(name)).ok().map(|meta| meta.ino());
    let inodes: BTreeSet<u64> = names.iter().filter_map(|name| number(name)).collect();
    let is_one = |name: &&str| number(name).is_some_and(|ino| inodes.contains(&ino));
    let others = NAMES.into_iter().filter(is_one).map(str::to_owned);
    others.chain(names).collect()
}

/// Proves S1.3.
#[test]
fn a_mount_and_a_local_directory_are_the_same_after_the_same() {
    let Some(mut world) = World::new() else { return };
    let (twin, reader) = (world.local("twin"), world.mount(&world.b));
    let mut rng = Rng::new(std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap()));
    for (round, options) in OPTIONS.into_iter().cycle().take(ROUNDS).enumerate() {
        let (goes_down, dies, server_dies) =
            (rng.below(2) == 0, rng.below(3) > 0, rng.below(3) == 0);
        let when =
            format!("round {round}, {options}, down: {goes_down}, dies: {dies}, {server_dies}");
        let mut mounted = world.mount_with(&world.a, options);
        for (worker, root) in (0..WORKERS).flat_map(|w| [(w, mounted.path()), (w, &twin)]) {
            fs::create_dir_all(of(root, worker).join("d")).unwrap();
        }
        let (ends, seed) = (AtomicBool::new(false), rng.below(1 << 40));
        let point = mounted.path().to_owned();
        let cut_off: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| {
                    let dirs = (of(&point, worker), of(&twin, worker));
                    let ends = &ends;
                    scope.spawn(move || work(&dirs.0, &dirs.1, seed + worker, ends))
                })
                .collect();
            let mut pause = || sleep(Duration::from_millis(rng.below(700)));
            pause();
            if server_dies {
                world.server.kill9().unwrap();
                pause();
                world.server.restart().unwrap();
            }
            if goes_down {
                world.a.link_down().unwrap();
                pause();
            }
            if dies {
                let pid = mounted.pid().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
                kill_process(pid.unwrap(), Signal::KILL).unwrap();
            } else {
                pause();
            }
            ends.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        if dies {
            world.a.link_up().unwrap();
            mounted.kill9().unwrap();
            drop(mounted);
            mounted = world.mount_with(&world.a, options);
        }
        forget(mounted.path(), &twin, cut_off);
        // What is not in a small cache cannot be read without the server.
        if goes_down && options.starts_with("cache-size") {
            world.a.link_up().unwrap();
        }
        assert_same(&when, &read_files(mounted.path()), &read_files(&twin));
        world.a.link_up().unwrap();
        mounted.sync().unwrap();
        assert_same(&format!("{when}, sent"), &read_files(mounted.path()), &read_files(&twin));
        assert_same(&format!("{when}, elsewhere"), &read_files(reader.path()), &read_files(&twin));
        let conflicts = segue(&world.a, &["conflicts", arg(mounted.path())]);
        assert_eq!(conflicts.code, Some(0), "{when}: {conflicts:?}");
        mounted.umount(&[]).unwrap();
    }
}
