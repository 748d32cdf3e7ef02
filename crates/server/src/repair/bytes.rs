//! Chunks whose bytes cannot be read at their place: another copy, if there is one.

use std::collections::BTreeSet;

use segue_core::namespace::{MetaSnapshot, arrived, keys};
use segue_core::nouns::VolumeId;
use segue_core::upkeep::dump;

use super::{RepairLine, Work, find};
use crate::meta::Kv;
use crate::task::{Failed, lost_files};

/// Chunks looked at on one snapshot.
const PAGE: usize = 256;
/// What can be done about bytes that are nowhere.
const REMEDY: &str = "reads of these bytes fail and never return wrong bytes; restore the file \
                      from a backup, or write it again on a host that has it: that repairs every \
                      file with these bytes";

/// Reads every chunk of the volume once, and gives those that are elsewhere their place.
pub(super) fn repair(work: &mut Work<'_>, id: VolumeId) -> Result<(), Failed> {
    let data = work.data.clone();
    let prefix = keys::chunks(id);
    let (mut from, mut lost, mut chunks) = (prefix.clone(), BTreeSet::new(), 0);
    loop {
        let range = |kv: &mut Kv<'_>| kv.range(&from, &keys::after(&prefix), PAGE);
        let page = data.store.read_noting(range)?.0?;
        let Some((last, _)) = page.last() else { break };
        from = [last, &[0][..]].concat();
        for (key, value) in page {
            let Some((fingerprint, row)) = dump::chunk(&key, &value) else { continue };
            chunks += 1;
            if data.packs.read(&fingerprint, &row.place).is_ok() {
                continue;
            }
            let Some(place) = find(&data, id, &mut work.index, &fingerprint) else {
                lost.insert(fingerprint);
                continue;
            };
            if !work.request.dry_run {
                let known = Some(row.place);
                data.store
                    .write_blocking(move |txn| arrived(txn, (id, &fingerprint), place, known, 0))?;
            }
            work.say(RepairLine::Repaired {
                path: None,
                ino: None,
                what: format!("chunk {fingerprint} cannot be read at its place"),
                how: "it now uses another copy found in the packs".to_owned(),
            });
        }
        work.say(RepairLine::Progress { inodes: 0, chunks });
    }
    lost_files::visit(&data.store, id, &lost, &mut |file| {
        work.say(RepairLine::Lost {
            path: file.path,
            ino: Some(file.ino.0),
            what: format!(
                "{} bytes of it cannot be read, the first at byte {}",
                file.bytes, file.first
            ),
            remedy: REMEDY.to_owned(),
        });
    })
}
