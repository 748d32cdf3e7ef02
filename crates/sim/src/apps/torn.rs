//! Writes that a process dies in the middle of.

use std::collections::BTreeSet;

use segue_core::host::Host;
use segue_core::host::action::{Action, Edit, Event};
use segue_core::host::call::{By, Call, EditCall, What};
use segue_core::nouns::{Caller, Ino, Kind};

use super::Apps;
use crate::client::Mount;
use crate::disk::TornWrite;
use crate::rng::Rng;
use crate::{Violation, work};

impl Apps {
    /// Begins a write to a file that `may_be` written, and dies anywhere in it. Returns it if it
    /// counts.
    pub(crate) fn die_writing(
        &mut self,
        rng: &mut Rng,
        may_be: impl Fn(Ino) -> bool,
    ) -> Result<Option<TornWrite>, Violation> {
        let mount = &mut self.mount;
        let prefers_ahead = rng.chance(700);
        let mut files: BTreeSet<Ino> = mount.core.files().map(|(ino, _)| ino).collect();
        files.extend(mount.disk.kept.index.files().into_iter().filter(|ino| may_be(*ino)));
        files.iter().for_each(|ino| mount.disk.load_node(&mut mount.core, *ino));
        let tree = &mount.core.tree();
        let attr = |ino: &Ino| tree.peek(*ino).filter(|attr| attr.kind == Kind::File);
        // No name leads to a file whose last one the server has heard the end of, whatever this
        // host's count of links is.
        let is_named = |ino: &Ino| {
            attr(ino).is_some_and(|attr| attr.nlink > 0) && !mount.core.tree().is_orphan(*ino)
        };
        let files: Vec<Ino> = files.into_iter().filter(is_named).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let ahead = files.iter().filter(|ino| mount.core.is_ahead(**ino)).copied();
        let ahead: Vec<_> = ahead.filter(|_| prefers_ahead).collect();
        let files = if ahead.is_empty() { files } else { ahead };
        let ino = files[rng.index(files.len())];
        let ((offset, len), fill) = (work::extent(rng), rng.between(1, 1 << 40));
        let bytes = work::bytes_of(offset, len, fill);
        let (dies_first, written) = (rng.chance(100), rng.index(bytes.len() + 1));
        if mount.disk.load(&mut mount.core, ino).is_err() {
            return Ok(None);
        }
        if dies_first && mount.disk.kept.loses_power && has_amended(&mount.core, ino) {
            // What is preserved of it again would be known by its checksums.
            return Ok(None);
        }
        let what = What::Write { offset, len, append: false };
        let by = By::Open(Caller::default());
        let edit = EditCall { ino, by, what, kills_set_ids: false };
        let edit = up_to_write(mount, Call::Edit(edit))?;
        match edit.filter(|_| !dies_first) {
            Some(edit) => mount.disk.tear(&mount.core, &edit, (offset, bytes), written),
            None => Ok(None),
        }
    }
}

/// Carries out a call up to its write, which is left to the caller. `None` if it ended before.
fn up_to_write(mount: &mut Mount, call: Call) -> Result<Option<Edit>, Violation> {
    let id = mount.next_id();
    let mut event = Event::Call { id, call };
    loop {
        mount.core.handle(event, mount.moment());
        let mut done = None;
        while let Some(action) = mount.core.poll_action() {
            match action {
                Action::Write(_, edit) => return Ok(Some(*edit)),
                Action::Reply(..) => return Ok(None),
                action => done = mount.carry_out(action, &[])?.or(done),
            }
        }
        let Some(done) = done else { return Ok(None) };
        event = Event::Done { id, done };
    }
}

/// True if a change of the file that waits was rewritten.
fn has_amended(core: &Host, ino: Ino) -> bool {
    let mut queued = core.queue().iter().map(|(logged, _)| logged);
    queued.any(|of| of.change.ino() == ino && core.queue().is_rewritten(of.seq))
}
