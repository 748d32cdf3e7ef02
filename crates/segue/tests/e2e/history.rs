//! Three hosts work in one volume while links are cut, mounts and the server are killed; and nobody
//! sees what SEMANTICS.md rules out. For ten minutes with `SEGUE_TEST_LONG=1`.

mod check;
mod kept;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use segue_bed::Host;
use segue_bed::segue::SegueMount;

use crate::sample::is_long;
use crate::world::{STALE, World, arg, eventually, segue, wait_for_state};
use check::{Did, Event, Moment, fault};
use kept::{Cut, Shared};

const HOSTS: usize = 3;
/// Names that each host makes and removes.
const NAMES: usize = 4;
/// Lines of a file that is replaced: each says the same.
const LINES: usize = 300;

/// Numbers that look random, and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// One host of the three, with its mount.
struct Site {
    number: usize,
    host: Host,
    root: PathBuf,
    mount: Mutex<Option<SegueMount>>,
    /// Held while something is done on the mount; to hold it alone is to mount it anew.
    gate: RwLock<()>,
}

/// What all threads share.
struct Run {
    begun: Instant,
    is_over: AtomicBool,
    history: Mutex<Vec<Event>>,
    shared: Mutex<Vec<Shared>>,
    cuts: Mutex<Vec<Cut>>,
}

impl Run {
    fn now(&self) -> Moment {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }

    fn note(&self, host: usize, began: Moment, did: Did) {
        let ended = self.now();
        self.history.lock().unwrap().push(Event { host, began, ended, did });
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Ends the run with the first thread that ends, also by a panic.
struct End<'a>(&'a Run);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl Site {
    fn new(world: &World, number: usize, host: &Host) -> Site {
        let mount = world.mount_with(host, "grace=1s");
        let root = mount.path().join("d");
        let (mount, gate) = (Mutex::new(Some(mount)), RwLock::new(()));
        Site { number, host: host.clone(), root, mount, gate }
    }

    /// The number of its connection, if it has one that is not silent.
    fn connection(&self) -> Option<u64> {
        let ended = segue(&self.host, &["status", "--json", arg(&self.root)]);
        let status: serde_json::Value = serde_json::from_str(&ended.out).unwrap_or_default();
        let mount = &status["mounts"][0];
        let is_online = mount["state"] == "online" && mount["reason"] == "";
        is_online.then(|| mount["link"]["connection"].as_u64()).flatten()
    }

    /// True if all that was made so far is visible to others.
    fn sync(&self, patience: &str) -> bool {
        segue(&self.host, &["sync", "--timeout", patience, arg(&self.root)]).code == Some(0)
    }
}

/// Where `name` is: what one host makes is in a directory of its own, so that it may be quiet
/// there.
fn place_of(root: &Path, name: &str) -> PathBuf {
    match name {
        "shared" => root.join(name),
        name => root.join(number_of(name).to_string()).join(name),
    }
}

fn number_of(name: &str) -> usize {
    name.split('-').nth(1).and_then(|number| number.parse().ok()).unwrap()
}

fn replace(root: &Path, name: &str, state: u64) -> std::io::Result<()> {
    let path = place_of(root, name);
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, format!("{name} {state}\n").repeat(LINES))?;
    fs::rename(temporary, path)
}

fn append(root: &Path, name: &str, state: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(place_of(root, name))?;
    file.write_all(format!("{name} {state}\n").as_bytes())
}

/// The state that a file says it is in.
fn state_of(name: &str, text: &str) -> u64 {
    assert!(text.is_empty() || text.ends_with('\n'), "{name} is torn: {:?}", text.lines().last());
    let number = |line: &str| line.strip_prefix(name)?.trim().parse::<u64>().ok();
    let states: Vec<u64> = text.lines().map(|line| number(line).expect(line)).collect();
    if name.starts_with("own") {
        assert!(states.len() == LINES && states.iter().all(|state| *state == states[0]), "{name}");
    } else {
        assert!(states.is_sorted(), "{name}: {states:?}");
    }
    states.last().copied().unwrap_or(0)
}

/// States of a name that is there, or is not: it is made, removed, made again..
fn states(is_there: bool, most: u64) -> Vec<u64> {
    (0..=most).filter(|state| state % 2 == u64::from(is_there)).collect()
}

/// What one host changes, and in which states it is.
struct Maker<'a> {
    run: &'a Run,
    place: &'a Site,
    dice: Dice,
    states: BTreeMap<String, u64>,
    next: u64,
}

