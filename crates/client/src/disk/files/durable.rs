//! Making durable what is in files and directories: where the disk says that it could not.
//!
//! It says so once. Linux marks pages clean that could not be written, so the next sync succeeds
//! without them (Rebello et al., ATC 2020). What a file has then is told apart by nobody: ext4 and
//! XFS keep the pages, until memory is short, but for those that found no blocks; Btrfs may read
//! again what stood there before. So a file whose sync failed is [`Trust::Doubted`]: it is written
//! anew as it reads, and trusted again if that is what the log has. A directory needs nothing like
//! it: where a change of names cannot be written, all three write nothing any more.

use std::fs::File;
use std::io;
use std::path::Path;

/// Whether syncs of a file can be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Trust {
    #[default]
    Whole,
    /// One failed.
    Doubted,
    /// It is being written anew, or was so in vain. There is no second time: the disk would be busy
    /// with nothing else.
    Lost,
}

impl Trust {
    /// Syncs a file that is whole.
    pub(super) fn sync(&mut self, file: &File) -> io::Result<()> {
        if *self != Trust::Whole {
            return Err(io::Error::other("an earlier sync failed"));
        }
        let synced = sync_data(file);
        if synced.is_err() {
            *self = Trust::Doubted;
        }
        synced
    }

    /// True once if a sync failed: the file is to be written anew.
    pub(super) fn take_doubt(&mut self) -> bool {
        let is_doubted = *self == Trust::Doubted;
        if is_doubted {
            *self = Trust::Lost;
        }
        is_doubted
    }
}

/// Makes the bytes of a file durable.
pub(super) fn sync_data(file: &File) -> io::Result<()> {
    #[cfg(test)]
    failing::sync()?;
    file.sync_data()
}

/// Makes durable what was made, renamed and removed in a directory.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    failing::sync()?;
    File::open(path)?.sync_all()
}

/// Makes the name of `path` durable.
pub(super) fn sync_name(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_directory)
}

/// A disk that fails in tests: as Linux has it, the next sync says that all is well.
#[cfg(test)]
pub(crate) mod failing {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        static AFTER: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// After so many more syncs of this thread one fails.
    pub(crate) fn after(syncs: u32) {
        AFTER.set(Some(syncs));
    }

    pub(super) fn sync() -> io::Result<()> {
        let after = AFTER.get();
        AFTER.set(after.and_then(|syncs| syncs.checked_sub(1)));
        match after {
            Some(0) => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }
}
