//! What two hosts made under one name becomes one: directories, and files that are the same.
//!
//! The server keeps both, the one that came second as a conflict copy. The host that made this one
//! moves what is in a directory into the other one, by changes like those of a user, and removes
//! it. Nothing is replaced: for what has the same name there the server finds another name, as
//! ever. What may not be moved stays, and the copy with it. A file goes once [it is the
//! same](super::same) as the other one, which it may become later: a host gives names before data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use segue_core::host::call::Call;
use segue_core::host::conflict::may_become_one;
use segue_core::host::send::Claim;
use segue_core::nouns::{Attr, Caller, Ino, Kind, Name, Outcome, Record, RenameMode, Version};
use segue_core::refusal::Refusal;
use tokio::sync::Notify;

use super::conflicts::Kept;
use super::same::Are;
use super::{Changed, Mount, Shared, lock};

/// What could not be merged just now is tried again after this, and after twice as long each time
/// that nothing comes of it.
const AGAIN: Duration = Duration::from_secs(5);
/// But no later than this.
const AGAIN_MAX: Duration = Duration::from_secs(5 * 60);
/// Deepest tree that is merged: deeper ones stay as they are.
const DEPTH_MAX: usize = 200;

/// What was made twice, as the process knows it.
#[derive(Default)]
pub(super) struct Merges {
    /// A conflict copy is known that was not.
    pub(super) new: Notify,
    /// Copies that the server has called other than what they stand beside, each in one version.
    pub(super) different: Mutex<BTreeMap<Ino, [(Ino, Version); 2]>>,
}

impl Mount {
    /// Merges for as long as the mount lives.
    pub(super) async fn merge_what_was_made_twice(self: Shared) {
        // As far as this process tried: the next one may be luckier.
        let mut given_up = BTreeSet::new();
        let mut pause = AGAIN;
        loop {
            let mut left = false;
            let kept = lock(&self.conflicts).list();
            for kept in kept {
                let Some(twice) = &kept.twice else { continue };
                if given_up.contains(&twice.ino) {
                    continue;
                }
                match self.merge(&kept).await {
                    Ok(true) => pause = AGAIN,
                    // Or something was made in it meanwhile.
                    Ok(false) | Err(Refusal::Unreachable | Refusal::NotEmpty) => left = true,
                    Err(refusal) => {
                        tracing::warn!(
                            "{}: this conflict copy is not merged: {refusal}",
                            kept.path
                        );
                        given_up.insert(twice.ino);
                    }
                }
            }
            tokio::select! {
                () = self.merges.new.notified() => pause = AGAIN,
                () = tokio::time::sleep(pause), if left => pause = (2 * pause).min(AGAIN_MAX),
            }
        }
    }

    /// Merges what `kept` tells of with what has the name; false if it may be possible later.
    async fn merge(self: &Shared, kept: &Kept) -> Result<bool, Refusal> {
        let (Some((parent, name)), Some(twice)) = (kept.place(), &kept.twice) else {
            return Ok(true);
        };
        let wanted = Name::new(twice.name.clone())?;
        let copy = self.lookup(parent, &name).await?.filter(|copy| copy.ino.0 == twice.ino);
        let into = self.lookup(parent, &wanted).await?;
        let (Some(copy), Some(into)) = (copy, into) else { return Ok(false) };
        let by = Caller { pid: 0, process_group: 0, session: 0, ..twice.by.clone() };
        if copy.kind != Kind::Directory {
            return self.merge_file((parent, &name), &copy, &into, &by).await;
        }
        if !may_become_one(&copy, &into) {
            return Err(Refusal::NotPermitted);
        }
        self.merge_into(copy.ino, into.ino, &by, DEPTH_MAX).await?;
        self.rmdir(parent, name.clone(), by).await?;
        self.kernel.forget_name(parent, name);
        self.kernel.forget_data(parent);
        Ok(true)
    }

    async fn merge_file(
        self: &Shared,
        (parent, name): (Ino, &Name),
        copy: &Attr,
        other: &Attr,
        by: &Caller,
    ) -> Result<bool, Refusal> {
        if self.compare_files(copy, other).await? != Are::Same {
            return Ok(false);
        }
        let Some(removing) = self.remove_same((parent, name), copy, by)? else { return Ok(false) };
        // However long that takes: what becomes of it is not the user's to deal with.
        match self.waited_for(removing).await?.outcome.as_deref() {
            Some(Outcome::Refused { .. }) => Ok(false),
            _ => {
                lock(&self.conflicts).forget(parent, name.as_bytes());
                self.kernel.forget_data(parent);
                Ok(true)
            }
        }
    }

    /// Moves all that is in `from` into another directory.
    async fn merge_into(
        self: &Shared,
        from: Ino,
        into: Ino,
        by: &Caller,
        depth: usize,
    ) -> Result<(), Refusal> {
        let (mut under_way, mut removed) = (Vec::new(), Vec::new());
        let mut is_left = false;
        for (name, ino) in self.list(from, 0).await? {
            let there = self.lookup(into, &name).await?;
            let ours = self.getattr(ino).await?;
            let are = match &there {
                Some(there) => self.compare_files(&ours, there).await?,
                None => Are::Different,
            };
            match (there, are) {
                (Some(there), _) if may_become_one(&ours, &there) => {
                    let depth = depth.checked_sub(1).ok_or(Refusal::TooLarge)?;
                    let merged = match Box::pin(self.merge_into(ino, there.ino, by, depth)).await {
                        Ok(()) => self.rmdir(from, name.clone(), by.clone()).await,
                        refused => refused,
                    };
                    match merged {
                        Err(Refusal::NotEmpty) => is_left = true,
                        merged => merged?,
                    }
                }
                (_, Are::Unsettled) => is_left = true,
                (_, Are::Same) => {
                    let removing = self.remove_same((from, &name), &ours, by)?;
                    is_left |= removing.is_none();
                    removed.extend(removing);
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
                    let (caller, claim) = (by.clone(), Some(Claim::Answers));
                    let call = Call::Change { record: moved, caller, claim, expects: None };
                    under_way.push((self.begin(call, &[])?, ino, name.clone()));
                }
            }
            self.kernel.forget_name(from, name.clone());
            self.kernel.forget_name(into, name);
        }
        self.kernel.forget_data(from);
        self.kernel.forget_data(into);
        // Whoever waits is told of a refusal, which is not kept for the user then.
        for (moving, ino, name) in under_way {
            let Changed { seq, outcome, .. } = self.waited_for(moving).await?;
            match outcome.as_deref() {
                Some(Outcome::Refused { refusal }) => return Err(*refusal),
                Some(Outcome::Conflict { parent, name: copy, .. }) => {
                    let seq = seq.ok_or(Refusal::Io)?;
                    self.keep_copy((seq, ino, by), (into, &name), (*parent, copy))?;
                    self.merges.new.notify_one();
                }
                _ => {}
            }
        }
        for removing in removed {
            let outcome = self.waited_for(removing).await?.outcome;
            is_left |= matches!(outcome.as_deref(), Some(Outcome::Refused { .. }));
        }
        if is_left { Err(Refusal::NotEmpty) } else { Ok(()) }
    }
}
