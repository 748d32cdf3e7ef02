//! Conflict copies that changes of other hosts became, beside files whose data this host made: the
//! server tells of them while the mount lives.

use std::collections::BTreeMap;
use std::sync::Mutex;

use segue_core::namespace::original_name;
use segue_core::types::Name;
use segue_core::wire::{Became, Watched};

use super::{Mount, Shared, lock};
use crate::control::types::{Conflict, ConflictKind};

/// Most of them that are remembered.
const COPIES_MAX: usize = 10_000;

/// Those that are known, by their paths in the volume.
#[derive(Debug, Default)]
pub(super) struct CopiesBeside(Mutex<BTreeMap<String, Conflict>>);

impl Mount {
    /// Hears of them until the mount ends.
    pub(super) async fn hear_of_copies(self: Shared) {
        let mut since = None;
        loop {
            match self.remote.watch_copies(since).await {
                Ok(all) => {
                    since = Some(all.commit);
                    all.changes.iter().for_each(|change| self.hear_of_copy(change));
                }
                Err(refusal) => {
                    tracing::debug!("conflict copies are not told of: {refusal}");
                    self.pause().await;
                }
            }
        }
    }

    fn hear_of_copy(&self, change: &Watched) {
        let Some((name, directory)) = change.path.split_last() else { return };
        let below = |name: &str| {
            let names = directory.iter().map(Name::to_string).chain([name.to_owned()]);
            names.collect::<Vec<String>>().join("/")
        };
        let path = below(&name.to_string());
        let mut copies = lock(&self.beside.0);
        let (Became::Named(attr), Some(of)) = (&change.became, original_name(name.as_bytes()))
        else {
            copies.remove(&path);
            return;
        };
        if copies.len() >= COPIES_MAX {
            return;
        }
        tracing::warn!("conflict: another host's change stands beside this host's, as {path}");
        let conflict = Conflict {
            kind: ConflictKind::Beside,
            of: below(&String::from_utf8_lossy(of)),
            bytes: attr.size,
            time_seconds: attr.mtime.secs as f64,
            path: path.clone(),
            ..Conflict::default()
        };
        copies.insert(path, conflict);
    }

    /// Those that are known.
    pub(super) fn copies_beside(&self) -> Vec<Conflict> {
        lock(&self.beside.0).values().cloned().collect()
    }
}