impl Maker<'_> {
    /// Makes the next state of `name`, or tries to.
    fn make(&mut self, name: &str, make: impl Fn(&Path, &str, u64) -> std::io::Result<()>) {
        let state = self.states.entry(name.into()).or_default();
        *state += 1;
        let began = self.run.now();
        let surely = make(&self.place.root, name, *state).is_ok();
        let did = Did::Made { file: name.into(), state: *state, surely };
        self.run.note(self.place.number, began, did);
    }

    /// Makes a name, removes it, or renames it to the next one.
    fn turn(&mut self) {
        let host = self.place.number;
        let name = |number: u64| format!("n-{host}-{number}");
        let number = self.dice.below(NAMES as u64);
        let (name, next) = (name(number), name((number + 1) % NAMES as u64));
        let path = |name: &str| place_of(&self.place.root, name);
        let is_there = |name: &String| path(name).symlink_metadata().is_ok();
        let (here, there) = (is_there(&name), is_there(&next));
        // A call that failed may have made what it was to make.
        for (name, is_there) in [(&name, here), (&next, there)] {
            let state = self.states.entry(name.clone()).or_default();
            *state += u64::from(*state % 2 != u64::from(is_there));
        }
        match (here, there) {
            (false, _) => self.make(&name, |root, name, _| fs::write(place_of(root, name), b"x")),
            (true, false) if self.dice.below(2) == 0 => {
                *self.states.get_mut(&name).unwrap() += 1;
                *self.states.get_mut(&next).unwrap() += 1;
                let began = self.run.now();
                let renamed = fs::rename(path(&name), path(&next));
                for file in [name, next] {
                    let did =
                        Did::Made { state: self.states[&file], file, surely: renamed.is_ok() };
                    self.run.note(host, began, did);
                }
            }
            (true, _) => self.make(&name, |root, name, _| fs::remove_file(place_of(root, name))),
        }
    }

    fn work(mut self) {
        let _end = End(self.run);
        let host = self.place.number;
        while !self.run.is_over() {
            {
                let _open = self.place.gate.read().unwrap();
                match self.dice.below(10) {
                    0..=2 => self.make(&format!("own-{host}"), replace),
                    3..=4 => self.make(&format!("log-{host}"), append),
                    5..=6 => self.turn(),
                    7 => self.share(),
                    _ => {
                        let began = self.run.now();
                        if self.place.sync("2s") {
                            self.run.note(host, began, Did::Synced);
                        }
                    }
                }
            }
            std::thread::sleep(self.dice.millis(5, 120));
        }
    }

    /// Writes to the file to which all write.
    fn share(&mut self) {
        self.next += 1;
        let (host, began) = (self.place.number, self.run.now());
        let value = format!("{host}.{}", self.next);
        let surely = fs::write(self.place.root.join("shared"), &value).is_ok();
        let ended = self.run.now();
        self.run.shared.lock().unwrap().push(Shared { host, began, ended, value, surely });
    }
}

/// Looks at everything again and again.
fn look(run: &Run, place: &Site, mut dice: Dice) {
    let _end = End(run);
    while !run.is_over() {
        {
            let _open = place.gate.read().unwrap();
            let connection = place.connection();
            let (kind, of) = (dice.below(3), dice.below(HOSTS as u64));
            let began = run.now();
            let seen = match kind {
                0 => see(place, &format!("own-{of}")),
                1 => see(place, &format!("log-{of}")),
                _ => see_names(place, of),
            };
            let ended = run.now();
            // Not if it was without one for a moment: a restart of the server takes 100 ms.
            let connected = connection.is_some() && place.connection() == connection;
            let mut history = run.history.lock().unwrap();
            for (file, states) in seen {
                let did = Did::Saw { file, states, connected };
                history.push(Event { host: place.number, began, ended, did });
            }
        }
        std::thread::sleep(dice.millis(1, 60));
    }
}

type Seen = Vec<(String, Vec<u64>)>;

fn see(place: &Site, name: &str) -> Seen {
    match fs::read_to_string(place_of(&place.root, name)) {
        Ok(text) => vec![(name.into(), vec![state_of(name, &text)])],
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => vec![(name.into(), vec![0])],
        Err(_) => Vec::new(),
    }
}

fn see_names(place: &Site, of: u64) -> Seen {
    let Ok(entries) = fs::read_dir(place.root.join(of.to_string())) else { return Vec::new() };
    let Ok(entries) = entries.collect::<Result<Vec<_>, _>>() else { return Vec::new() };
    let there: Vec<String> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let names = (0..NAMES).map(|name| format!("n-{of}-{name}"));
    names.map(|name| (name.clone(), states(there.contains(&name), 9_999))).collect()
}

/// Kills a mount in the middle of whatever it does, and mounts again.
fn kill(world: &World, run: &Run, place: &Site) {
    let began = run.now();
    let mut mount = place.mount.lock().unwrap();
    let pid = mount.as_ref().and_then(SegueMount::pid).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    // What is under way fails; only then the mount goes, or it would go on below it.
    let _alone = place.gate.write().unwrap();
    // Dropped, it takes away what is mounted at its place.
    drop(mount.take());
    *mount = Some(world.mount_with(&place.host, "grace=1s"));
    run.note(place.number, began, Did::Killed);
}

