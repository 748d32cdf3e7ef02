//! Reading directories: "." and ".." and then the names, each with the offset behind it.

use std::collections::VecDeque;
use std::time::Duration;

use segue_core::host::cache::Reading;
use segue_core::nouns::{Attr, Ino};
use segue_core::refusal::Refusal;
use segue_fuse::{Answer, Listing};

use super::convert::{entry, kind_mode};
use crate::mount::Shared;

const DOTS: [&[u8]; 2] = [b".", b".."];
/// The number of an inode of which nothing is said.
const UNSAID: u64 = 0;
/// Entries looked up at a time.
const ENTRIES: usize = 32;

/// The reader of a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) directory: Ino,
    /// 0 if the kernel tells of no opens.
    pub(super) handle: u64,
    pub(super) pid: u32,
}

/// The names of a directory, read anew when the reader starts over.
async fn names(mount: &Shared, reader: &Reader, offset: u64) -> Result<Reading, Refusal> {
    if reader.handle != 0 {
        let directory = mount.directory(reader.handle).ok_or(Refusal::Invalid)?;
        return mount.directory_names(&directory, DOTS.len() as u64, offset == 0).await;
    }
    let reading = mount.listing_behind(reader.directory, offset, reader.pid).await?;
    let has_dots = Reading::dots_before(offset) < DOTS.len() as u64;
    if !has_dots && reading.behind(offset).is_empty() {
        mount.listing_ends(reader.directory, offset).await;
    }
    Ok(reading)
}

/// "." and "..", from offset `from` on, each with its offset.
fn dots<'a>(
    mount: &Shared,
    directory: Ino,
    (reading, from): (&Reading, u64),
) -> Vec<(u64, &'a [u8], Ino)> {
    let inodes = [directory, mount.parent(directory)];
    let dots = (0..).zip(DOTS).zip(inodes).map(|((at, dot), ino)| (at, dot, ino));
    let left = dots.filter(|(at, ..)| *at >= Reading::dots_before(from));
    left.map(|(at, dot, ino)| (reading.base + at, dot, ino)).collect()
}

/// The answer to READDIR.
pub(super) async fn read(
    mount: &Shared,
    reader: &Reader,
    offset: u64,
    size: u32,
) -> Result<Answer, Refusal> {
    let reading = names(mount, reader, offset).await?;
    let mut listing = Listing::new(size);
    let names = reading.behind(offset).iter();
    let names = names.map(|listed| (reading.position(listed), listed.name.as_bytes(), listed.ino));
    let dots = dots(mount, reader.directory, (&reading, offset));
    for (at, name, child) in dots.into_iter().chain(names) {
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
    reader: &Reader,
    offset: u64,
    size: u32,
) -> Result<Answer, Refusal> {
    let (reading, directory) = (names(mount, reader, offset).await?, reader.directory);
    let mut listing = Listing::new(size);
    let is_told = offset == 0 && mount.is_told(directory);
    for (at, name, child) in dots(mount, directory, (&reading, offset)) {
        let Ok(found) = mount.getattr(child).await else { continue };
        if !add(mount, &mut listing, (at, name), (found, Duration::ZERO), is_told) {
            return Ok(listing.finish());
        }
    }
    let (mut known, mut is_said) = (VecDeque::new(), false);
    let mut rest = reading.behind(offset);
    while let [listed, after @ ..] = rest {
        if known.is_empty() {
            let next = rest.get(..rest.len().min(ENTRIES)).unwrap_or_default();
            known.extend(mount.listed(directory, next, reading.since));
        }
        let (found, ttl) = match known.pop_front().flatten() {
            Some(found) => found,
            // It is the first of the next answer.
            None if is_said => return Ok(listing.finish()),
            None => {
                let found = mount.getattr(listed.ino).await;
                // It was as of before.
                known.clear();
                rest = after;
                // A name whose inode went meanwhile is not there any more.
                let Ok(found) = found else { continue };
                (found, Duration::ZERO)
            }
        };
        let place = (reading.position(listed), listed.name.as_bytes());
        if !add(mount, &mut listing, place, (found, ttl), is_told) {
            return Ok(listing.finish());
        }
        rest = after;
        is_said |= ttl > Duration::ZERO;
    }
    // Said again, it may be used no longer than before.
    if offset == 0 && !is_told {
        mount.tell(directory);
    }
    Ok(listing.finish())
}

/// Adds a name with its offset and its inode; false if the answer is full.
fn add(
    mount: &Shared,
    listing: &mut Listing,
    (at, name): (u64, &[u8]),
    (found, ttl): (Attr, Duration),
    is_told: bool,
) -> bool {
    let node = if is_told { UNSAID } else { mount.kernel.node(found.ino) };
    let found = entry(&found, (node, ttl));
    let is_added = listing.add_plus(&found, at + 1, name);
    if is_added && found.node != UNSAID && !DOTS.contains(&name) {
        mount.kernel.tell_of(found.node);
    }
    is_added
}
