//! copy_file_range(2) of whole files: the server copies references, and no byte travels.
//!
//! It is tried for what `cp` does: all of a file into one that is still empty. Where it cannot
//! be, or the link is down, the caller is told that it is not supported here, and its kernel
//! copies the bytes through this host.

use segue_core::modlog::Outcome;
use segue_core::refusal::Refusal;

use super::Mount;

/// A file that is wholly on this host, and shorter, is copied here sooner than a server answers.
const WORTH: u64 = 1 << 20;

/// Bytes to copy from a place in one open file to a place in another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// Handle and offset.
    pub(crate) from: (u64, u64),
    /// Handle and offset.
    pub(crate) to: (u64, u64),
    pub(crate) len: u64,
}

impl Mount {
    /// Copies, and returns how many bytes.
    pub(crate) async fn copy(&self, asked: Copied) -> Result<u64, Refusal> {
        let (from, to) = (self.handle(asked.from.0)?, self.handle(asked.to.0)?);
        if !to.writable || asked.from.1 != 0 || asked.to.1 != 0 || self.remote.is_offline() {
            return Err(Refusal::NotSupported);
        }
        let (record, size) = {
            let mut core = self.core();
            let size = core.tree.peek(from.ino).map_or(0, |attr| attr.size);
            let is_here = core.file(from.ino).is_some_and(|file| file.is_valid(0..size, size));
            let is_worth = size >= WORTH || !is_here;
            let record = core.clone_of(from.ino, to.ino).filter(|_| is_worth && asked.len >= size);
            (record.ok_or(Refusal::NotSupported)?, size)
        };
        let told = self.log_record(record, to.caller.clone(), true)?;
        let outcome = match told {
            Some(told) => self.outcome(told).await,
            None => return Err(Refusal::NotSupported),
        };
        match outcome {
            Ok(Outcome::Done { touched })
                if touched.iter().any(|attr| attr.ino == to.ino && attr.size == size) =>
            {
                Ok(size)
            }
            // Whatever kept it from happening, a copy of the bytes will meet it and say so.
            _ => Err(Refusal::NotSupported),
        }
    }
}
