//! Old snapshots go, and with them the packs that only they needed.
//!
//! ```text
//!   read     from the newest on, until enough are complete: which packs they need
//!   names    of older snapshots go, and that is on the disk
//!   packs    that nobody needs go: out of the index first, then as files
//! ```
//!
//! Snapshots that are damaged, or lack something, do not count: however many of them are newer, as
//! many as were asked for are complete. So nothing goes as long as there are not more of these.
//!
//! Whatever ends this leaves snapshots whole. What it did not come to goes the next time that
//! snapshots go. A pack of which anything is needed stays as it is.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;

use segue_core::upkeep::dump;
use serde::{Deserialize, Serialize};

use super::{BackupDir, Index, Reader};
use crate::packs::file_name;
use crate::task::Failed;

/// What became of old snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pruned {
    /// How many went.
    pub snapshots: u64,
    /// Bytes of packs that went with them.
    pub bytes: u64,
    /// Why not all went that could, for people.
    pub failed: Option<String>,
}

/// Told that it goes on; an error ends the work.
pub(super) type GoesOn<'a> = dyn FnMut() -> Result<(), Failed> + 'a;

/// Removes snapshots that are older than the newest `keep` which are complete. `last` is the
/// newest, whatever its name says.
pub(super) fn prune(
    directory: &BackupDir,
    (keep, last): (NonZeroU32, &str),
    goes_on: &mut GoesOn<'_>,
) -> Pruned {
    let mut pruned = Pruned::default();
    if let Err(failed) = remove(directory, (keep, last), &mut pruned, goes_on) {
        pruned.failed = Some(failed.words);
    }
    pruned
}

fn remove(
    directory: &BackupDir,
    (keep, last): (NonZeroU32, &str),
    pruned: &mut Pruned,
    goes_on: &mut GoesOn<'_>,
) -> Result<(), Failed> {
    let mut names = directory.snapshots()?;
    names.retain(|name| name != last);
    names.push(last.to_owned());
    if names.len() <= keep.get() as usize {
        return Ok(());
    }
    let index = Index::open(&directory.index(), &directory.packs())?;
    let (mut needed, mut complete) = (BTreeSet::new(), 0);
    while complete < keep.get() {
        let Some(name) = names.pop() else { return Ok(()) };
        let path = directory.snapshot(&name);
        complete += u32::from(add_needed(&path, &index, &mut needed, goes_on)?);
    }
    if names.is_empty() {
        return Ok(());
    }
    for name in &names {
        directory.remove_snapshot(name)?;
        pruned.snapshots += 1;
    }
    // A snapshot that is there again after a power loss has its packs.
    directory.sync_snapshots()?;
    remove_packs(directory, &index, &needed, pruned)
}

/// Adds the packs of a snapshot to `needed`; true if the snapshot is whole and every chunk that it
/// names is there.
fn add_needed(
    path: &Path,
    index: &Index,
    needed: &mut BTreeSet<u64>,
    goes_on: &mut GoesOn<'_>,
) -> Result<bool, Failed> {
    let Ok(mut reader) = Reader::open(path) else { return Ok(false) };
    let mut is_complete = true;
    loop {
        let Ok(row) = reader.next() else { return Ok(false) };
        let Some((key, value)) = row else { return Ok(is_complete) };
        if let Some((fingerprint, _)) = dump::chunk(&key, &value) {
            let place = index.find(&fingerprint)?;
            is_complete &= place.is_some();
            needed.extend(place.map(|place| place.pack));
        }
        goes_on()?;
    }
}

