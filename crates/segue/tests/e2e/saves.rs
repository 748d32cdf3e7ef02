//! Three hosts save the same files and read them, and each file is as if all were one host.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use segue_bed::{LinkSpec, Rng};
use segue_sim::history::{Did, Event, Moment, State, callback};

use crate::sample::is_long;
use crate::tree::noise;
use crate::world::{CLOSE, World, save, sh};

const HOSTS: usize = 3;
const FILES: usize = 3;
/// A file says this often which save it is of.
const LINES: usize = 2000;

/// One host, and what it did.
struct Saver {
    host: usize,
    root: PathBuf,
    begun: Instant,
    rng: Rng,
    history: Vec<Event>,
}

impl Saver {
    fn now(&self) -> Moment {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }

    fn work(mut self, time: Duration) -> Vec<Event> {
        let mut next = 0;
        while self.begun.elapsed() < time {
            let file = usize::try_from(self.rng.below(FILES as u64)).unwrap();
            let path = self.root.join(name(file));
            let began = self.now();
            let did = if self.rng.below(3) == 0 {
                next += 1;
                let state = (next * HOSTS + self.host) as State;
                let surely = save(&path, text(state).as_bytes()).is_ok();
                Some(Did::Saved { state, surely })
            } else {
                state_of(&path).unwrap().map(Did::Read)
            };
            let ended = self.now();
            self.history.extend(did.map(|did| Event { host: self.host, file, began, ended, did }));
            std::thread::sleep(Duration::from_millis(self.rng.below(20)));
        }
        self.history
    }
}

fn name(file: usize) -> String {
    format!("file{file}")
}

fn text(state: State) -> String {
    format!("{state}\n").repeat(LINES)
}

/// Which save a file is of. `None` for one that another host saved between two calls of this read,
/// or has emptied: that may be sent as it is when the time for it comes.
fn state_of(path: &Path) -> io::Result<Option<State>> {
    let found = fs::read(path)?;
    let found = String::from_utf8(found).map_err(io::Error::other)?;
    let states: BTreeSet<&str> = found.lines().collect();
    let is_whole = states.len() == 1 && found.lines().count() == LINES;
    Ok(states.first().filter(|_| is_whole).and_then(|state| state.parse().ok()))
}

/// While pages are on their way another host makes the file shorter: it ends where it ends, and is
/// not filled up with zeros. One page may be, if the kernel is told once more of the change in the
/// moment in which it asks again.
/// Proves S6.25.
#[test]
fn a_file_that_gets_shorter_while_it_is_read_has_no_zeros() {
    let Some(world) = World::new() else { return };
    let (a, b) = world.closing_mounts();
    let rtt = Duration::from_millis(100);
    world.b.set_link(LinkSpec::kb_per_s(1024).with_rtt(rtt)).unwrap();
    let (here, there) = (a.path().join("file"), b.path().join("file"));
    let mut filled_up = Vec::new();
    for (round, millis) in (0..6).zip([100, 200, 300].into_iter().cycle()) {
        let (long, short) = (noise(round, 300_000), vec![b's'; 10_000]);
        save(&here, &long).unwrap();
        a.sync().unwrap();
        assert_eq!(fs::metadata(&there).unwrap().len(), long.len() as u64);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(&there).unwrap());
            std::thread::sleep(Duration::from_millis(millis));
            save(&here, &short).unwrap();
            let read = reader.join().unwrap();
            let is_zero = |page: &&[u8]| page.iter().all(|byte| *byte == 0);
            let zeros = read.chunks(512).filter(is_zero).count();
            filled_up.extend(Some(zeros).filter(|zeros| *zeros > 0));
        });
        assert!(fs::read(&there).unwrap() == short, "{round}");
    }
    assert!(matches!(filled_up[..], [] | [..=8]), "half kilobytes of zeros: {filled_up:?}");
}

/// Proves S6.1, S6.2.
#[test]
fn files_that_all_save_are_as_on_one_host() {
    let Some(world) = World::new() else { return };
    let hosts = [world.a.clone(), world.b.clone(), world.bed.host("c").unwrap()];
    let mounts = hosts.each_ref().map(|host| world.mount_with(host, CLOSE));
    for file in 0..FILES {
        save(&mounts[0].path().join(name(file)), text(0).as_bytes()).unwrap();
    }
    hosts[1].set_link(LinkSpec::kb_per_s(1024).with_rtt(Duration::from_millis(30))).unwrap();
    let time = Duration::from_secs(if is_long() { 120 } else { 10 });
    let seed = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    let begun = Instant::now();
    let mut history: Vec<Event> = std::thread::scope(|scope| {
        let savers = mounts.iter().enumerate().map(|(host, mount)| {
            let (root, rng) = (mount.path().to_owned(), Rng::new(seed * 4 + host as u64));
            let saver = Saver { host, root, begun, rng, history: Vec::new() };
            scope.spawn(move || saver.work(time))
        });
        let savers: Vec<_> = savers.collect();
        savers.into_iter().flat_map(|saver| saver.join().unwrap()).collect()
    });
    mounts.iter().for_each(|mount| mount.sync().unwrap());
    let copies = sh(mounts[0].path(), "cat $(find . -name '*.conflict-*') < /dev/null | sort -u");
    let copies: BTreeSet<State> = copies.lines().map(|state| state.parse().unwrap()).collect();
    let mut saves = [0, 0];
    for event in &mut history {
        if let Did::Saved { state, surely } = &mut event.did {
            *surely &= !copies.contains(state);
            saves[usize::from(*surely)] += 1;
        }
    }
    assert!(saves.iter().all(|count| *count > 3), "{saves:?} were conflict copies, and not");
    assert_eq!(callback::fault(&history, 0), None, "seed {seed}");
}
