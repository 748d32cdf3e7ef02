//! Merging of duplicates, which two hosts made under one name: one at a time, whenever the chores
//! are done.

use segue_core::host::action::Event;
use segue_core::host::call::Call;
use segue_core::host::conflict::{Duplicate, may_merge_later};
use segue_core::nouns::Ino;

use super::Mount;
use super::shell::{Hearing, Ran};
use crate::Violation;
use crate::check::merged::Compared;
use crate::remote::Whose;

/// The merge that is under way.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    duplicate: Option<Duplicate>,
    /// It waits for outcomes.
    hearing: Option<Hearing>,
    pub(super) compared: Compared,
    /// Copies that are not merged as long as this process lives.
    given_up: Vec<Ino>,
    /// How many were merged.
    pub(crate) merged: u64,
}

impl Merging {
    /// The connection is lost: the merge begins anew.
    pub(super) fn stop(&mut self) {
        (self.duplicate, self.hearing) = (None, None);
        self.compared.forget();
    }
}

impl Mount {
    /// Begins to merge the next copy, or goes on.
    pub(super) fn merge(&mut self) -> Result<(), Violation> {
        if let Some(hearing) = self.merging.hearing.take() {
            return match self.heard_of(&hearing)? {
                Some(ran) => self.goes_on(Whose::Merge, ran),
                None => {
                    self.merging.hearing = Some(hearing);
                    Ok(())
                }
            };
        }
        if self.merging.duplicate.is_some() || self.remote.is_offline {
            return Ok(());
        }
        // The one that was tried last comes last.
        let given_up = &self.merging.given_up;
        let duplicates = &mut self.disk.kept.duplicates;
        let next = duplicates.iter().position(|duplicate| !given_up.contains(&duplicate.ino));
        let Some(duplicate) = next.map(|at| duplicates.remove(at)) else { return Ok(()) };
        duplicates.push(duplicate.clone());
        self.merging.duplicate = Some(duplicate.clone());
        let id = self.next_id();
        self.merging.compared.begin(id);
        let ran = self.run(id, Event::Call { id, call: Call::Merge(duplicate) }, &[])?;
        self.goes_on(Whose::Merge, ran)
    }

    /// The merge came so far, and asks nothing.
    pub(super) fn merge_goes_on(&mut self, ran: Ran) -> Result<(), Violation> {
        match ran {
            Ran::Hears(hearing) => {
                self.merging.hearing = Some(*hearing);
                return Ok(());
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
            ran => return Err(Violation(format!("a merge that waits for data: {ran:?}"))),
        }
        self.merging.compared.forget();
        Ok(())
    }
}