/// Cuts links, and kills mounts and the server, until the time is over. Returns since when the last
/// host's link has been down.
fn harm(
    world: &Mutex<World>,
    run: &Run,
    places: &[Site],
    time: Duration,
    mut dice: Dice,
) -> Moment {
    let _end = End(run);
    while run.begun.elapsed() < time && !run.is_over() {
        std::thread::sleep(dice.millis(1_000, 4_000));
        let place = &places[usize::try_from(dice.below(HOSTS as u64)).unwrap()];
        match dice.below(10) {
            0..=4 => {
                let long = is_long() && dice.below(6) == 0;
                let before = run.now();
                place.host.link_down().unwrap();
                let began = run.now();
                std::thread::sleep(if long {
                    dice.millis(20_000, 30_000)
                } else {
                    dice.millis(500, 6_000)
                });
                if dice.below(3) == 0 {
                    kill(&world.lock().unwrap(), run, place);
                }
                run.cuts.lock().unwrap().push(Cut { host: place.number, began, ended: run.now() });
                place.host.link_up().unwrap();
                run.note(place.number, before, Did::Cut);
            }
            5..=8 => kill(&world.lock().unwrap(), run, place),
            _ => world.lock().unwrap().server.restart().unwrap(),
        }
    }
    // Who comes back when nothing changes any more is told nothing by later changes.
    std::thread::sleep(Duration::from_secs(3));
    let began = run.now();
    places[HOSTS - 1].host.link_down().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    began
}

/// What each host sees and what all of them do fits together, whatever is cut and killed.
/// Proves S6.20, S9.1.
#[test]
fn what_hosts_see_fits_together() {
    let Some(world) = World::new() else { return };
    let hosts = [world.a.clone(), world.b.clone(), world.bed.host("c").unwrap()];
    let places: Vec<Site> =
        hosts.iter().enumerate().map(|(number, host)| Site::new(&world, number, host)).collect();
    for host in 0..HOSTS {
        fs::create_dir_all(places[0].root.join(host.to_string())).unwrap();
    }
    fs::write(places[0].root.join("shared"), b"-").unwrap();
    assert!(places[0].sync("30s"));
    for place in &places {
        eventually("it is there", || fs::read(place.root.join("shared")).is_ok());
    }
    let run = Run {
        begun: Instant::now(),
        is_over: AtomicBool::new(false),
        history: Mutex::default(),
        shared: Mutex::default(),
        cuts: Mutex::default(),
    };
    let time = Duration::from_secs(if is_long() { 600 } else { 40 });
    let seed =
        u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() % 1_000_000).unwrap();
    let dice = |part: usize| Dice(seed * 16 + part as u64);
    let world = Mutex::new(world);
    let last_cut = std::thread::scope(|scope| {
        for place in &places {
            let run = &run;
            let maker =
                Maker { run, place, dice: dice(place.number), states: BTreeMap::new(), next: 0 };
            scope.spawn(move || maker.work());
            scope.spawn(move || look(run, place, dice(HOSTS + place.number)));
        }
        harm(&world, &run, &places, time, dice(2 * HOSTS))
    });
    come_together(&run, &places, last_cut);
    let history = run.history.into_inner().unwrap();
    let (shared, cuts) = (run.shared.into_inner().unwrap(), run.cuts.into_inner().unwrap());
    let fault = fault(&history, number_of);
    assert_eq!(fault, None, "seed {seed}, {} events, {cuts:?}", history.len());
    let found = kept::found(&places[0].root);
    assert_eq!(kept::lost(&shared, &cuts, &history, &found), None, "seed {seed}: {found:?}");
}

/// In the end all have everything, and see the same.
fn come_together(run: &Run, places: &[Site], last_cut: Moment) {
    places[HOSTS - 1].host.link_up().unwrap();
    run.note(HOSTS - 1, last_cut, Did::Cut);
    for place in places {
        wait_for_state(&place.host, place.mount.lock().unwrap().as_ref().unwrap(), "online");
    }
    for place in places {
        let began = run.now();
        assert!(place.sync("60s"), "it does not come to an end");
        run.note(place.number, began, Did::Synced);
    }
    std::thread::sleep(STALE);
    let mut trees = Vec::new();
    for place in places {
        let began = run.now();
        let files = (0..HOSTS).flat_map(|host| [format!("own-{host}"), format!("log-{host}")]);
        let seen: Seen = files
            .flat_map(|name| see(place, &name))
            .chain((0..HOSTS as u64).flat_map(|of| see_names(place, of)))
            .collect();
        for (file, states) in seen {
            run.note(place.number, began, Did::Saw { file, states, connected: true });
        }
        let directories = (0..HOSTS).map(|host| place.root.join(host.to_string()));
        let directories = directories.chain([place.root.clone()]);
        trees.push(directories.map(|directory| kept::tree(&directory)).collect::<Vec<_>>());
    }
    for other in &trees {
        let differs = |at: &usize| other[*at] != trees[0][*at];
        let places: Vec<usize> = (0..other.len()).filter(differs).collect();
        assert_eq!(places, [0; 0], "{:?}", places.iter().map(|at| &other[*at]).collect::<Vec<_>>());
    }
}
