//! The tree that every file system mirrors, and what the tests find in it.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::workload::{Workload, WorkloadDir, content, expect, scaled, untar};
use segue_bed::{Doing, Host, Result, Rng};

/// Size of each file of data in MB.
const MEGABYTES: u32 = 64;
const NAMES: u32 = 10_000;

/// Files to be read, one for each test that needs one not read yet, and to be written.
const DATA: [&str; 7] = ["read-1m", "read-4k", "random", "map", "upcall", "write", "map-write"];

/// The course: once for all file systems, and as seen through one of them.
#[derive(Debug, Clone)]
pub(super) struct Course {
    pub(super) host: Host,
    /// The tree itself.
    pub(super) source: PathBuf,
    /// Where to run: the tree, or a mirror of it.
    pub(super) dir: PathBuf,
    pub(super) scale: f64,
}

impl Course {
    /// Lays out the tree on `host`.
    pub(super) fn lay(host: &Host, scale: f64) -> Result<Course> {
        let source = host.mkdir("source")?;
        let course = Course { host: host.clone(), dir: source.clone(), source, scale };
        let mut rng = Rng::new(11);
        for name in DATA {
            let mut file = File::create(course.path(name)).doing("create data")?;
            for _ in 0..course.megabytes() {
                file.write_all(&content::noise(&mut rng, 1 << 20)).doing("write data")?;
            }
        }
        for dir in ["names", "found", "known"] {
            fs::create_dir(course.path(dir)).doing("make a directory")?;
            for number in 0..course.names() {
                fs::write(course.path(dir).join(name(number)), "x").doing("write a file")?;
            }
        }
        untar::SOURCES.warm(&course.place())?;
        Ok(course)
    }

    /// Lets what earlier tests wrote into file `name` reach the disk, so that it does not
    /// disturb the next.
    pub(super) fn settle(&self, name: &str) -> Result<()> {
        File::open(self.source.join(name)).and_then(|file| file.sync_all()).doing("fsync")
    }

    /// An error unless all under `part` is as in the tree: a mirror that is wrong has failed,
    /// however fast.
    pub(super) fn compare(&self, part: &str) -> Result<()> {
        if self.dir == self.source {
            return Ok(());
        }
        let (ours, theirs) = (hashes(&self.dir.join(part))?, hashes(&self.source.join(part))?);
        let differs = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
        let same = differs.is_none() && ours.len() == theirs.len();
        expect(same, || format!("not the same as in the source: {differs:?}"))
    }

    /// The course as seen in `dir`.
    pub(super) fn at(&self, dir: &Path) -> Course {
        Course { dir: dir.to_owned(), ..self.clone() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn place(&self) -> WorkloadDir {
        WorkloadDir { host: self.host.clone(), dir: self.dir.clone(), scale: self.scale }
    }

    /// `standard` at this course's scale, at least one.
    pub(super) fn scaled(&self, standard: u32) -> u32 {
        scaled(standard, self.scale)
    }

    pub(super) fn megabytes(&self) -> u32 {
        self.scaled(MEGABYTES)
    }

    pub(super) fn names(&self) -> u32 {
        self.scaled(NAMES)
    }
}

/// Everything under `dir` by its path: kind, owner, size and times of each, and a hash of what
/// is in it.
fn hashes(dir: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let mut all = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir_left) = left.pop() {
        for entry in fs::read_dir(&dir_left).doing("list")? {
            let path = entry.doing("list")?.path();
            let meta = fs::symlink_metadata(&path).doing("stat")?;
            let mut hash = DefaultHasher::new();
            (meta.mode(), meta.uid(), meta.gid(), meta.nlink()).hash(&mut hash);
            if meta.is_dir() {
                left.push(path.clone());
            } else {
                (meta.len(), meta.mtime(), meta.mtime_nsec()).hash(&mut hash);
                hash_data(&path, &mut hash)?;
            }
            let name = path.strip_prefix(dir).unwrap_or(&path).to_owned();
            all.push((name, hash.finish()));
        }
    }
    all.sort();
    Ok(all)
}

fn hash_data(path: &Path, hash: &mut DefaultHasher) -> Result<()> {
    let mut file = File::open(path).doing("open")?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let len = file.read(&mut buffer).doing("read")?;
        match buffer.get(..len) {
            Some([]) | None => return Ok(()),
            Some(data) => hash.write(data),
        }
    }
}

/// The name of file `number` in a directory of many.
pub(super) fn name(number: u32) -> String {
    format!("file{number:05}")
}
