//! A program that works in a directory and says what it has done, until it is stopped or fails.
//!
//! It is a process of its own: whatever the tests' process starts inherits its open files for
//! a moment and closes them, and closing a written file waits for the server. A test that
//! starts a server must therefore not hold such a file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use segue_bench::bed::{Host, Proc};

use crate::tree::{hash, hash_of, noise};
use crate::world::{eventually, save};

/// What was acknowledged: names with the hash of their contents, or that there is no such
/// name any more. A name that a call was about to change is not in it.
#[derive(Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<BTreeMap<String, Option<String>>>>);

impl Acknowledged {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Fails unless `dir` has all of it.
    pub(crate) fn check(&self, dir: &Path, when: &str) {
        for (name, expected) in self.0.lock().unwrap().iter() {
            let path = dir.join(name);
            match expected {
                Some(expected) => {
                    let found = path.exists().then(|| hash(&path));
                    assert_eq!(found.as_ref(), Some(expected), "{when}: {name}");
                }
                None => assert!(!path.exists(), "{when}: {name} is back"),
            }
        }
    }

    /// Takes in a line of the program; returns false at its last.
    fn hear(&self, line: &str) -> bool {
        let words: Vec<_> = line.split('\t').collect();
        let mut known = self.0.lock().unwrap();
        match words[..] {
            ["begin", name] => drop(known.remove(name)),
            ["gone", name] => drop(known.insert(name.into(), None)),
            ["has", name, contents] => drop(known.insert(name.into(), Some(contents.into()))),
            _ => return !line.starts_with("failed"),
        }
        true
    }
}

/// The running program.
pub(crate) struct Worker {
    process: Proc,
    stop: PathBuf,
    listener: JoinHandle<Option<String>>,
    done: Acknowledged,
}

impl Worker {
    /// Starts it on `host`; its files are called `TAG-NUMBER`.
    pub(crate) fn start(host: &Host, dir: &Path, tag: &str, done: &Acknowledged) -> Worker {
        let stop = host.dir().join(format!("stop-{tag}"));
        let mut command = host.command(std::env::current_exe().unwrap());
        command.args(["--exact", "worker::worker", "--ignored", "--nocapture"]);
        command.env("WORKER_DIR", dir).env("WORKER_TAG", tag).env("WORKER_STOP", &stop);
        let mut process = host.spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let (lines, heard) = (process.stdout().unwrap(), done.clone());
        let listener = std::thread::spawn(move || listen(lines, &heard));
        Worker { process, stop, listener, done: done.clone() }
    }

    /// Waits until it has done `count` more than `before`; or has failed.
    pub(crate) fn wait_for(&self, before: usize, count: usize) {
        eventually("the work goes on", || {
            self.done.len() >= before + count || self.listener.is_finished()
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

/// Takes in what the program says; returns why it failed, if it did.
fn listen(lines: ChildStdout, done: &Acknowledged) -> Option<String> {
    let lines = BufReader::new(lines).lines();
    lines.map(Result::unwrap).find(|line| !done.hear(line))
}

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
        println!("failed\t{error}");
    }
}

/// A file is written and closed, renamed to its name, and sometimes an older one is removed or
/// written over.
fn step(dir: &Path, tag: &str, number: u64) -> std::io::Result<()> {
    let (temporary, name) = (format!("{tag}-{number}.tmp"), format!("{tag}-{number}"));
    let bytes = noise(number, size(number));
    save(&dir.join(&temporary), &bytes)?;
    fs::rename(dir.join(&temporary), dir.join(&name))?;
    println!("has\t{name}\t{}", hash_of(&bytes));
    let older = format!("{tag}-{}", number.saturating_sub(5));
    if number < 5 || number % 5 > 1 {
        return Ok(());
    }
    println!("begin\t{older}");
    if number.is_multiple_of(5) {
        fs::remove_file(dir.join(&older))?;
        println!("gone\t{older}");
    } else {
        let bytes = noise(number + 1_000_000, size(number + 3));
        save(&dir.join(&older), &bytes)?;
        println!("has\t{older}\t{}", hash_of(&bytes));
    }
    Ok(())
}

fn size(number: u64) -> usize {
    [0, 100, 5_000, 70_000, 8_192, 600_000, 1][(number % 7) as usize]
}
