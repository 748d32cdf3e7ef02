//! Directories that two hosts made under one name become one.
//!
//! The server keeps both, the one that came second as a conflict copy. The host that made this one
//! moves what is in it into the other one, by changes like those of a user, and removes it. Nothing
//! is replaced: for what has the same name there the server finds another name, as ever. What may
//! not be moved stays, and the copy with it.

use std::collections::BTreeSet;
use std::time::Duration;

use segue_core::client::may_become_one;
use segue_core::modlog::{Outcome, Record, RenameMode};
use segue_core::refusal::Refusal;
use segue_core::types::{Caller, Ino, Name};

use super::changes::InLog;
use super::conflicts::Kept;
use super::{Mount, Shared, lock};

/// What could not be merged just now is tried again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// Deepest tree that is merged: deeper ones stay as they are.
const DEPTH_MAX: usize = 200;

impl Mount {
    /// Merges for as long as the mount lives.
    pub(super) async fn merge_directories(self: Shared) {
        // As far as this process tried: the next one may be luckier.
        let mut given_up = BTreeSet::new();
        loop {
            let mut left = false;
            let kept = lock(&self.conflicts).list();
            for kept in kept {
                let Some(twice) = &kept.twice else { continue };
                if given_up.contains(&twice.ino) {
                    continue;
                }
                match self.merge(&kept).await {
                    Ok(()) => {}
                    // Or something was made in it meanwhile.
                    Err(Refusal::Unreachable | Refusal::NotEmpty) => left = true,
                    Err(refusal) => {
                        tracing::warn!("a directory that was made twice stays so: {refusal}");
                        given_up.insert(twice.ino);
                    }
                }
            }
            tokio::select! {
                () = self.merges.notified() => {}
                () = tokio::time::sleep(AGAIN), if left => {}
            }
        }
    }

    /// Merges what `kept` tells of with what has the name.
    async fn merge(&self, kept: &Kept) -> Result<(), Refusal> {
        let (Some((parent, name)), Some(twice)) = (kept.place(), &kept.twice) else {
            return Ok(());
        };
        let wanted = Name::new(twice.name.clone())?;
        let copy = self.lookup(parent, &name).await?.filter(|copy| copy.ino.0 == twice.ino);
        let into = self.lookup(parent, &wanted).await?;
        let (Some(copy), Some(into)) = (copy, into) else { return Ok(()) };
        if !may_become_one(&copy, &into) {
            return Err(Refusal::NotPermitted);
        }
        let by = Caller { pid: 0, process_group: 0, session: 0, ..twice.by.clone() };
        self.merge_into(copy.ino, into.ino, &by, DEPTH_MAX).await?;
        self.rmdir(parent, name.clone(), by).await?;
        self.kernel.forget_name(parent, name);
        self.kernel.forget_data(parent);
        Ok(())
    }

    /// Moves all that is in `from` into another directory.
    async fn merge_into(
        &self,
        from: Ino,
        into: Ino,
        by: &Caller,
        depth: usize,
    ) -> Result<(), Refusal> {
        let mut under_way = Vec::new();
        for (name, ino) in self.list(from, 0).await? {
            let there = self.lookup(into, &name).await?;
            let ours = self.getattr(ino).await?;
            match there {
                Some(there) if may_become_one(&ours, &there) => {
                    let depth = depth.checked_sub(1).ok_or(Refusal::TooLarge)?;
                    Box::pin(self.merge_into(ino, there.ino, by, depth)).await?;
                    self.rmdir(from, name.clone(), by.clone()).await?;
                }
                _ => {
                    let moved = Record::Rename {
                        from_parent: from,
                        from_name: name.clone(),
                        ino,
                        to_parent: into,
                        to_name: name.clone(),
                        mode: RenameMode::Replace(None),
                        open: false,
                    };
                    let logged = self.log_numbered(moved, by.clone(), true)?;
                    under_way.extend(logged.map(|in_log| (in_log, name.clone())));
                }
            }
            self.kernel.forget_name(from, name.clone());
            self.kernel.forget_name(into, name);
        }
        self.kernel.forget_data(from);
        self.kernel.forget_data(into);
        // Whoever waits is told of a refusal, which is not kept for the user then.
        for (InLog { seq, told }, name) in under_way {
            let Some(told) = told else { continue };
            match self.outcome(told).await? {
                Outcome::Refused { refusal } => return Err(refusal),
                Outcome::Conflict { parent, name: copy, .. } => {
                    self.keep_copy(seq, (into, &name), (parent, &copy))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
