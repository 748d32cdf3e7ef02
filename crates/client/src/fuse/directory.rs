//! Reading directories: "." and ".." and then the names, each with the offset behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use segue_core::refusal::Refusal;
use segue_core::types::{Ino, Name};
use segue_fuse::{Answer, Listing};

use super::convert::{entry, kind_mode};
use crate::mount::{DirectoryHandle, Reading, Shared};

const DOTS: [&[u8]; 2] = [b".", b".."];
/// The number of an inode of which nothing is said.
const UNSAID: u64 = 0;
/// Entries looked up at a time.
const ENTRIES: usize = 32;

/// The names of an open directory, read anew when the reader starts over.
async fn names(
    mount: &Shared,
    handle: u64,
    offset: u64,
) -> Result<(Arc<DirectoryHandle>, Reading), Refusal> {
    let directory = mount.directory(handle).ok_or(Refusal::Invalid)?;
    let reading = mount.directory_names(&directory, offset == 0).await?;
    Ok((directory, reading))
}

/// What is at offset `at`; `dots` are the directory and its parent.
fn at_offset(names: &[(Name, Ino)], at: u64, dots: [Ino; 2]) -> Option<(&[u8], Ino)> {
    let at = usize::try_from(at).ok()?;
    match DOTS.get(at).zip(dots.get(at)) {
        Some((dot, ino)) => Some((dot, *ino)),
        None => names.get(at - DOTS.len()).map(|(name, ino)| (name.as_bytes(), *ino)),
    }
}

/// Some names from the one at offset `at` on: about as many as one answer holds.
fn next_names(names: &[(Name, Ino)], at: u64) -> &[(Name, Ino)] {
    let from = usize::try_from(at).unwrap_or(usize::MAX).saturating_sub(DOTS.len());
    let rest = names.get(from..).unwrap_or_default();
    rest.get(..rest.len().min(ENTRIES)).unwrap_or_default()
}

/// The answer to READDIR.
pub(super) async fn read(
    mount: &Shared,
    handle: u64,
    offset: u64,
    size: u32,
) -> Result<Answer, Refusal> {
    let (directory, (names, _)) = names(mount, handle, offset).await?;
    let mut listing = Listing::new(size);
    let dots = [directory.ino, mount.parent(directory.ino)];
    for at in offset.. {
        let Some((name, child)) = at_offset(&names, at, dots) else { break };
        if !listing.add(child.0, at + 1, kind_mode(mount.kind(child)), name) {
            break;
        }
    }
    Ok(listing.finish())
}

/// The answer to READDIRPLUS. What the kernel was told a moment ago it need not look up and put in
/// order again: it gets the names, without the inodes. The server is asked for nothing once a name
/// is said with how long it may be used: that would be out of date by then.
pub(super) async fn read_plus(
    mount: &Shared,
    handle: u64,
    offset: u64,
    size: u32,
) -> Result<Answer, Refusal> {
    let (directory, (names, since)) = names(mount, handle, offset).await?;
    let mut listing = Listing::new(size);
    let (mut known, mut is_said) = (VecDeque::new(), false);
    let dots = [directory.ino, mount.parent(directory.ino)];
    let is_told = offset == 0 && mount.is_told(directory.ino);
    for at in offset.. {
        let Some((name, child)) = at_offset(&names, at, dots) else {
            if offset == 0 {
                mount.tell(directory.ino);
            }
            break;
        };
        let is_dot = at < DOTS.len() as u64;
        if !is_dot && known.is_empty() {
            known.extend(mount.listed(directory.ino, next_names(&names, at), since));
        }
        let listed = if is_dot { None } else { known.pop_front() };
        let (found, ttl) = match listed.flatten() {
            Some(listed) => listed,
            // It is the first of the next answer.
            None if is_said => break,
            None => {
                let found = mount.getattr(child).await;
                // It was as of before.
                known.clear();
                // A name whose inode went meanwhile is not there any more.
                let Ok(found) = found else { continue };
                (found, Duration::ZERO)
            }
        };
        let mut found = entry(mount, &found, ttl);
        if is_told {
            found.node = UNSAID;
        }
        if !listing.add_plus(&found, at + 1, name) {
            break;
        }
        is_said |= ttl > Duration::ZERO;
    }
    Ok(listing.finish())
}
