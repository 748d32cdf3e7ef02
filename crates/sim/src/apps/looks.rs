//! Looks of programs at files: attributes, names, bytes.

use std::ops::Range;

use segue_core::host::call::{Answer, Call, FetchCall, Look, Seen};
use segue_core::nouns::{Attr, Dentry, Ino, Name};
use segue_core::refusal::Refusal;

use super::Stop;
use crate::client::{Mount, Ran};

impl Mount {
    /// Looks, or stops at a question to the server. Then the operation begins anew.
    pub(crate) fn look(&mut self, look: Look) -> Result<Seen, Stop> {
        match self.core.glance(&look, self.moment()) {
            Some(seen) => Ok(seen),
            None => Ok(*self.call_asking(Call::Look(look))?.seen.ok_or(Refusal::Io)?),
        }
    }

    /// Carries out a call, or stops at a question to the server.
    pub(crate) fn call_asking(&mut self, call: Call) -> Result<Answer, Stop> {
        match self.start_call(call, &[])? {
            Ran::Answered(answer) => Ok(answer?),
            Ran::Asks(asking) => Err(Stop::Ask(asking)),
            Ran::Hears(_) | Ran::Pauses(..) | Ran::Uploads | Ran::Later => Err(Stop::Later),
        }
    }

    pub(crate) fn getattr(&mut self, ino: Ino) -> Result<Attr, Stop> {
        match self.look(Look::Attr(ino))? {
            Seen::Attr(attr) => {
                self.kernel.attributes(&self.core, ino, self.now);
                Ok(attr)
            }
            _ => Err(Refusal::Io.into()),
        }
    }

    pub(crate) fn lookup(&mut self, parent: Ino, name: &Name) -> Result<Option<Attr>, Stop> {
        match self.look(Look::Name(Dentry { parent, name: name.clone() }))? {
            Seen::Name(attr) => {
                let found = attr.map(|attr| attr.ino).into_iter();
                found.for_each(|ino| self.kernel.name(&self.core, (parent, name), ino, self.now));
                Ok(attr)
            }
            _ => Err(Refusal::Io.into()),
        }
    }

    pub(crate) fn list(&mut self, directory: Ino) -> Result<Vec<(Name, Ino)>, Stop> {
        match self.look(Look::Names(directory))? {
            Seen::Names(names) => {
                for (name, ino) in &names {
                    self.kernel.name(&self.core, (directory, name), *ino, self.now);
                }
                self.kernel.listing(&mut self.core, directory, names.clone(), self.now);
                Ok(names)
            }
            _ => Err(Refusal::Io.into()),
        }
    }

    /// Bytes of a file, its end at the most.
    pub(crate) fn read(&mut self, ino: Ino, range: Range<u64>) -> Result<Vec<u8>, Stop> {
        self.getattr(ino)?;
        self.disk.load(&mut self.core, ino)?;
        if self.core.here(ino, &range, 0)?.container.is_none() {
            self.call_asking(Call::Fetch(FetchCall { ino, range: range.clone(), passes: false }))?;
        }
        let size = self.getattr(ino)?.size;
        let range = range.start.min(size)..range.end.min(size);
        Ok(self.disk.read(&mut self.core, ino, &range)?)
    }
}
