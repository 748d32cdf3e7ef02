//! A program that works in a directory and says what it has done, until it is stopped or fails.
//!
//! It is a process of its own: whatever the tests' process starts inherits its open files for
//! a moment and closes them, and closing a written file waits for the server. A test that
//! starts a server must therefore not hold such a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use segue_bed::{Host, Proc};

use crate::tree::{hash_of, noise};
use crate::world::{eventually, save};

/// What is found of a file that has no contents yet, and whose host is away.
const AWAITED: &str = "awaited";
const EHOSTUNREACH: Option<i32> = Some(113);

/// What a name is known to be.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// A call is about to change it, or has done so without having returned.
    Busy,
    Gone,
    /// A file with contents of this hash.
    Has(String),
}

/// What was acknowledged of each name, and when.
#[derive(Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<History>>);

#[derive(Default)]
struct History {
    names: BTreeMap<String, Vec<(usize, State)>>,
    clock: Option<Box<dyn Fn() -> usize + Send>>,
}

impl History {
    /// What `name` is known to be at `time`, with what it was before and what it became.
    fn at(&self, name: &str, time: usize) -> [Option<&State>; 3] {
        let known = self.names.get(name).map(Vec::as_slice).unwrap_or_default();
        let next = known.partition_point(|(since, _)| *since <= time);
        let state = |at: Option<usize>| known.get(at?).map(|(_, state)| state);
        [next.checked_sub(2), next.checked_sub(1), Some(next)].map(state)
    }

    /// Whether `name` may have `found` as its contents, or not be there, at `time`.
    fn allows(&self, name: &str, found: Option<&str>, time: usize) -> bool {
        let is = |state: Option<&State>| match state {
            None | Some(State::Gone) => found.is_none(),
            Some(State::Has(contents)) => found == Some(contents),
            Some(State::Busy) => false,
        };
        match self.at(name, time) {
            // Nobody knows how far it came.
            [_, Some(State::Busy), None] => true,
            // It was made, or cut off to be written anew, or that was done, too.
            [before, Some(State::Busy), after] => {
                is(before) || is(after) || [Some(AWAITED), Some(&hash_of(b""))].contains(&found)
            }
            [_, now, _] => is(now),
        }
    }
}

impl Acknowledged {
    /// The same with a clock: `clock` is asked for the time of each acknowledgement.
    pub(crate) fn timed_by(clock: impl Fn() -> usize + Send + 'static) -> Acknowledged {
        let clock: Box<dyn Fn() -> usize + Send> = Box::new(clock);
        Acknowledged(Arc::new(Mutex::new(History { clock: Some(clock), ..History::default() })))
    }

    /// Fails unless `dir` has all of it, each name once, and nothing that nobody made.
    pub(crate) fn check(&self, dir: &Path, when: &str) {
        assert_eq!(self.differences(dir, usize::MAX), Vec::<String>::new(), "{when}");
    }

    /// What of `dir` is not as was acknowledged by `time`.
    pub(crate) fn differences(&self, dir: &Path, time: usize) -> Vec<String> {
        let history = self.0.lock().unwrap();
        let listed = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let listed: Vec<_> = listed.map(|name| name.into_string().unwrap()).collect();
        let mut names: BTreeSet<_> = listed.iter().collect();
        let mut differences = Vec::new();
        if names.len() < listed.len() {
            differences.push(format!("a name is listed twice: {listed:?}"));
        }
        names.extend(history.names.keys());
        for name in names {
            let found = match fs::read(dir.join(name)) {
                Ok(bytes) => Some(hash_of(&bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) if error.raw_os_error() == EHOSTUNREACH => Some(AWAITED.to_owned()),
                Err(error) => Some(error.to_string()),
            };
            if !history.allows(name, found.as_deref(), time) {
                let [before, now, after] = history.at(name, time);
                differences.push(format!(
                    "{name}: {found:?} instead of {now:?} ({before:?} before, {after:?} later)"
                ));
            }
        }
        differences
    }

    /// Takes in a line as the program has them: `begin`, `gone` or `has`, the name, and the hash
    /// of what it has, between tabs.
    pub(crate) fn hear(&self, line: &str) {
        let words: Vec<_> = line.split('\t').collect();
        let mut history = self.0.lock().unwrap();
        let time = history.clock.as_ref().map_or(0, |clock| clock());
        let (name, state) = match words[..] {
            ["begin", name] => (name, State::Busy),
            ["gone", name] => (name, State::Gone),
            ["has", name, contents] => (name, State::Has(contents.into())),
            _ => return,
        };
        history.names.entry(name.into()).or_default().push((time, state));
    }
}

/// The running program.
pub(crate) struct Worker {
    process: Proc,
    stop: PathBuf,
    steps: Arc<AtomicUsize>,
    listener: JoinHandle<Option<String>>,
}

impl Worker {
    /// Starts it on `host`; its files are called `TAG-NUMBER`.
    pub(crate) fn start(host: &Host, dir: &Path, tag: &str, done: &Acknowledged) -> Worker {
        let stop = host.dir().join(format!("stop-{tag}"));
        let mut command = host.command(std::env::current_exe().unwrap());
        command.args(["--exact", "worker::worker", "--ignored", "--nocapture"]);
        command.env("WORKER_DIR", dir).env("WORKER_TAG", tag).env("WORKER_STOP", &stop);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = host.spawn(&mut command).unwrap();
        let (lines, answers) = (process.stdout().unwrap(), process.stdin().unwrap());
        let (steps, heard) = (Arc::new(AtomicUsize::new(0)), done.clone());
        let count = Arc::clone(&steps);
        let listener = std::thread::spawn(move || listen(lines, answers, &heard, &count));
        Worker { process, stop, steps, listener }
    }

