//! Second names of the containers that memory maps may write to.
//!
//! The kernel reports no store of such a map. So the log lacks the last stores when the mount's
//! process dies, also those that msync(2) made durable. A second name in `maps/` keeps each such
//! container for the next process. The modification time of the container tells whether a map
//! changed it since the last log entry, because the mount dates back its own changes.
//!
//! ```text
//!   INODE-NUMBER            a map may write to this container
//!   INODE-NUMBER.unlogged   the time is set back already, and the log does not have the stores yet
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::container::is_touched;
use super::containers::{Containers, Key, parse, text_of};
use super::durable::sync_directory;

use crate::rank::{Held, Ranked};

const MAPS: &str = "maps";
const UNLOGGED: &str = "unlogged";

/// The directory of these names.
#[derive(Debug)]
pub(crate) struct Maps {
    directory: PathBuf,
    left: Ranked<Vec<LeftMap>>,
}

/// The second name of one container.
#[derive(Debug)]
pub(crate) struct MapName {
    path: PathBuf,
}

/// A container that an earlier process left, and that a map wrote to behind its last log entry.
#[derive(Debug)]
pub(crate) struct LeftMap {
    pub(crate) key: Key,
    pub(crate) file: File,
    path: PathBuf,
}

impl Maps {
    /// Those of the cache directory `cache`.
    pub(crate) fn at(cache: &Path) -> io::Result<Maps> {
        let directory = cache.join(MAPS);
        fs::create_dir_all(&directory)?;
        Ok(Maps { directory, left: Ranked::default() })
    }

    /// The second name of a container.
    pub(crate) fn name(&self, key: Key) -> MapName {
        MapName { path: self.directory.join(text_of(key)) }
    }

    /// Separates the containers that an earlier process left from its maps, which outlive it and
    /// may write on: each that is still there becomes a copy. A start that was broken off may have
    /// made it already.
    ///
    /// Remembers the containers with stores that the log may lack. After a loss of power these are
    /// all: the disk may have the stores that msync made durable, and not their time.
    pub(crate) fn separate(&self, containers: &Containers, lost_power: bool) -> io::Result<()> {
        for (key, path) in names(&self.directory)? {
            let file = File::open(&path)?;
            let is_unlogged = path.extension().is_some_and(|end| end == UNLOGGED);
            let is_touched = lost_power || is_unlogged || is_touched(&file)?;
            if let Err(error) = containers.replace(key, &file) {
                tracing::warn!(
                    "inode {}: its container cannot be copied, so a memory map of the earlier \
                     mount can still change it: {error}",
                    key.0
                );
            }
            match is_touched {
                true => self.left().push(LeftMap { key, file, path }),
                false => fs::remove_file(path)?,
            }
        }
        Ok(())
    }

    /// The containers with stores that the log may lack, once.
    pub(crate) fn take_left(&self) -> Vec<LeftMap> {
        std::mem::take(&mut *self.left())
    }

    fn left(&self) -> Held<'_, Vec<LeftMap>> {
        self.left.lock()
    }
}

/// The containers to which maps may have written when the last process of a cache directory died.
pub(crate) fn mapped(cache: &Path) -> io::Result<Vec<Key>> {
    Ok(names(&cache.join(MAPS))?.into_iter().map(|(key, _)| key).collect())
}

fn names(directory: &Path) -> io::Result<Vec<(Key, PathBuf)>> {
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    let mut names = Vec::new();
    for entry in found {
        let entry = entry?;
        let path = entry.path();
        if !entry.file_type()?.is_file() {
            tracing::warn!("{}: not used, because it is no container file", path.display());
            continue;
        }
        let key = path.file_stem().and_then(|stem| parse(stem.to_str()?));
        names.extend(key.map(|key| (key, path)));
    }
    Ok(names)
}

impl MapName {
    /// Gives a container its second name, durably.
    pub(super) fn give(&self, container: &Path) -> io::Result<()> {
        self.take_back()?;
        fs::hard_link(container, &self.path)?;
        self.path.parent().map_or(Ok(()), sync_directory)
    }

    /// The time of the container is going to be set back, and the log lacks stores of a map.
    pub(super) fn mark_unlogged(&self) -> io::Result<()> {
        rename(&self.path, &self.unlogged())
    }

    /// The log has these stores.
    pub(super) fn mark_logged(&self) -> io::Result<()> {
        rename(&self.unlogged(), &self.path)
    }

    /// No map writes to the container any more.
    pub(super) fn take_back(&self) -> io::Result<()> {
        [&self.path, &self.unlogged()].into_iter().try_for_each(|path| gone(fs::remove_file(path)))
    }

    fn unlogged(&self) -> PathBuf {
        self.path.with_extension(UNLOGGED)
    }
}

impl LeftMap {
    /// The log has its stores durably, or they are kept elsewhere.
    pub(crate) fn forget(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// A name that has been changed before is not there.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    gone(fs::rename(from, to))
}

fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
