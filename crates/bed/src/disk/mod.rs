//! A disk that remembers: what a power loss at any moment could have left of it.
//!
//! A file system in memory, mounted over Segue's own binding, which records in order whatever
//! matters to durability. From one recording come [`Image`]s: the directory tree as it may be
//! found after a power loss at any position of it.
//!
//! ```text
//!   program ──▶ Disk ──▶ Recording: make write sync rename write sync-names write │ cut
//!                                    what a sync covers is there ◀────────────┘   │
//!                                    of the rest any part is ◀────────────────────┘
//! ```
//!
//! What is found of a file:
//!
//! * What was written before its last fsync or fdatasync, with the size it had then.
//! * Of each sector of 512 bytes, the state after any number of the writes since. Sectors do
//!   not keep the order of each other, so a write may be there whole, torn, or not at all, and
//!   a later one without an earlier one. No sector is torn in itself.
//! * The size as it was at any moment since. It may cover sectors that were not written; these
//!   read as zeros, as unwritten extents do on ext4 (also with `data=ordered`) and XFS, never as
//!   what somebody else left there. Data behind the size are not there.
//! * Cutting a file off and punching holes are entries of the journal, in order with the size:
//!   what is written later into such a place is there only if they are.
//!
//! What is found of names:
//!
//! * What was made, removed and renamed in a directory before its last fsync. Syncing a file
//!   does not save its name, nor syncing a directory its own.
//! * Any of the changes since, each only with those before it of the same name. A rename is
//!   there at both of its ends or at none.
//!
//! So every image could be left by some journalling file system, and nothing relies on what only
//! some of them do: ext4 would save names in the order of their changes, and with any fsync.
//!
//! Owners, times and later changes of modes are not recorded; there are no links. Maps of files
//! are shared among processes and not saved before msync; locks are the kernel's.

mod content;
mod crash;
mod front;
mod names;
mod recording;
mod tree;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::mount::UnmountFlags;
use segue_fuse::{FuseSession, MountOptions, Wishes, mount};

use self::front::Front;
pub use self::recording::{Fate, Image, Recording};

/// A mounted disk. Dropping it takes it out of the tree, whoever uses it.
#[derive(Debug)]
pub struct Disk {
    point: PathBuf,
    front: Arc<Front>,
    session: Option<JoinHandle<io::Result<()>>>,
}

impl Disk {
    /// Mounts an empty disk at `point`. Needs root.
    pub fn mount(point: &Path) -> io::Result<Disk> {
        let front = Arc::new(Front::default());
        let options = MountOptions {
            source: "memory".into(),
            subtype: "segue-disk".into(),
            allow_other: true,
            default_permissions: true,
            ..MountOptions::default()
        };
        let device = mount(point, &options)?;
        let session = FuseSession::begin(device, Arc::clone(&front), &Wishes::default())?;
        let session = Some(std::thread::spawn(move || session.run(1)));
        Ok(Disk { point: point.to_owned(), front, session })
    }

    /// How much has been recorded: whatever was answered to a program before lies before it.
    pub fn position(&self) -> usize {
        self.front.position()
    }

    /// Everything so far.
    pub fn recording(&self) -> Recording {
        self.front.recording()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It may be gone already, taken out by whoever cleans up.
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::FORCE | UnmountFlags::DETACH);
        if let Some(session) = self.session.take() {
            // Its calls do nothing that could fail.
            let _ = session.join();
        }
    }
}
