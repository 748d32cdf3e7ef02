//! A client that is killed, or whose host loses power, in the middle of writing into files.
//!
//! A program writes blocks that say which file, write and place they are of, and tells how many
//! calls returned. So what is found afterwards says which calls it has: here and on the server
//! it must be what the files were after some call, and none that was promised may lack.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use segue_bed::disk::{Disk, Fate, Image};
use segue_bed::segue::{SegueMount, is_mounted};
use segue_bed::{Host, LinkSpec, Proc, Rng};

use crate::cache::put_after_power_loss;
use crate::remount::cache_directory;
use crate::sample::is_long;
use crate::tree::noise;
use crate::world::{World, arg, eventually, json, segue};

/// A page: of a write that begins inside of one the kernel sends that page by itself.
const BLOCK: usize = 4096;
const FILES: u64 = 6;
/// Most blocks of one write: the kernel sends it whole.
const WRITE_MAX: u64 = 16;
/// Most blocks of a file, about.
const FILE_MAX: u64 = 60;
/// One call, or one file replaced by several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Write { at: u64, blocks: u64 },
    Truncate { blocks: u64 },
    Replace { blocks: u64 },
    Sync,
}

/// Step `number` of `run`: which file, and what is done to it.
fn step(run: u64, number: u64) -> (u64, Step) {
    let mut rng = Rng::new(run << 32 | number);
    let file = rng.below(FILES);
    let step = match rng.below(20) {
        0 => Step::Truncate { blocks: rng.below(FILE_MAX) },
        1 => Step::Replace { blocks: 1 + rng.below(WRITE_MAX) },
        2..5 => Step::Sync,
        _ => Step::Write { at: rng.below(FILE_MAX), blocks: 1 + rng.below(WRITE_MAX) },
    };
    (file, step)
}

/// What a block of `file` at `place` has that was written by a step.
fn block(file: u64, step: u64, place: u64) -> Vec<u8> {
    let mut bytes = format!("file {file} step {step} block {place} ").into_bytes();
    let seed = file ^ step << 8 ^ place << 40;
    bytes.extend(noise(seed, BLOCK - bytes.len()));
    bytes
}

/// `blocks` blocks from `at` on.
fn blocks(file: u64, step: u64, at: u64, blocks: u64) -> Vec<u8> {
    (at..at + blocks).flat_map(|place| block(file, step, place)).collect()
}

/// Which step wrote each block of each file; zeros are of none.
type State = BTreeMap<u64, Vec<Option<u64>>>;

/// What has been done to a directory, by id: a run in the upper half, a number in the lower.
#[derive(Clone, Default)]
struct History(Vec<u64>);

impl History {
    /// The files after the first `count` steps.
    fn state(&self, count: usize) -> State {
        let mut state = State::new();
        for &id in &self.0[..count] {
            let (file, step) = step(id >> 32, id & 0xffff_ffff);
            let blocks = state.entry(file).or_default();
            match step {
                Step::Write { at, blocks: count } => {
                    let end = usize::try_from(at + count).unwrap();
                    blocks.resize(end.max(blocks.len()), None);
                    blocks[usize::try_from(at).unwrap()..end].fill(Some(id));
                }
                Step::Truncate { blocks: count } => {
                    blocks.resize(usize::try_from(count).unwrap(), None);
                }
                Step::Replace { blocks: count } => {
                    *blocks = vec![Some(id); usize::try_from(count).unwrap()];
                }
                Step::Sync => {}
            }
        }
        state
    }

    /// How many of the first steps make what is in `dir`, `least` at least, and at most all.
    fn find(&self, dir: &Path, least: usize, when: &str) -> usize {
        let found = found(dir);
        let is_so = |count: &usize| same(&self.state(*count), &found);
        (least..=self.0.len()).rev().find(is_so).unwrap_or_else(|| {
            let expected = self.state(self.0.len());
            let wrong = differences(&expected, &found);
            panic!("{when}: as after none of {least}..={}: {wrong:?}", self.0.len())
        })
    }

