//! A merge removes only files that the server has called the same as another one, or that have no
//! bytes.

use segue_core::host::Host;
use segue_core::host::action::CallId;
use segue_core::host::log::{Change, Entry, Logged};
use segue_core::nouns::{Ino, Kind, Record, Version};

use crate::Violation;

/// Facts about the merge that is under way.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    call: Option<CallId>,
    /// Versions of files that the server has called the same as another one.
    same: Vec<(Ino, Version)>,
}

impl Compared {
    /// This call merges from now on.
    pub(crate) fn begin(&mut self, call: CallId) {
        self.call = Some(call);
    }

    /// The server has called this file the same as another one.
    pub(crate) fn add(&mut self, file: (Ino, Version)) {
        self.same.push(file);
    }

    /// The merge is over, or begins anew.
    pub(crate) fn forget(&mut self) {
        self.same.clear();
    }

    /// Checks an entry that a call logs.
    pub(crate) fn check(&self, core: &Host, call: CallId, entry: &Entry) -> Result<(), Violation> {
        let Some(Logged { change: Change::Record(record), .. }) = entry.change() else {
            return Ok(());
        };
        let Record::Unlink { ino, .. } = record else { return Ok(()) };
        let Some(attr) = core.tree().peek(*ino) else { return Ok(()) };
        let has_bytes = attr.kind == Kind::File && attr.size > 0;
        let is_same = self.same.contains(&(*ino, attr.data_version));
        match self.call == Some(call) && has_bytes && !is_same {
            true => Err(Violation(format!("#{ino} is merged away, and is the same as none"))),
            false => Ok(()),
        }
    }
}
