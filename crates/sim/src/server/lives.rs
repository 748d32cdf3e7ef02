//! Lives of the server, and images of its disk that are put back.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::namespace::lives::{self, Start};
use segue_core::nouns::{ClientId, Ino, Time, Timestamp, Version};
use segue_core::promise::Grace;

use super::doors::Doors;
use super::{Server, Violation};
use crate::check::ledger::Ledger;
use crate::plan::Bug;
use crate::rng::Rng;
use crate::store::{Disk, Txn};

/// A copy of the server's disk, with the truth about it.
#[derive(Clone)]
pub(crate) struct Image {
    disk: Disk,
    ledger: Ledger,
    attached: BTreeSet<ClientId>,
    history: BTreeMap<Ino, Vec<(Time, Option<Version>)>>,
    shown: BTreeMap<ClientId, Time>,
}

impl Server {
    /// Disks are copied: connections count, and the first life begins.
    pub(crate) fn copies(&mut self, now: Timestamp, rng: &mut Rng) -> Result<(), Violation> {
        self.doors = Some(Doors::default());
        self.ledger.note_versions(&mut Txn::begin(&mut self.disk));
        self.begin_life(now, rng)
    }

    /// Starts again: no number is given that a copy of the disk may have given.
    pub(crate) fn begin_life(&mut self, now: Timestamp, rng: &mut Rng) -> Result<(), Violation> {
        let start = Start { now, random: rng.below(u64::MAX) };
        if self.bug == Some(Bug::ServerBeginsNoLife) {
            return Ok(());
        }
        let mut txn = Txn::begin(&mut self.disk);
        let last = lives::begin(&mut txn, start)?;
        if let (Some(sessions), Some(last)) = (&mut self.sessions, last) {
            sessions.table.committed(last);
        }
        Ok(())
    }

    /// A copy of the disk as it is now.
    pub(crate) fn image(&self) -> Image {
        let sessions = self.sessions.as_ref();
        let attached = sessions.map(|sessions| {
            let connected = sessions.of.keys().chain(sessions.grace.absent());
            connected.copied().collect()
        });
        Image {
            disk: self.disk.clone(),
            ledger: self.ledger.clone(),
            attached: attached.unwrap_or_default(),
            history: sessions.map(|sessions| sessions.history.clone()).unwrap_or_default(),
            shown: sessions.map(|sessions| sessions.shown.clone()).unwrap_or_default(),
        }
    }

    /// The disk of the server, which is down, is put back.
    pub(crate) fn put_back(&mut self, image: Image, now: Time) -> Result<(), Violation> {
        self.disk = image.disk;
        self.ledger.put_back(image.ledger);
        self.forget_sessions(now);
        if let Some(sessions) = &mut self.sessions {
            sessions.grace = Grace::new(image.attached, now);
            sessions.history = image.history;
            sessions.shown = image.shown;
        }
        self.check_rows()
    }
}