    /// Fails unless all of a file is in `dir` that was there when it was synced last, before
    /// step `count`, and has not been changed since.
    fn check_synced(&self, dir: &Path, count: usize, when: &str) {
        let found = found(dir);
        for file in 0..FILES {
            let of_file = |id: &u64| step(id >> 32, id & 0xffff_ffff).0 == file;
            let is_sync = |id: &u64| step(id >> 32, id & 0xffff_ffff).1 == Step::Sync;
            let last = self.0[..count].iter().rposition(|id| of_file(id) && is_sync(id));
            let Some(synced) = last else { continue };
            let before = self.state(synced).remove(&file).unwrap_or_default();
            let mut untouched: Vec<bool> = vec![true; before.len()];
            for id in self.0[synced..].iter().filter(|id| of_file(id)) {
                match step(id >> 32, id & 0xffff_ffff).1 {
                    Step::Write { at, blocks } => {
                        let range = (at..at + blocks).map(|place| usize::try_from(place).unwrap());
                        range.for_each(|at| {
                            untouched.get_mut(at).into_iter().for_each(|is| *is = false)
                        });
                    }
                    Step::Truncate { blocks } => {
                        let from = usize::try_from(blocks).unwrap().min(untouched.len());
                        untouched[from..].fill(false);
                    }
                    Step::Replace { .. } => untouched.fill(false),
                    Step::Sync => {}
                }
            }
            let bytes = found.get(&file).map(Vec::as_slice).unwrap_or_default();
            for (place, by) in before.iter().enumerate().filter(|(place, _)| untouched[*place]) {
                let expected = expected(file, *by, place);
                let there = bytes.get(place * BLOCK..(place + 1) * BLOCK);
                let head = there.map(|there| String::from_utf8_lossy(&there[..40]).into_owned());
                assert!(
                    there == Some(&expected),
                    "{when}: file {file}, block {place} of {by:?}: {head:?}; synced at {synced}"
                );
            }
        }
    }
}

fn expected(file: u64, by: Option<u64>, place: usize) -> Vec<u8> {
    by.map_or_else(|| vec![0; BLOCK], |id| block(file, id, place as u64))
}

