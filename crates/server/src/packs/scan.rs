//! What is in a pack, found again from its bytes alone.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::format::{ENTRY_HEADER, ENTRY_MAGIC, Entry, PACK_HEADER};

/// Bytes looked through at a time where something is damaged.
const WINDOW: usize = 1 << 20;

/// Gives every whole entry of a pack from byte `from` on to `each`, with the place of its bytes.
/// Returns where the last one ends. What stands between whole entries is passed over.
pub(crate) fn entries<E: From<io::Error>>(
    path: &Path,
    from: u64,
    each: &mut dyn FnMut(&Entry, u64) -> Result<(), E>,
) -> Result<u64, E> {
    let file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut at = from.max(PACK_HEADER as u64);
    let mut last = at.min(end);
    while let Some((place, entry)) = next(&file, at, end)? {
        let offset = place + ENTRY_HEADER as u64;
        each(&entry, offset)?;
        at = offset + u64::from(entry.stored_len);
        last = at;
    }
    Ok(last)
}

/// The first whole entry at `at` or after it.
fn next(file: &File, at: u64, end: u64) -> io::Result<Option<(u64, Entry)>> {
    if let Some(entry) = whole(file, at, end)? {
        return Ok(Some((at, entry)));
    }
    let (mut from, mut window) = (at + 1, vec![0; WINDOW]);
    while from + (ENTRY_HEADER as u64) <= end {
        let room = usize::try_from(end - from).unwrap_or(WINDOW).min(WINDOW);
        let Some(bytes) = window.get_mut(..room) else { break };
        file.read_exact_at(bytes, from)?;
        for (index, part) in bytes.windows(ENTRY_MAGIC.len()).enumerate() {
            let place = from + index as u64;
            if part == ENTRY_MAGIC
                && let Some(entry) = whole(file, place, end)?
            {
                return Ok(Some((place, entry)));
            }
        }
        // One that begins at the window's end is seen whole in the next.
        from += (room.saturating_sub(ENTRY_MAGIC.len() - 1)).max(1) as u64;
    }
    Ok(None)
}

/// The entry at `at`, if all of it is there and is what was written.
fn whole(file: &File, at: u64, end: u64) -> io::Result<Option<Entry>> {
    let mut header = [0; ENTRY_HEADER];
    let offset = at + ENTRY_HEADER as u64;
    if offset > end {
        return Ok(None);
    }
    file.read_exact_at(&mut header, at)?;
    let Some(entry) = Entry::decode(&header) else { return Ok(None) };
    if offset + u64::from(entry.stored_len) > end {
        return Ok(None);
    }
    Ok(super::holds(file, at, &entry)?.then_some(entry))
}
