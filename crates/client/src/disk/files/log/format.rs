//! The bytes of the update log's file.
//!
//! ```text
//!   header: "SEGUELOG" | version u32 | incarnation u32 | generation u64 | noted u64
//!   entry:  len u32 | crc32c of what follows u32 | seq u64 | synced u64 | data u64 |
//!           body: postcard of core's Entry
//! ```
//!
//! A torn end is cut off when the file is opened. A bad entry with good ones behind it is damage:
//! the file is refused, with the place. But a host that went down writes what it had not synced in
//! any order: an entry that nobody says was synced is cut off then, with those behind it.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use postcard::ser_flavors::Flavor;
use segue_core::host::log::Entry;

use super::older;

/// That the log is older than what was noted of it.
pub(crate) const SHORT_LOG: &str = "the update log of this host has fewer entries than its index \
                                    knows, so changes may be lost; a copy of update.log, or of the \
                                    cache directory, has them";
/// That a file has no header of a log.
pub(super) const NO_LOG: &str = "is damaged: it does not begin as an update log";
/// What to do about a cache directory that cannot be used.
pub(crate) const REMEDY: &str = "put it back from a backup, or extract the pending changes with \
                                 'segue recover', move the cache directory away, and mount again";

const MAGIC: &[u8; 8] = b"SEGUELOG";
const VERSION_AT: Range<usize> = 8..12;
const VERSION: u32 = 5;
/// The oldest version that is read. Entries of older versions are written anew before any other.
pub(super) const OLDEST: u32 = 3;
pub(super) const FILE_HEADER: usize = 32;
const ENTRY_HEADER: usize = 32;
/// Its first part, of which there is no checksum.
const SUMS: usize = 8;
/// Longest entry: a change with its ranges.
const ENTRY_MAX: usize = 64 << 20;

/// A place between two entries of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Position {
    pub(crate) generation: u64,
    pub(crate) entries: u64,
}

/// A log as it was read.
#[derive(Debug)]
pub(crate) struct FoundLog {
    pub(crate) entries: Vec<Entry>,
    pub(crate) generation: u64,
    /// The index has what so many entries did, if it has not lost it.
    pub(crate) noted: usize,
    /// The data of so many entries were durable.
    pub(crate) durable: usize,
    /// Its version.
    pub(super) version: u32,
}

impl Default for FoundLog {
    fn default() -> FoundLog {
        let (entries, version) = (Vec::new(), VERSION);
        FoundLog { entries, generation: 0, noted: 0, durable: 0, version }
    }
}

impl FoundLog {
    /// True if it is to be written anew before anything is added: no program of its version would
    /// know what is.
    pub(super) fn is_older(&self) -> bool {
        self.version < VERSION
    }

    /// How many of its `many` entries an index knows that was saved at `position`; `None` if it
    /// knows of more than there are. The log was durable first, so that is damage.
    pub(crate) fn noted_at(&self, position: Position, many: usize) -> Option<usize> {
        match position.generation.cmp(&self.generation) {
            Ordering::Less => Some(self.noted),
            Ordering::Equal => {
                let entries = usize::try_from(position.entries).ok()?;
                (entries <= many).then(|| entries.max(self.noted))
            }
            Ordering::Greater => None,
        }
    }
}

/// The start of a file: of which generation it is, and how many of its entries are noted.
pub(super) fn header(incarnation: u32, begins: Position) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(incarnation.to_le_bytes());
    bytes.extend(begins.generation.to_le_bytes());
    bytes.extend(begins.entries.to_le_bytes());
    bytes
}

fn seq_of(entry: &Entry) -> u64 {
    match entry {
        Entry::Change(logged) => logged.seq,
        Entry::Settled { seq, .. } | Entry::Preserved { seq, .. } => *seq,
        Entry::Written { .. }
        | Entry::Resized { .. }
        | Entry::Replaced(_)
        | Entry::Synced
        | Entry::Nameless(_)
        | Entry::Spoiled { .. }
        | Entry::Forgot(_) => 0,
    }
}

/// Adds an entry to `bytes`, or nothing. Earlier entries were durable up to `synced`, and the data
/// of which they speak up to `data`.
pub(super) fn encode(bytes: &mut Vec<u8>, entry: &Entry, synced: u64, data: u64) -> io::Result<()> {
    let body = |bytes: &mut Vec<u8>| {
        postcard::serialize_with_flavor(entry, Behind(bytes)).map_err(io::Error::other)
    };
    frame(bytes, body, seq_of(entry), (synced, data))
}

/// Serialized bytes go behind those that are there.
struct Behind<'a>(&'a mut Vec<u8>);

impl Flavor for Behind<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Adds an entry to `bytes` as it stands in the file, or nothing. `body` adds its body.
pub(super) fn frame(
    bytes: &mut Vec<u8>,
    body: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    seq: u64,
    (synced, data): (u64, u64),
) -> io::Result<()> {
    let start = bytes.len();
    bytes.extend([0; SUMS]);
    [seq, synced, data].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    let sums = body(bytes).and_then(|()| sums_of(bytes.get(start + SUMS..).unwrap_or_default()));
    match (sums, bytes.get_mut(start..start + SUMS)) {
        (Ok(sums), Some(place)) => {
            place.copy_from_slice(&sums);
            Ok(())
        }
        (sums, _) => {
            bytes.truncate(start);
            sums.map(drop)
        }
    }
}