/// What the files of `dir` have.
fn found(dir: &Path) -> BTreeMap<u64, Vec<u8>> {
    let read = |file| {
        let path = dir.join(format!("file{file}"));
        match fs::read(&path) {
            Ok(bytes) => Some((file, bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    };
    (0..FILES).filter_map(read).collect()
}

fn same(state: &State, found: &BTreeMap<u64, Vec<u8>>) -> bool {
    differences(state, found).is_empty()
}

/// Where the files are not what `state` says.
fn differences(state: &State, found: &BTreeMap<u64, Vec<u8>>) -> Vec<String> {
    let mut all = Vec::new();
    for file in 0..FILES {
        let blocks = state.get(&file).map(Vec::as_slice).unwrap_or_default();
        let bytes = found.get(&file).map(Vec::as_slice).unwrap_or_default();
        if bytes.len() != blocks.len() * BLOCK {
            let there = if found.contains_key(&file) { "there" } else { "not there" };
            let (is, due) = (bytes.len(), blocks.len());
            all.push(format!("file {file}: {there}, {is} bytes, not {due} blocks"));
            continue;
        }
        let pairs = blocks.iter().zip(bytes.chunks(BLOCK)).enumerate();
        let wrong = pairs.filter(|(place, (by, bytes))| expected(file, **by, *place) != *bytes);
        all.extend(wrong.map(|(place, (by, bytes))| {
            let head = String::from_utf8_lossy(&bytes[..40]);
            format!("file {file} block {place}: {head:?} instead of step {by:?}")
        }));
    }
    all
}

/// A program that goes through the steps of a run, until a call fails.
struct Writer {
    process: Proc,
    listener: JoinHandle<()>,
    heard: Arc<Heard>,
}

/// How many steps have returned.
#[derive(Default)]
struct Heard(AtomicUsize);

impl Writer {
    fn start(host: &Host, dir: &Path, run: u64) -> Writer {
        let mut command = host.command(std::env::current_exe().unwrap());
        command.args(["--exact", "client_crash::writer", "--ignored", "--nocapture"]);
        command.env("WRITER_DIR", dir).env("WRITER_RUN", run.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = host.spawn(&mut command).unwrap();
        let lines = BufReader::new(process.stdout().unwrap()).lines();
        let heard = Arc::new(Heard::default());
        let theirs = Arc::clone(&heard);
        let listener = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| line == "did one") {
                drop(line);
                theirs.0.fetch_add(1, Ordering::Relaxed);
            }
        });
        Writer { process, listener, heard }
    }

    fn wait_for(&self, steps: usize) {
        let done = || self.heard.0.load(Ordering::Relaxed);
        eventually("the writer works", || done() >= steps || self.listener.is_finished());
    }

    /// Waits until a call of it has failed; returns how many steps were done, and adds them to
    /// `history` with the one that failed.
    fn failed(mut self, run: u64, history: &mut History) -> usize {
        self.process.wait().unwrap();
        self.listener.join().unwrap();
        let done = self.heard.0.load(Ordering::Relaxed);
        history.0.extend((0..=done as u64).map(|number| run << 32 | number));
        done
    }
}

/// Not a test: the program.
#[test]
#[ignore = "a part of other tests"]
fn writer() {
    let dir = PathBuf::from(std::env::var_os("WRITER_DIR").unwrap());
    let run: u64 = std::env::var("WRITER_RUN").unwrap().parse().unwrap();
    println!();
    let mut open = BTreeMap::new();
    for number in 0.. {
        if take(&dir, run, number, &mut open).is_err() {
            return;
        }
        println!("did one");
    }
}

fn take(dir: &Path, run: u64, number: u64, open: &mut BTreeMap<u64, File>) -> io::Result<()> {
    let (file, step) = step(run, number);
    let (path, id) = (dir.join(format!("file{file}")), run << 32 | number);
    let opened = match open.entry(file) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => {
            entry.insert(File::options().create(true).truncate(false).write(true).open(&path)?)
        }
    };
    match step {
        Step::Write { at, blocks: count } => {
            opened.write_all_at(&blocks(file, id, at, count), at * BLOCK as u64)
        }
        Step::Truncate { blocks } => opened.set_len(blocks * BLOCK as u64),
        Step::Replace { blocks: count } => {
            open.remove(&file);
            let new = dir.join("new");
            fs::write(&new, blocks(file, id, 0, count))?;
            fs::rename(new, path)
        }
        Step::Sync => opened.sync_all(),
    }
}

fn rounds() -> u64 {
    if is_long() { 100 } else { 10 }
}

