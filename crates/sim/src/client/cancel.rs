//! What is not sent because of what came later, as `segue-client`'s mount/cancel.rs treats it.

use segue_core::host::log::Entry;
use segue_core::nouns::{Ino, Record, RenameMode};

use super::{Mount, Tried};
use crate::Violation;

/// Of so many changes that are to become others, one batch is made before one has.
const SENT_MEANWHILE_EVERY: u64 = 3;

impl Mount {
    /// Change `seq` is taken, and not yet what it will be: the drain looks for a batch.
    pub(super) fn meanwhile(&mut self, seq: u64) -> Result<(), Violation> {
        if seq.is_multiple_of(SENT_MEANWHILE_EVERY) { self.send() } else { Ok(()) }
    }

    /// What was stored of a file that is about to lose its last name, and waits, is unsealed again.
    pub(super) fn take_back(&mut self, record: &mut Record) -> Tried<()> {
        let (ino, open) = match record {
            Record::Unlink { ino, open, .. } => (*ino, open),
            Record::Rename { mode: RenameMode::Replace(Some(ino)), open, .. } => (*ino, open),
            _ => return Ok(Ok(())),
        };
        while let Some(seq) = self.core.take_to_unseal(ino) {
            self.meanwhile(seq)?;
            if let Err(refusal) = self.failing.try_write() {
                self.core.send_after_all(&[seq]);
                return Ok(Err(refusal));
            }
            self.append(Entry::Unsealed { seq })?;
            self.core.unseal(seq, self.now);
            self.taken_back += 1;
            *open = true;
        }
        Ok(Ok(()))
    }

    /// `ino` may have lost its last name: what the server has not heard of cancels out.
    pub(super) fn cancel_out(&mut self, ino: Ino) -> Result<(), Violation> {
        let Some(seqs) = self.core.take_to_cancel(ino) else { return Ok(()) };
        seqs.last().map_or(Ok(()), |seq| self.meanwhile(*seq))?;
        let changed_at = self.changed_at;
        if self.failing.try_write().is_err() {
            self.core.send_after_all(&seqs);
            return Ok(());
        }
        self.append(Entry::Cancelled { ino, seqs: seqs.clone() })?;
        let cancelled = self.core.cancel(ino, &seqs);
        self.cancelled += cancelled.len() as u64;
        let times = self.core.times_of_cancelled(&cancelled);
        cancelled.iter().for_each(|logged| self.reap(logged));
        for record in times {
            self.log_record(record)?.ok();
        }
        // All of it is as it was seen before.
        self.changed_at = changed_at;
        Ok(())
    }

    /// The newest change may be a rename over a file of which the server has not heard.
    pub(super) fn supersede(&mut self) -> Result<(), Violation> {
        let by = self.core.next_seq() - 1;
        let Some((ino, seqs, amended)) = self.core.take_superseded(by) else { return Ok(()) };
        self.meanwhile(by)?;
        if self.failing.try_write().is_err() {
            self.core.send_after_all(&seqs);
            self.core.send_after_all(&[by]);
            return Ok(());
        }
        let entry = Entry::Superseded { ino, seqs: seqs.clone(), by: Box::new(amended.clone()) };
        let changed_at = self.changed_at;
        self.append(entry)?;
        self.changed_at = changed_at;
        let superseded = self.core.supersede(ino, &seqs, &amended);
        self.superseded += superseded.len() as u64;
        superseded.iter().for_each(|logged| self.reap(logged));
        Ok(())
    }
}