/// The first part of an entry with these bytes: the length of its body, and the checksum.
fn sums_of(rest: &[u8]) -> io::Result<[u8; SUMS]> {
    let len = (rest.len() + SUMS).saturating_sub(ENTRY_HEADER);
    let fits = u32::try_from(len).ok().filter(|_| len <= ENTRY_MAX);
    let len = fits.ok_or_else(|| io::Error::other("log entry too long"))?;
    Ok((u64::from(crc32c::crc32c(rest)) << 32 | u64::from(len)).to_le_bytes())
}

/// An entry that was read.
struct Decoded {
    entry: Entry,
    len: usize,
    /// Bytes of the file that were durable when it was appended.
    synced: u64,
    /// Up to where the data were.
    data: u64,
}

/// The entry at the start of `bytes`, if it is whole and right.
///
/// An entry knows of no more than stands in its file, which is `file_len` long: so most of what is
/// none is told without a checksum.
fn decode(bytes: &[u8], file_len: u64, version: u32) -> Option<Decoded> {
    let (body_len, rest) = bytes.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let len = ENTRY_HEADER.checked_add(u32::from_le_bytes(*body_len) as usize)?;
    let rest = rest.get(..len - 8)?;
    let (synced, body) = rest.get(8..)?.split_first_chunk::<8>()?;
    let (data, body) = body.split_first_chunk::<8>()?;
    let (synced, data) = (u64::from_le_bytes(*synced), u64::from_le_bytes(*data));
    if synced.max(data) > file_len || crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
        return None;
    }
    let entry = match version {
        OLDEST => older::decode(body)?,
        _ => postcard::from_bytes(body).ok()?,
    };
    Some(Decoded { entry, len, synced, data })
}

/// Good entries behind a bad one.
fn decode_behind(rest: &[u8], file_len: u64, version: u32) -> Vec<Decoded> {
    let at = |skip| rest.get(skip..).and_then(|bytes| decode(bytes, file_len, version));
    (1..rest.len()).filter_map(at).collect()
}

/// The good entries in a part of a file.
pub(super) fn behind(rest: &[u8], version: u32) -> impl Iterator<Item = Entry> {
    decode_behind(rest, u64::MAX, version).into_iter().map(|decoded| decoded.entry)
}

/// The header and what follows it; `None` if the file does not begin as a log.
pub(super) fn parts(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(FILE_HEADER).filter(|(head, _)| head.starts_with(MAGIC))
}

/// The version of a file, if that can be read. Otherwise, the newest that can.
pub(super) fn version(bytes: &[u8]) -> u32 {
    let said = bytes.get(VERSION_AT).and_then(|bytes| bytes.first_chunk::<4>());
    let said = said.map_or(VERSION, |bytes| u32::from_le_bytes(*bytes));
    if (OLDEST..VERSION).contains(&said) { said } else { VERSION }
}

/// True if a process may have died while it made the file: it has a part of the header, or zeros.
pub(super) fn is_unfinished(bytes: &[u8]) -> bool {
    let made = header(0, Position::default());
    let differs = VERSION_AT.start..16;
    let mut pairs = bytes.iter().zip(&made).enumerate();
    let is_part = pairs.all(|(at, (found, made))| found == made || differs.contains(&at));
    let is_short = bytes.len() < FILE_HEADER && is_part;
    is_short || bytes.len() <= FILE_HEADER && bytes.iter().all(|byte| *byte == 0)
}

/// All entries of a log and the length of its good part, or what is wrong with it.
pub(super) fn parse(
    bytes: &[u8],
    incarnation: u32,
    restarted: bool,
) -> Result<(FoundLog, u64), String> {
    let (head, body) = parts(bytes).ok_or(NO_LOG)?;
    let number = |at: usize| head.get(at..).and_then(|rest| rest.first_chunk::<8>());
    let number = |at| number(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let begins = Position { generation: number(16), entries: number(24) };
    let version = version(bytes);
    let mut expected = header(incarnation, begins);
    expected.splice(VERSION_AT, version.to_le_bytes());
    if head != expected {
        return Err(
            "is of another version of segue, or of another incarnation of this cache".into()
        );
    }
    let file_len = bytes.len() as u64;
    let (mut entries, mut ends, mut at, mut data) = (Vec::new(), Vec::new(), 0, 0);
    while let Some(decoded) = body.get(at..).and_then(|rest| decode(rest, file_len, version)) {
        entries.push(decoded.entry);
        at += decoded.len;
        ends.push((FILE_HEADER + at) as u64);
        data = data.max(decoded.data);
    }
    let (rest, offset) = (body.get(at..).unwrap_or_default(), (FILE_HEADER + at) as u64);
    let behind = decode_behind(rest, file_len, version);
    let was_synced = behind.iter().any(|later| later.synced > offset);
    if was_synced || (!restarted && !behind.is_empty()) {
        return Err(format!(
            "is damaged at byte {offset}, with intact records after it; copy the cache directory \
             before you do anything else"
        ));
    }
    if !behind.is_empty() {
        tracing::warn!(
            "update.log: {} entries after byte {offset} are dropped: they were not synced before \
             the crash of this host, and an entry before them is lost",
            behind.len()
        );
    }
    let noted = usize::try_from(begins.entries).unwrap_or(usize::MAX);
    let durable = ends.partition_point(|end| *end <= data).max(noted.min(entries.len()));
    Ok((FoundLog { entries, generation: begins.generation, noted, durable, version }, offset))
}
