//! Bytes of changes on their way to the server that were overwritten in their containers since:
//! one sparse file for each change, `preserved/SEQ`, at the same offsets as in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::container::{read_zeros, write_anew};
use super::durable::{Trust, sync_data, sync_directory};

use crate::rank::{Held, Rank, Ranked};

/// All of them.
#[derive(Debug)]
pub(crate) struct Preserved {
    root: PathBuf,
    unsynced: Ranked<BTreeSet<u64>>,
    /// Of which a sync failed.
    doubted: Ranked<BTreeMap<u64, Trust>>,
    /// Held while one is written to.
    writing: Ranked<()>,
    /// Held from the beginning of a sync to its end.
    syncing: Ranked<()>,
}

impl Preserved {
    /// Those below `root`.
    pub(crate) fn at(root: PathBuf) -> io::Result<Preserved> {
        fs::create_dir_all(&root)?;
        let (unsynced, doubted) = Default::default();
        let writing = Ranked::new(Rank::Preserving, ());
        let syncing = Ranked::new(Rank::SyncingData, ());
        Ok(Preserved { root, unsynced, doubted, writing, syncing })
    }

    fn unsynced(&self) -> Held<'_, BTreeSet<u64>> {
        self.unsynced.lock()
    }

    fn writing(&self) -> Held<'_, ()> {
        self.writing.lock()
    }

    fn doubted(&self) -> Held<'_, BTreeMap<u64, Trust>> {
        self.doubted.lock()
    }

    fn path(&self, seq: u64) -> PathBuf {
        self.root.join(seq.to_string())
    }

    /// Keeps `bytes` of change `seq`.
    pub(crate) fn keep(&self, seq: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _writing = self.writing();
        let file = File::options().create(true).write(true).truncate(false).open(self.path(seq))?;
        file.write_all_at(bytes, offset)?;
        self.unsynced().insert(seq);
        Ok(())
    }

    /// Bytes that were kept.
    pub(crate) fn read(&self, seq: u64, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        read_zeros(&File::open(self.path(seq))?, offset, len)
    }

    /// True if something that was kept is not durable.
    pub(crate) fn needs_sync(&self) -> bool {
        !self.unsynced().is_empty()
    }

    /// Makes durable what was kept.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let _syncing = self.syncing.lock();
        let seqs = std::mem::take(&mut *self.unsynced());
        if seqs.is_empty() {
            return Ok(());
        }
        let sync = |seq: &u64| match File::open(self.path(*seq)) {
            // Nobody needs it any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => self.sync_one(*seq, &opened?),
        };
        let synced = seqs.iter().try_for_each(sync).and_then(|()| sync_directory(&self.root));
        if synced.is_err() {
            self.unsynced().extend(seqs);
        }
        synced
    }

    fn sync_one(&self, seq: u64, file: &File) -> io::Result<()> {
        let mut trust = self.doubted().get(&seq).copied().unwrap_or_default();
        let synced = trust.sync(file);
        if synced.is_err() {
            self.doubted().insert(seq, trust);
        }
        synced
    }

    /// Changes of which a sync failed: what is kept for them is to be
    /// [written anew](Preserved::write_anew), and until it [is whole](Preserved::mark_whole) each
    /// further sync fails.
    pub(crate) fn take_doubted(&self) -> BTreeSet<u64> {
        let mut doubted = self.doubted();
        doubted.iter_mut().filter_map(|(seq, trust)| trust.take_doubt().then_some(*seq)).collect()
    }

    /// Writes what is kept for a change onto the disk anew.
    pub(crate) fn write_anew(&self, seq: u64) -> io::Result<()> {
        let _writing = self.writing();
        let file = match File::options().read(true).write(true).open(self.path(seq)) {
            // Nobody needs it any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        write_anew(&file)?;
        sync_data(&file)
    }

    /// Marks the bytes kept for change `seq` as verified.
    pub(crate) fn mark_whole(&self, seq: u64) {
        self.doubted().remove(&seq);
    }

    /// Forgets what was kept for a change.
    pub(crate) fn remove(&self, seq: u64) -> io::Result<()> {
        self.doubted().remove(&seq);
        match fs::remove_file(self.path(seq)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The changes for which something is kept.
    pub(crate) fn changes(&self) -> io::Result<Vec<u64>> {
        let mut seqs = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            seqs.extend(number(&entry?.path()));
        }
        Ok(seqs)
    }
}

fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S23.4.
    #[test]
    fn what_is_kept_is_there_until_nobody_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let preserved = Preserved::at(dir.path().join("preserved")).unwrap();
        preserved.keep(7, 4096, b"abc").unwrap();
        preserved.keep(7, 10, b"x").unwrap();
        preserved.keep(8, 0, b"y").unwrap();
        preserved.sync().unwrap();
        assert_eq!(preserved.read(7, 4096, 5).unwrap(), b"abc\0\0");
        assert_eq!(
            preserved.changes().unwrap().into_iter().collect::<BTreeSet<_>>(),
            [7, 8].into()
        );
        preserved.remove(7).unwrap();
        preserved.remove(7).unwrap();
        assert!(preserved.read(7, 0, 1).is_err());
    }
}
