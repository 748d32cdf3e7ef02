//! The four activities of [MFS 3.4]: two that somebody waits for, two in the background.
//!
//! Each has a directory of its own in the file system under test, and data that are noise of its
//! own in each run: nothing can be left out because the server has it already.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use super::tree;
use crate::workload::content::noise;
use crate::workload::{WorkloadDir, expect, scaled};
use segue_bed::{Doing, Host, Result, Rng, run};

/// What `Grep` looks at.
const SMALL: Files = Files { count: 256, bytes: 8 << 10 };
/// What `Read` reads and `Write` writes.
const LARGE: Files = Files { count: 16, bytes: 1 << 20 };
/// In each small file.
const WORD: &[u8] = b"\nneedle\n";

/// One of the four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    /// grep over 256 cached files of 8 KB, again and again.
    Grep,
    /// cat of 16 files of 1 MB that are not cached, one after the other.
    Read,
    /// make of a tree of which nothing is cached.
    Compile,
    /// cp of 16 files of 1 MB from the local disk.
    Write,
}

/// Files of one size.
#[derive(Debug, Clone, Copy)]
struct Files {
    count: u32,
    bytes: usize,
}

impl Activity {
    /// Its name in the paper's tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Activity::Grep => "grep",
            Activity::Read => "read",
            Activity::Compile => "compile",
            Activity::Write => "write",
        }
    }

    /// Whether it is about what the client has cached before.
    pub(super) fn is_of_cached(self) -> bool {
        self == Activity::Grep
    }

    /// Whether it is done again and again, as long as anything goes on beside it.
    pub(super) fn is_repeated(self) -> bool {
        self == Activity::Grep
    }

    /// Writes what must be in the file system before; its root is `root`.
    pub(super) fn seed(self, root: &Path, run: u32, scale: f64) -> Result<()> {
        let mut rng = self.rng(run);
        let dir = root.join(self.name());
        fs::create_dir(&dir).doing(format!("make {}", dir.display()))?;
        match self {
            Activity::Grep => SMALL.write(&dir, WORD, &mut rng, scale),
            Activity::Read => LARGE.write(&dir, b"", &mut rng, scale),
            Activity::Compile => tree::plant(&dir, &mut rng, scale),
            Activity::Write => Ok(()),
        }
    }

    /// Puts what it needs on the client's own disk.
    pub(super) fn prepare(self, host: &Host, run: u32, scale: f64) -> Result<()> {
        match self {
            Activity::Write => LARGE.write(&local(host)?, b"", &mut self.rng(run), scale),
            _ => Ok(()),
        }
    }

    /// Does it once at `place`, the root of the file system: how many seconds it takes.
    pub(super) fn act(self, place: &WorkloadDir) -> Result<f64> {
        let start = Instant::now();
        match self {
            Activity::Grep => grep(place)?,
            Activity::Read => {
                let mut cat = place.host.command("cat");
                cat.args(LARGE.paths(&self.dir(place), place.scale)).stdout(Stdio::null());
                run(&mut cat)?;
            }
            Activity::Compile => {
                let mut make = place.host.command("make");
                run(make.args(["-s", "-C"]).arg(self.dir(place)).env_remove("MAKEFLAGS"))?;
            }
            Activity::Write => {
                let mut cp = place.host.command("cp");
                cp.args(LARGE.paths(&local(&place.host)?, place.scale)).arg("-t");
                run(cp.arg(self.dir(place)))?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    fn dir(self, place: &WorkloadDir) -> PathBuf {
        place.dir.join(self.name())
    }

    /// Of each run and activity another one.
    fn rng(self, run: u32) -> Rng {
        Rng::new(u64::from(run) * 4 + self as u64)
    }
}

/// Where `Write` copies from.
fn local(host: &Host) -> Result<PathBuf> {
    host.mkdir("source")
}

/// Every file by its name: nobody has to list a directory.
fn grep(place: &WorkloadDir) -> Result<()> {
    let files = SMALL.paths(&Activity::Grep.dir(place), place.scale);
    let mut grep = place.host.command("grep");
    let found = run(grep.args(["-a", "-c", "^needle$"]).env("LC_ALL", "C").args(&files))?;
    // With one file grep says no name.
    let lines = found.lines().filter(|line| line.ends_with(":1") || *line == "1").count();
    expect(lines == files.len(), || format!("grep found {lines} of {} words", files.len()))
}

impl Files {
    fn paths(self, dir: &Path, scale: f64) -> Vec<PathBuf> {
        (0..scaled(self.count, scale)).map(|number| dir.join(format!("f{number:03}"))).collect()
    }

    /// Noise, and `word` at the end of each.
    fn write(self, dir: &Path, word: &[u8], rng: &mut Rng, scale: f64) -> Result<()> {
        for path in self.paths(dir, scale) {
            let mut bytes = noise(rng, self.bytes - word.len());
            bytes.extend_from_slice(word);
            fs::write(&path, bytes).doing(format!("write {}", path.display()))?;
        }
        Ok(())
    }
}
