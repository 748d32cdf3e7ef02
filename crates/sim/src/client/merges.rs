//! Merging of what two hosts made under one name: one at a time, whenever the chores are done.

use segue_core::host::action::{CallId, Event};
use segue_core::host::call::Call;
use segue_core::host::conflict::{Duplicate, may_merge_later};
use segue_core::host::log::{Change, Entry, Logged};
use segue_core::nouns::{Ino, Kind, Record, Time, Version};
use segue_core::wire::{Reply, Request};

use super::outcomes::Hearing;
use super::shell::{Asking, Ran};
use super::{Mount, Purpose};
use crate::Violation;
use crate::server::Answer;

/// The merge that is under way.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    duplicate: Option<Duplicate>,
    /// Its call.
    call: Option<CallId>,
    /// It waits for outcomes.
    hearing: Option<Hearing>,
    /// Versions of files that the server has called the same as another one.
    same: Vec<(Ino, Version)>,
    /// Copies that are not merged as long as this process lives.
    given_up: Vec<Ino>,
    /// How many were merged.
    pub(crate) merged: u64,
}

impl Mount {
    /// Begins to merge the next copy, or goes on.
    pub(super) fn merge(&mut self) -> Result<(), Violation> {
        if let Some(hearing) = self.merging.hearing.take() {
            return match self.heard_of(&hearing)? {
                Some(ran) => self.merges_on(ran),
                None => {
                    self.merging.hearing = Some(hearing);
                    Ok(())
                }
            };
        }
        if self.merging.duplicate.is_some() || self.is_offline {
            return Ok(());
        }
        // The one that was tried last comes last.
        let given_up = &self.merging.given_up;
        let next = self
            .disk
            .kept
            .duplicates
            .iter()
            .position(|duplicate| !given_up.contains(&duplicate.ino));
        let Some(duplicate) = next.map(|at| self.disk.kept.duplicates.remove(at)) else {
            return Ok(());
        };
        self.disk.kept.duplicates.push(duplicate.clone());
        self.merging.duplicate = Some(duplicate.clone());
        let id = self.next_id();
        self.merging.call = Some(id);
        let ran = self.run(id, Event::Call { id, call: Call::Merge(duplicate) }, &[])?;
        self.merges_on(ran)
    }

    /// The answer to a question of the merge.
    pub(super) fn merge_answered(
        &mut self,
        asking: &Asking,
        answer: Answer,
        asked: Time,
    ) -> Result<(), Violation> {
        if let (Request::Compare(files), Reply::Compared(true)) = (&asking.request, &answer.0) {
            self.merging.same.push(files.one);
        }
        let ran = self.tell(asking.call, answer, &asking.request, asked)?;
        self.merges_on(ran)
    }

    fn merges_on(&mut self, ran: Ran) -> Result<(), Violation> {
        match ran {
            Ran::Waits(asking) => {
                self.call(asking.request.clone(), Purpose::Merge(*asking));
                return Ok(());
            }
            Ran::Hears(hearing) => {
                self.merging.hearing = Some(*hearing);
                return Ok(());
            }
            Ran::Later | Ran::Delivers(_) | Ran::Keeps(_) => {
                return Err(Violation("a merge that waits for data".into()));
            }
            Ran::Answered(answer) => {
                let Some(duplicate) = self.merging.duplicate.take() else { return Ok(()) };
                match answer {
                    Ok(_) => {
                        self.disk.kept.duplicates.retain(|other| *other != duplicate);
                        self.merging.merged += 1;
                    }
                    Err(refusal) if may_merge_later(refusal) => {}
                    // A full disk, too.
                    Err(_) => self.merging.given_up.push(duplicate.ino),
                }
            }
        }
        self.merging.same.clear();
        Ok(())
    }

    /// A merge removes only what the server has called the same, or what has no bytes.
    pub(super) fn check_merge(&self, call: CallId, entry: &Entry) -> Result<(), Violation> {
        let Some(Logged { change: Change::Record(record), .. }) = entry.change() else {
            return Ok(());
        };
        let Record::Unlink { ino, .. } = record else { return Ok(()) };
        let Some(attr) = self.core.tree.peek(*ino) else { return Ok(()) };
        let has_bytes = attr.kind == Kind::File && attr.size > 0;
        let is_same = self.merging.same.contains(&(*ino, attr.data_version));
        match self.merging.call == Some(call) && has_bytes && !is_same {
            true => Err(Violation(format!("#{ino} is merged away, and is the same as none"))),
            false => Ok(()),
        }
    }

    /// The connection is lost: the merge begins anew.
    pub(super) fn stop_merging(&mut self, asking: &Asking) {
        self.core.handle(Event::Cancel(asking.call), self.moment());
        (self.merging.duplicate, self.merging.hearing) = (None, None);
        self.merging.same.clear();
    }
}