/// A mount at `point` is killed while it takes in what an earlier one left, or just after.
fn die_starting(world: &World, point: &Path, options: &str, rng: &mut Rng) {
    let mut command = world.a.command("segue");
    command.args(["mount", &world.url(&world.a), arg(point), "--foreground"]);
    command.args(["-o", options]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = world.a.spawn(&mut command).unwrap();
    sleep(Duration::from_millis(rng.below(100)));
    process.kill9().unwrap();
    while is_mounted(point) {
        world.a.run("umount", &["-l", arg(point)]).unwrap();
    }
}

/// What `segue recover` finds in a cache directory whose mount was killed: files of which all is
/// there.
fn recovered(world: &World, base: &Path, round: u64) -> BTreeMap<PathBuf, Vec<u8>> {
    let (cache, to) = (cache_directory(base), world.local(&format!("recovered-{round}")));
    let listed = json(&world.a, &["recover", arg(&cache)]);
    assert!(listed["damage"].is_null(), "round {round}: {listed}");
    let ended = segue(&world.a, &["recover", arg(&cache), "--to", arg(&to)]);
    assert_eq!(ended.code, Some(0), "round {round}: {ended:?}");
    let whole = listed["files"].as_array().unwrap().iter();
    let whole = whole.filter(|file| file["here_bytes"] == file["size"]);
    whole
        .map(|file| PathBuf::from(file["path"].as_str().unwrap()))
        .map(|path| (path.clone(), fs::read(to.join(path)).unwrap()))
        .collect()
}

/// Again and again the mount is killed in the middle of writes that wait for a slow link. What
/// is mounted then, perhaps by the second or third process that tries, is what the files were after
/// the last call that returned, or after the one that did not; in the end so is what another host
/// reads. `segue recover` finds the same in what each leaves.
/// Proves S1.3, S13.1, S13.9.
#[test]
fn a_killed_client_has_every_write_and_no_half() {
    let Some(world) = World::new() else { return };
    world.a.set_link(LinkSpec::kb_per_s(4096).with_rtt(Duration::from_millis(4))).unwrap();
    let (mut history, mut rng) = (History::default(), Rng::new(5));
    let base = world.local("cache");
    let options = format!("write-back=async,cache-dir={}", base.display());
    let (mut mount, mut compared) = (world.mount_with(&world.a, &options), 0);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for round in 0..rounds() {
        let before = history.0.len();
        let writer = Writer::start(&world.a, &dir, round);
        writer.wait_for(20 + usize::try_from(rng.below(80)).unwrap());
        mount.kill9().unwrap();
        let done = writer.failed(round, &mut history);
        let point = mount.path().to_owned();
        drop(mount);
        let recovered = recovered(&world, &base, round);
        (0..rng.below(3)).for_each(|_| die_starting(&world, &point, &options, &mut rng));
        mount = world.mount_with(&world.a, &options);
        let kept = history.find(&dir, before + done, &format!("round {round}"));
        history.0.truncate(kept);
        for (path, bytes) in &recovered {
            let there = fs::read(mount.path().join(path)).unwrap();
            let differs = there.iter().zip(bytes).position(|(one, other)| one != other);
            let lens = (there.len(), bytes.len());
            assert!(there == *bytes, "round {round}: {}, {lens:?}, {differs:?}", path.display());
        }
        compared += recovered.len();
    }
    assert!(compared > 0, "nothing was left to recover");
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    history.find(&mount.path().join("dir"), history.0.len(), "on another host");
}

/// Again and again the host loses power in the middle of writes: its disk has what was synced
/// and any part of the rest. What was synced of a file is there, here and on another host, and
/// both have the same.
/// Proves S3.1.
#[test]
fn a_client_that_loses_power_has_what_was_synced() {
    let Some(world) = World::new() else { return };
    let (mut histories, mut rng, mut left) = (Vec::new(), Rng::new(6), None);
    for round in 0..rounds() {
        let (disk, mut mount) = power_on(&world, round, left.take());
        check_power(&histories, &mount, round);
        let dir = run_dir(&mount, histories.len());
        fs::create_dir(&dir).unwrap();
        let writer = Writer::start(&world.a, &dir, round);
        writer.wait_for(20 + usize::try_from(rng.below(60)).unwrap());
        mount.kill9().unwrap();
        let mut history = History::default();
        let done = writer.failed(round, &mut history);
        histories.push((history, done));
        let fate = if round % 3 == 0 { Fate::Lost } else { Fate::Chance(round) };
        let recording = disk.recording();
        left = Some(recording.image(recording.end(), fate));
    }
    let (_disk, mut mount) = power_on(&world, rounds(), left);
    check_power(&histories, &mount, rounds());
    let here: Vec<_> = (0..histories.len()).map(|run| found(&run_dir(&mount, run))).collect();
    mount.umount(&[]).unwrap();
    let other = world.mount(&world.b);
    for (run, here) in here.iter().enumerate() {
        assert!(found(&run_dir(&other, run)) == *here, "run {run} is another on another host");
    }
}

/// A host loses power seconds after writes that no program synced. The mount has synced them, and
/// the next one sends them before it appears.
/// Proves S3.2, S13.2.
#[test]
fn what_was_written_seconds_ago_survives_a_power_loss() {
    let Some(world) = World::new() else { return };
    let (disk, mut mount) = power_on(&world, 0, None);
    let files = [("small", 1_000), ("large", 300_000), ("open", 70_000)];
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0);
    // Nothing of it is on the server.
    world.a.link_down().unwrap();
    let mut open = Vec::new();
    for (name, len) in files {
        let file = File::create(mount.path().join(name)).unwrap();
        file.write_all_at(&noise(len as u64, len), 0).unwrap();
        open.extend((name == "open").then_some(file));
    }
    // Three times the second that is promised.
    sleep(Duration::from_secs(3));
    mount.kill9().unwrap();
    drop((open, mount));
    let recording = disk.recording();
    let left = recording.image(recording.end(), Fate::Lost);
    world.a.link_up().unwrap();
    let (_disk, mount) = power_on(&world, 1, Some(left));
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!(status["mounts"][0]["log_records"], 0, "sent before the mount appeared: {status}");
    for (name, len) in files {
        assert!(fs::read(mount.path().join(name)).unwrap() == noise(len as u64, len), "{name}");
    }
}

