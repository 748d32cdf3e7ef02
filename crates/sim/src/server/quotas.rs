//! Limits that an administrator sets, as `segue-server`'s admin/quotas.rs does.

use segue_core::namespace::{Limits, limit_directory, limit_volume};
use segue_core::nouns::{Ino, Name, Time};
use segue_core::wire::Reply;

use super::{Answer, Server, note_changes};
use crate::Violation;
use crate::store::Txn;

/// What the disk has, as hosts are told: a lot.
const DISK: u64 = 1 << 40;

impl Server {
    /// Limits the volume, or the tree below a directory if there may be such a limit.
    pub(crate) fn limit(
        &mut self,
        path: &[Name],
        limits: Limits,
        now: Time,
    ) -> Result<(), Violation> {
        let volume = self.volume;
        let ask = self.sessions.as_mut().map(|sessions| sessions.table.ask());
        let mut txn = Txn::begin(&mut self.disk);
        txn.take_written();
        match path {
            [] => limit_volume(&mut txn, volume, limits)?,
            path => drop(limit_directory(&mut txn, volume, path, limits)?),
        }
        let written = txn.take_written();
        self.ledger.limited(&mut txn, &written);
        note_changes(&mut txn, &written, (&mut self.changed, &mut self.unnoted));
        self.committed(None, Vec::new(), now)?;
        if let Some((sessions, ask)) = self.sessions.as_mut().zip(ask) {
            sessions.table.unanswered(ask);
        }
        Ok(())
    }

    /// What is left for `ino`.
    pub(super) fn space(&mut self, ino: Ino) -> Result<Answer, Violation> {
        let volume = self.volume;
        let space = segue_core::namespace::space(
            &mut Txn::begin(&mut self.disk),
            volume,
            ino,
            (DISK, DISK),
        )?;
        Ok((Reply::Space(space), Vec::new()))
    }
}