fn remove_packs(
    directory: &BackupDir,
    index: &Index,
    needed: &BTreeSet<u64>,
    pruned: &mut Pruned,
) -> Result<(), Failed> {
    let packs = index.packs()?;
    // The last one is appended to, and its number must not be given again.
    let last = packs.iter().copied().max();
    for pack in packs.into_iter().filter(|pack| Some(*pack) != last && !needed.contains(pack)) {
        let path = directory.packs().join(file_name(pack));
        let fail = |error| Failed::io(&path, &error);
        let bytes = path.metadata().map_err(fail)?.len();
        index.remove(pack)?;
        std::fs::remove_file(&path).map_err(fail)?;
        pruned.bytes += bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use segue_core::namespace::{ChunkPlace, ChunkRow, Limits, Tally, VolumeRow, keys};
    use segue_core::nouns::{Fingerprint, Timestamp, VolumeId};

    use super::super::{Head, rows::Writer};
    use super::*;
    use crate::disk_space::Purpose;
    use crate::packs::{Packs, StoredChunk, pack_files};

    const VOLUME: VolumeId = VolumeId(1);

    type Chunk = (Fingerprint, ChunkPlace);

    /// A directory with four packs of two chunks each.
    fn directory(path: &Path) -> (BackupDir, Vec<Chunk>) {
        let directory = BackupDir::create(path, &[1; 16], "home").unwrap();
        let packs = Packs::open(&directory.packs(), 0).unwrap();
        let chunk = |number: u8| {
            let bytes = [number; 100];
            let fingerprint = segue_core::chunk::fingerprint(&bytes);
            let stored = bytes.to_vec().into();
            let chunk = StoredChunk { fingerprint, raw_len: 100, stored };
            let (places, unsynced) = packs.append(VOLUME, &[chunk], Purpose::Store).unwrap();
            packs.sync(&unsynced).unwrap();
            if number % 2 == 1 {
                packs.close(places[0].pack);
            }
            (fingerprint, places[0])
        };
        let chunks = (0..8).map(chunk).collect();
        (directory, chunks)
    }

    fn snapshot<'a>(
        directory: &BackupDir,
        name: &str,
        chunks: impl IntoIterator<Item = &'a Chunk>,
    ) {
        let volume = VolumeRow {
            name: "home".to_owned(),
            uuid: [1; 16],
            epoch: 1,
            created: Timestamp::default(),
            next_ino: 1 << 20,
            lost: Vec::new(),
            limits: Limits::default(),
        };
        let head = Head { volume, tally: Tally::default(), taken: 0 };
        let mut writer = Writer::create(&directory.unfinished(), &head).unwrap();
        for (fingerprint, place) in chunks {
            let row = ChunkRow { place: *place, refs: 1, due: 0 };
            let value = postcard::to_stdvec(&row).unwrap();
            writer.row(&keys::chunk(VOLUME, fingerprint), &value).unwrap();
        }
        writer.finish().unwrap();
        directory.finish(name).unwrap();
    }

    fn keep(directory: &BackupDir, count: u32, last: &str) -> Pruned {
        prune(directory, (NonZeroU32::new(count).unwrap(), last), &mut || Ok(()))
    }

    /// What is asked for stays complete, also for an index that is made anew; a pack goes when
    /// nothing of it is needed.
    #[test]
    fn old_snapshots_go_with_what_only_they_needed() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, chunks) = directory(&dir.path().join("b"));
        snapshot(&directory, "1-1-1", &chunks[..6]);
        snapshot(&directory, "2-1-1", &chunks[3..6]);
        snapshot(&directory, "3-1-1", &chunks[4..6]);
        assert_eq!(keep(&directory, 3, "3-1-1"), Pruned::default());
        let pruned = keep(&directory, 2, "3-1-1");
        assert_eq!((pruned.snapshots, pruned.failed), (1, None));
        assert_eq!(directory.snapshots().unwrap(), ["2-1-1", "3-1-1"]);
        assert_eq!(pack_files(&directory.packs()).unwrap(), [2, 3, 4]);
        std::fs::remove_file(directory.index()).unwrap();
        let index = Index::open(&directory.index(), &directory.packs()).unwrap();
        let known = chunks.iter().map(|(name, _)| index.find(name).unwrap().is_some());
        assert!(known.eq([false, false, true, true, true, true, true, true]));
        // The clock was set back: the last one is the newest all the same.
        snapshot(&directory, "1-1-2", &chunks[4..6]);
        assert_eq!(keep(&directory, 1, "1-1-2").snapshots, 2);
        assert_eq!(directory.snapshots().unwrap(), ["1-1-2"]);
        assert_eq!(pack_files(&directory.packs()).unwrap(), [3, 4]);
    }

    /// However many newer ones are damaged or lack something, the last good one stays.
    #[test]
    fn the_last_good_snapshots_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, chunks) = directory(&dir.path().join("b"));
        snapshot(&directory, "1-1-1", &chunks[..2]);
        snapshot(&directory, "2-1-1", &chunks[2..4]);
        snapshot(&directory, "3-1-1", &chunks[4..6]);
        let path = directory.snapshot("3-1-1");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        let lost = (Fingerprint([9; 32]), chunks[0].1);
        snapshot(&directory, "4-1-1", [&chunks[7], &lost]);
        assert_eq!(keep(&directory, 1, "4-1-1").snapshots, 1);
        assert_eq!(directory.snapshots().unwrap(), ["2-1-1", "3-1-1", "4-1-1"]);
        assert_eq!(keep(&directory, 2, "4-1-1"), Pruned::default());
        let packs = pack_files(&directory.packs()).unwrap();
        assert!(packs.starts_with(&[2]) && packs.contains(&4), "{packs:?}");
    }

    /// It is ended before anything went, and between snapshots and packs: what is there is whole.
    #[test]
    fn whatever_ends_it_leaves_snapshots_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, chunks) = directory(&dir.path().join("b"));
        for (name, chunks) in [("1-1-1", &chunks[..2]), ("2-1-1", &chunks[2..6])] {
            snapshot(&directory, name, chunks);
        }
        let one = NonZeroU32::MIN;
        let pruned = prune(&directory, (one, "2-1-1"), &mut || Err(Failed::stopped()));
        assert!(pruned.snapshots == 0 && pruned.failed.is_some(), "{pruned:?}");
        assert_eq!(directory.snapshots().unwrap().len(), 2);
        // Killed before any pack went, and before the file of one did.
        directory.remove_snapshot("1-1-1").unwrap();
        Index::open(&directory.index(), &directory.packs()).unwrap().remove(1).unwrap();
        let index = Index::open(&directory.index(), &directory.packs()).unwrap();
        assert!(chunks.iter().all(|(name, _)| index.find(name).unwrap().is_some()));
        drop(index);
        // The next time, what was left over goes too.
        snapshot(&directory, "3-1-1", &chunks[4..6]);
        let pruned = prune(&directory, (one, "3-1-1"), &mut || Ok(()));
        assert_eq!((pruned.snapshots, pruned.failed), (1, None));
        assert_eq!(pack_files(&directory.packs()).unwrap(), [3, 4]);
    }
}
