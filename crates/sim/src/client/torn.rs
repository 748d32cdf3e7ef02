//! Writes that a process dies in the middle of.

use std::collections::BTreeSet;

use segue_core::host::call::{By, Call, EditCall, What};
use segue_core::nouns::{Caller, Ino, Kind};

use super::Mount;
use crate::disk::TornWrite;
use crate::rng::Rng;
use crate::{Violation, work};

impl Mount {
    /// Begins a write to a file that `may_be` written, and dies anywhere in it. Returns it if it
    /// counts.
    pub(crate) fn die_writing(
        &mut self,
        rng: &mut Rng,
        may_be: impl Fn(Ino) -> bool,
    ) -> Result<Option<TornWrite>, Violation> {
        let prefers_ahead = rng.chance(700);
        let mut files: BTreeSet<Ino> = self.core.files.keys().copied().collect();
        files.extend(self.disk.kept.index.files().into_iter().filter(|ino| may_be(*ino)));
        files.iter().for_each(|ino| self.disk.load_node(&mut self.core, *ino));
        let tree = &self.core.tree;
        let attr = |ino: &Ino| tree.peek(*ino).filter(|attr| attr.kind == Kind::File);
        let is_named = |ino: &Ino| attr(ino).is_some_and(|attr| attr.nlink > 0);
        let files: Vec<Ino> = files.into_iter().filter(is_named).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let ahead = files.iter().filter(|ino| self.core.is_ahead(**ino)).copied();
        let ahead: Vec<_> = ahead.filter(|_| prefers_ahead).collect();
        let files = if ahead.is_empty() { files } else { ahead };
        let ino = files[rng.index(files.len())];
        let ((offset, len), fill) = (work::extent(rng), rng.between(1, 1 << 40));
        let bytes = work::bytes_of(offset, len, fill);
        let (dies_first, written) = (rng.chance(100), rng.index(bytes.len() + 1));
        if self.disk.load(&mut self.core, ino).is_err() {
            return Ok(None);
        }
        if dies_first && self.disk.kept.loses_power && self.has_amended(ino) {
            // What is preserved of it again would be known by its checksums.
            return Ok(None);
        }
        let what = What::Write { offset, len, append: false };
        let by = By::Open(Caller::default());
        let edit = EditCall { ino, by, what, kills_set_ids: false };
        let edit = self.host_call_to_write(Call::Edit(edit))?;
        match edit.filter(|_| !dies_first) {
            Some(edit) => self.disk.tear(&self.core, &edit, (offset, bytes), written),
            None => Ok(None),
        }
    }

    fn has_amended(&self, ino: Ino) -> bool {
        let mut queued = self.core.queue.iter().map(|(logged, _)| logged);
        queued.any(|of| of.change.ino() == ino && self.core.queue.is_rewritten(of.seq))
    }
}