/// A disk with what a power loss left, and a mount that has its cache there.
fn power_on(world: &World, round: u64, left: Option<Image>) -> (Disk, SegueMount) {
    let cache = world.a.mkdir(&format!("disk-{round}")).unwrap();
    let disk = Disk::mount(&cache).unwrap();
    if let Some(image) = left {
        put_after_power_loss(&image, &cache);
    }
    let options = format!("write-back=async,cache-dir={}", arg(&cache));
    (disk, world.mount_with(&world.a, &options))
}

fn run_dir(mount: &SegueMount, run: usize) -> PathBuf {
    mount.path().join(format!("dir{run}"))
}

/// What was synced of each run, of which so many steps had returned.
fn check_power(histories: &[(History, usize)], mount: &SegueMount, round: u64) {
    for (run, (history, done)) in histories.iter().enumerate() {
        let (dir, when) = (run_dir(mount, run), format!("run {run}, before round {round}"));
        history.check_synced(&dir, *done, &when);
    }
}

/// Power is lost in the middle of a sync, after bytes of a change were overwritten that the server
/// does not have. The file is what it was after some call: the container is not durable before the
/// log says what was overwritten in it.
#[test]
fn overwritten_bytes_are_durable_before_what_is_written_over_them() {
    let Some(world) = World::new() else { return };
    let (disk, mut mount) = power_on(&world, 0, None);
    let path = mount.path().join("file");
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0);
    world.a.link_down().unwrap();
    let [first, more, over] = [noise(1, 200_000), noise(2, 200_000), noise(3, 4096)];
    fs::write(&path, &first).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let from = disk.recording().end();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&more, first.len() as u64).unwrap();
    file.write_all_at(&over, 0).unwrap();
    file.sync_all().unwrap();
    mount.kill9().unwrap();
    drop((file, mount));
    let recording = disk.recording();
    let longer = [&first[..], &more].concat();
    // The kernel sends a write in two calls if it begins within a page that it does not hold.
    let part = longer[..first.len().next_multiple_of(4096)].to_vec();
    let last = [&over[..], &longer[over.len()..]].concat();
    let syncs = recording.syncs(from..recording.end());
    assert!(!syncs.is_empty(), "nothing was synced");
    let mut compared = 0;
    for sync in syncs {
        let cache = world.local(&format!("cache-{sync}"));
        put_after_power_loss(&recording.image(sync + 1, Fate::Lost), &cache);
        for found in recovered(&world, &cache, sync as u64).values() {
            let is_state = [&first, &part, &longer, &last].contains(&found);
            assert!(is_state, "after sync {sync}: {} bytes that never stood there", found.len());
            compared += 1;
        }
    }
    assert!(compared > 1, "nothing was whole");
}