    /// Waits until it has done `count` steps more; or has failed.
    pub(crate) fn wait_for(&self, count: usize) {
        let enough = self.steps.load(Ordering::Relaxed) + count;
        eventually("the work goes on", || {
            self.steps.load(Ordering::Relaxed) >= enough || self.listener.is_finished()
        });
    }

    /// Waits for its failure.
    pub(crate) fn failure(mut self) -> Option<String> {
        self.process.wait().unwrap();
        self.listener.join().unwrap()
    }

    /// Has it stop; fails if a call of it failed.
    pub(crate) fn finish(mut self) {
        fs::write(&self.stop, "").unwrap();
        eventually("the worker ends", || self.process.try_wait().unwrap().is_some());
        let failure = self.listener.join().unwrap();
        assert_eq!(failure, None, "a call failed");
    }
}

/// Takes in what the program says, and answers each line, so that what is about to be done is
/// known before; returns why it failed, if it did.
fn listen(
    lines: ChildStdout,
    mut answers: ChildStdin,
    done: &Acknowledged,
    steps: &AtomicUsize,
) -> Option<String> {
    for line in BufReader::new(lines).lines().map(Result::unwrap) {
        // The test harness around it says something, too.
        let Some(line) = line.strip_prefix(MARK) else { continue };
        match line {
            "step" => drop(steps.fetch_add(1, Ordering::Relaxed)),
            line if line.starts_with("failed") => return Some(line.to_owned()),
            line => done.hear(line),
        }
        // It may have been killed.
        let _ = answers.write_all(b"\n");
    }
    None
}

/// What the program's own lines begin with.
const MARK: &str = "worker: ";

/// Not a test: the program.
#[test]
#[ignore = "a part of other tests"]
fn worker() {
    let path = |name| std::env::var_os(name).map(PathBuf::from).unwrap();
    let (dir, stop) = (path("WORKER_DIR"), path("WORKER_STOP"));
    let tag = std::env::var("WORKER_TAG").unwrap();
    println!();
    let failed = (0..).take_while(|_| !stop.exists()).map(|number| step(&dir, &tag, number));
    if let Some(error) = failed.filter_map(Result::err).next() {
        println!("{MARK}failed: {error}");
    }
}

/// Says a line, and waits until it has been heard.
fn tell(line: &str) -> io::Result<()> {
    println!("{MARK}{line}");
    match io::stdin().read_line(&mut String::new())? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// A file is written and closed, renamed to its name, and sometimes an older one is removed or
/// written over.
fn step(dir: &Path, tag: &str, number: u64) -> io::Result<()> {
    let (temporary, name) = (format!("{tag}-{number}.tmp"), format!("{tag}-{number}"));
    let contents = write(dir, &temporary, &noise(number, size(number)))?;
    tell(&format!("begin\t{temporary}"))?;
    tell(&format!("begin\t{name}"))?;
    fs::rename(dir.join(&temporary), dir.join(&name))?;
    tell(&format!("gone\t{temporary}"))?;
    tell(&format!("has\t{name}\t{contents}"))?;
    let older = format!("{tag}-{}", number.saturating_sub(5));
    match number % 5 {
        0 if number > 0 => {
            tell(&format!("begin\t{older}"))?;
            fs::remove_file(dir.join(&older))?;
            tell(&format!("gone\t{older}"))?;
        }
        1 if number > 1 => {
            write(dir, &older, &noise(number + 1_000_000, size(number + 3)))?;
        }
        _ => {}
    }
    tell("step")
}

/// Makes or replaces a file; returns the hash of its contents.
fn write(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<String> {
    let contents = hash_of(bytes);
    tell(&format!("begin\t{name}"))?;
    save(&dir.join(name), bytes)?;
    tell(&format!("has\t{name}\t{contents}"))?;
    Ok(contents)
}

fn size(number: u64) -> usize {
    [0, 100, 5_000, 70_000, 8_192, 600_000, 1][(number % 7) as usize]
}
