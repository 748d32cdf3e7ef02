//! Ages of remnants: when what is left of a removed file may go (`namespace::remnant`).
//!
//! The time is the server's own: it counts from the first look after a removal. So a restart and a
//! step of the clock keep a remnant longer, and never remove it earlier.

use std::collections::{BTreeMap, VecDeque};

use crate::namespace::remnant::let_go;
use crate::namespace::{Fault, MetaTxn, Tally, keys, readable, rows, volumes};
use crate::nouns::{Ino, VolumeId};
use crate::promise::KEPT_SECONDS;

/// Most remnants whose last question is remembered, of all volumes.
const ASKED_MAX: usize = 1 << 16;
/// Rows read at a time.
const SLICE: usize = 256;

/// How long remnants were there, for one life of a server. `now` is in seconds, from any moment.
#[derive(Debug, Default)]
pub struct RemnantAges {
    /// At that time, all remnants of the volume were from before that commit.
    looks: BTreeMap<VolumeId, VecDeque<Look>>,
    /// When a host last asked for a remnant.
    asked: BTreeMap<(VolumeId, Ino), u64>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: u64,
    commit: u64,
}

impl RemnantAges {
    /// A host asked for what is left of an inode, and got it.
    pub fn asked(&mut self, volume: VolumeId, ino: Ino, now: u64) {
        if self.asked.len() < ASKED_MAX || self.asked.contains_key(&(volume, ino)) {
            self.asked.insert((volume, ino), now);
        }
    }

    /// Leaves to collection about `budget` remnants of which the time is over, or without regard
    /// to their age if the disk `is_full`. Returns how many.
    pub fn expire<T: MetaTxn>(
        &mut self,
        txn: &mut T,
        now: u64,
        budget: usize,
        is_full: bool,
    ) -> Result<usize, Fault<T::Error>> {
        self.asked.retain(|_, at| now.saturating_sub(*at) < KEPT_SECONDS);
        let volumes: Vec<VolumeId> = volumes(txn)?.into_iter().map(|(volume, _)| volume).collect();
        self.looks.retain(|volume, _| volumes.contains(volume));
        let mut gone = 0;
        for volume in volumes {
            let due = self.look(txn, volume, now)?;
            let due = if is_full { Some(u64::MAX) } else { due };
            let Some(due) = due else { continue };
            let mut from = keys::remnant_orders(volume);
            let end = keys::remnant_order(volume, due, Ino(0));
            while gone < budget {
                let page = txn.range_past_damage(&from, &end, SLICE).map_err(Fault::Store)?;
                let Some((last, _)) = page.last() else { break };
                from = [last.as_slice(), &[0]].concat();
                for (key, _) in page {
                    let ino = keys::remnant_order_part(&key).map(|(_, ino)| ino);
                    let is_asked = ino.is_some_and(|ino| self.asked.contains_key(&(volume, ino)));
                    if gone < budget && (is_full || !is_asked) {
                        let_go(txn, volume, &key)?;
                        gone += 1;
                    }
                }
            }
        }
        Ok(gone)
    }

    /// Notes a look at `volume`. Its remnants from before the commit returned are old enough.
    fn look<T: MetaTxn>(
        &mut self,
        txn: &mut T,
        volume: VolumeId,
        now: u64,
    ) -> Result<Option<u64>, Fault<T::Error>> {
        let tally = rows::get_row(txn, &keys::volume_tally(volume), "a volume's tally");
        let tally: Option<Tally> = readable::<T, _>(tally)?;
        let Some(commit) = tally.map(|tally| tally.commits.saturating_add(1)) else {
            return Ok(None);
        };
        let looks = self.looks.entry(volume).or_default();
        if looks.back().is_none_or(|last| last.commit != commit && last.at != now) {
            looks.push_back(Look { at: now, commit });
        }
        let is_due = |look: &Look| now.saturating_sub(look.at) >= KEPT_SECONDS;
        while looks.get(1).is_some_and(is_due) {
            looks.pop_front();
        }
        Ok(looks.front().filter(|look| is_due(look)).map(|look| look.commit))
    }
}
