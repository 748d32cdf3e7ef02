//! Making stores: the bytes of a change are read from the container, cut into chunks, and what
//! the server lacks is sent, before the record that refers to them. While one group of chunks is
//! on its way the next is cut.
//!
//! Where a quota or a full disk lets no more in, the records before go first, which may make room,
//! and what else is on its way. The oldest one then goes without its chunks: so the server says
//! whether it is refused, once and for all. A full disk has a minute for that, unless somebody
//! waits (`host::send::server_disk` in core).

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use segue_core::chunk::Cutter;
use segue_core::host::log::{Change, DataChange, Logged};
use segue_core::host::send::{OFFER_FROM, group_bytes};
use segue_core::namespace::{LEAF_EXTENTS_MAX, leaf_wanted};
use segue_core::nouns::{
    Base, Class, Fingerprint, INLINE_MAX, Ino, Piece, PieceBytes, Record, Stamped, Store,
};
use segue_core::refusal::Refusal;
use segue_core::wire::{Leaf, Staged};
use segue_rpc::{LinkState, Rpc};

use crate::disk::source::Source;
use crate::net::WireChunk;
use crate::write_back::WriteBack;
use crate::write_back::differ::{Differ, Hints};
use crate::write_back::group::{FLYING_MAX, Group, Way};

/// Most that one PUT carries.
const PUT_MAX: usize = 4 << 20;
/// A hole that is shorter stays in the chunk around it, in bytes: two chunks and a gap between
/// them cost more than zeros, which compress.
const HOLE_MIN: u64 = 64 << 10;

/// Most pieces of one store: half of what a session of the server remembers to have got, and of
/// what fits into a message.
const PIECES_MAX: usize = 1 << 16;

/// The records of a batch, as they are sent.
pub(crate) struct Prepared {
    pub(crate) records: Vec<Stamped>,
    /// To bring along. The server has every other chunk that the records refer to.
    pub(crate) chunks: Vec<WireChunk>,
}

/// The chunk that a piece is.
fn chunk_of(piece: &Piece) -> Option<(Fingerprint, u32)> {
    match piece.bytes {
        PieceBytes::Chunk { fingerprint, len } => Some((fingerprint, len)),
        _ => None,
    }
}

/// Zeros need no chunk, and one hole says as much as several.
fn push_hole(pieces: &mut Vec<Piece>, hole: Range<u64>) {
    let more = hole.end - hole.start;
    match pieces.last_mut() {
        Some(Piece { offset, bytes: PieceBytes::Hole { len } }) if *offset + *len == hole.start => {
            *len += more;
        }
        _ if more == 0 => {}
        _ => pieces.push(Piece { offset: hole.start, bytes: PieceBytes::Hole { len: more } }),
    }
}

impl WriteBack {
    /// Makes the records of a batch and sends their chunks. With `named` they only say the names of
    /// the chunks.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        class: Class,
        batch: &[Logged],
        named: bool,
    ) -> Result<Prepared, Refusal> {
        let mut group = Group::new(class);
        if named {
            group.way = Way::Named { here: true };
        }
        let records = self.stamp(batch, &mut group).await?;
        let chunks = if named { Vec::new() } else { group.chunks };
        Ok(Prepared { records, chunks })
    }

    /// The records of a batch. Afterwards the server has every chunk that they refer to, but
    /// those of `group`, which is small enough to be brought along.
    async fn stamp(
        self: &Arc<Self>,
        batch: &[Logged],
        group: &mut Group,
    ) -> Result<Vec<Stamped>, Refusal> {
        let mut records = Vec::with_capacity(batch.len());
        for logged in batch {
            let record = match &logged.change {
                Change::Record(record) => record.clone(),
                Change::Data(data) => Record::Store(match self.store_sent_ahead(logged.seq) {
                    Some(store) => store,
                    None => self.store(logged.seq, data, group).await?,
                }),
            };
            records.push(Stamped {
                seq: logged.seq,
                time: logged.time,
                caller: logged.caller.clone(),
                operation: logged.operation,
                known: logged.known,
                record,
            });
        }
        if group.bytes as u64 >= OFFER_FROM {
            self.send_group(group).await?;
        }
        group.landed().await?;
        Ok(records)
    }

    /// Makes the store of change `seq`, out of what the server has where that is known.
    pub(crate) async fn store(
        self: &Arc<Self>,
        seq: u64,
        data: &DataChange,
        group: &mut Group,
    ) -> Result<Store, Refusal> {
        if group.way == Way::Sent {
            group.differ = self.alike(seq, data).await.map(Differ::new);
        }
        let mut made = self.store_of(seq, data, group).await;
        if group.differ.is_some() {
            if made.is_ok() {
                self.send_group(group).await?;
            }
            group.differ = None;
        }
        if std::mem::take(&mut group.is_astray) {
            made = self.store_of(seq, data, group).await;
        }
        made
    }

    async fn store_of(
        self: &Arc<Self>,
        seq: u64,
        data: &DataChange,
        group: &mut Group,
    ) -> Result<Store, Refusal> {
        let wanted_whole = self.host.lock().is_wanted_whole(seq);
        let (ranges, cut) = if wanted_whole {
            self.complete(data).await?;
            (vec![0..data.size], Some(0))
        } else {
            (data.ranges.clone(), data.cut)
        };
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let inline = bytes <= INLINE_MAX as u64;
        let source = self.disk.source(seq, data)?;
        let mut pieces = Vec::new();
        for range in ranges {
            let range = range.start.min(data.size)..range.end.min(data.size);
            if range.is_empty() {
                continue;
            }
            if inline {
                pieces.push(self.inline_piece(&source, range)?);
            } else {
                let mut at = range.start;
                while at < range.end {
                    let hole = self.next_hole(&source, at..range.end)?;
                    let part = at..hole.start;
                    self.cut(&source, (data.ino, part), data.size, &mut pieces, group).await?;
                    at = hole.end;
                    push_hole(&mut pieces, hole);
                }
            }
            if pieces.len() > PIECES_MAX {
                return Err(Refusal::TooLarge);
            }
        }
        Ok(data.store(pieces, cut))
    }

    /// Gets what is missing of a file that another host changed meanwhile, as long as the server
    /// has the data that the change was made on. What was never here of these is zeros in the
    /// copy, which still holds all that was written here.
    async fn complete(self: &Arc<Self>, data: &DataChange) -> Result<(), Refusal> {
        let ino = data.ino;
        if !self.host.lock().is_ahead(ino) && !self.recall(data).await? {
            return Ok(());
        }
        match self.shell.fetch(ino, 0..data.size).await {
            Err(Refusal::Unreachable) => Err(Refusal::Unreachable),
            Err(refusal) => {
                tracing::warn!("inode {ino}: its conflict copy lacks unchanged data: {refusal}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// After a crash only the log knows the file. What it says was written here is not to be
    /// fetched, and nothing is where the server has other data than these were written on: the
    /// copy would be of two hosts. False then.
    async fn recall(&self, data: &DataChange) -> Result<bool, Refusal> {
        if let Err(Refusal::Unreachable) = self.shell.ask_attr(data.ino).await {
            return Err(Refusal::Unreachable);
        }
        let mut core = self.host.lock();
        let version = core.tree.peek(data.ino).map(|attr| attr.data_version);
        if version.is_none_or(|version| data.base != Base::Version(version)) {
            return Ok(false);
        }
        if let Some(file) = core.file(data.ino) {
            data.ranges.iter().for_each(|range| file.filled(range.clone()));
        }
        Ok(true)
    }

    fn inline_piece(&self, source: &Source<'_>, range: Range<u64>) -> Result<Piece, Refusal> {
        let len = usize::try_from(range.end - range.start).map_err(|_| Refusal::TooLarge)?;
        let bytes = source
            .read(range.start, len)
            .map_err(|error| self.disk.disk_refusal("containers", &error))?;
        Ok(Piece { offset: range.start, bytes: PieceBytes::Inline(bytes) })
    }

    /// The first hole of the container in `range` that is worth its while; empty, at its end, if
    /// there is none. So a hole of any length costs no reading.
    fn next_hole(&self, source: &Source<'_>, range: Range<u64>) -> Result<Range<u64>, Refusal> {
        let mut at = range.start;
        loop {
            let data = source
                .next_data(at..range.end)
                .map_err(|error| self.disk.disk_refusal("containers", &error))?;
            if data.start - at >= HOLE_MIN || data.is_empty() {
                return Ok(at..data.start);
            }
            at = data.end;
        }
    }

    async fn cut(
        self: &Arc<Self>,
        source: &Source<'_>,
        (ino, range): (Ino, Range<u64>),
        size: u64,
        pieces: &mut Vec<Piece>,
        group: &mut Group,
    ) -> Result<(), Refusal> {
        let differ = group.differ.as_ref();
        let cutter = differ.map_or(Cutter::for_file(size), |differ| differ.basis().cutter(size));
        let mut at = range.start;
        let mut window = Bytes::new();
        group.run = 0;
        while at < range.end {
            let read_to = at + window.len() as u64;
            let last = read_to == range.end;
            let Some(len) = cutter.first(&window, last) else {
                let len = (cutter.longest() as u64 * 4).min(range.end - at);
                let len = usize::try_from(len).map_err(|_| Refusal::TooLarge)?;
                let bytes = source.read(at, len);
                window =
                    bytes.map_err(|error| self.disk.disk_refusal("containers", &error))?.into();
                continue;
            };
            let chunk = window.split_to(len);
            if chunk.iter().all(|&byte| byte == 0) {
                self.end_run(ino, pieces, group).await?;
                push_hole(pieces, at..at + len as u64);
            } else {
                group.run += 1;
                pieces.push(group.piece(ino, at, chunk)?);
            }
            at += len as u64;
            if group.run == LEAF_EXTENTS_MAX {
                self.stage(ino, pieces, group).await?;
            }
            if group.is_due(self.group_bytes(), size) {
                self.send_group(group).await?;
            }
        }
        self.end_run(ino, pieces, group).await
    }

    /// A gap comes next, or the end. What the server knows only by where it stands becomes a leaf.
    async fn end_run(
        self: &Arc<Self>,
        ino: Ino,
        pieces: &mut Vec<Piece>,
        group: &mut Group,
    ) -> Result<(), Refusal> {
        if group.differ.as_ref().is_some_and(Differ::has_found) {
            return self.stage(ino, pieces, group).await;
        }
        group.run = 0;
        group.differ.as_mut().map(Differ::end_run);
        Ok(())
    }

    /// Makes one leaf of the last pieces, so that neither a record nor what the server has to
    /// do for it grows with the file.
    async fn stage(
        self: &Arc<Self>,
        ino: Ino,
        pieces: &mut Vec<Piece>,
        group: &mut Group,
    ) -> Result<(), Refusal> {
        self.send_group(group).await?;
        group.landed().await?;
        let run = pieces.split_off(pieces.len().saturating_sub(group.run));
        group.run = 0;
        let leaf = match &mut group.differ {
            Some(differ) => differ.leaf(),
            None => leaf_wanted(&run.iter().filter_map(chunk_of).collect::<Vec<_>>()),
        };
        let Some((offset, leaf)) = run.first().map(|piece| piece.offset).zip(leaf) else {
            return Ok(());
        };
        let name = leaf.name;
        let missing = match group.way {
            Way::Sent => self.stage_sent(leaf, ino, group).await?,
            Way::Named { here: false } => Vec::new(),
            // Those that came are named each, so that they go if the record is refused.
            Way::Named { here: true } => match self.stage_leaf(leaf, ino, group.class).await {
                Ok(staged) if staged.missing.is_empty() => staged.missing,
                Ok(_) | Err(Refusal::Quota | Refusal::NoSpace) => {
                    group.way = Way::Named { here: false };
                    pieces.extend(run);
                    return Ok(());
                }
                Err(refusal) => return Err(refusal),
            },
        };
        if !missing.is_empty() {
            // Collected since they were offered, a week ago: the next attempt offers all again.
            tracing::debug!("{} chunks are missing for a leaf", missing.len());
            return Err(Refusal::Unreachable);
        }
        let len = run.iter().map(Piece::len).sum();
        pieces.push(Piece { offset, bytes: PieceBytes::Leaf { leaf: name, len } });
        Ok(())
    }

    /// Has a leaf made of chunks that were sent, and of some that its basis has. Where that is
    /// another one by now, the store is made anew without.
    async fn stage_sent(
        self: &Arc<Self>,
        leaf: Leaf,
        ino: Ino,
        group: &mut Group,
    ) -> Result<Vec<Fingerprint>, Refusal> {
        let is_differing = group.differ.is_some();
        let Staged { missing, astray } = self.stage_leaf(leaf, ino, group.class).await?;
        if is_differing && !(missing.is_empty() && astray.is_empty()) {
            tracing::debug!("#{ino}: its basis is another one by now");
            group.is_astray = true;
            return Err(Refusal::Changed);
        }
        Ok(missing)
    }

    async fn stage_leaf(
        self: &Arc<Self>,
        leaf: Leaf,
        ino: Ino,
        class: Class,
    ) -> Result<Staged, Refusal> {
        let stage = |rpc| async move { self.remote.stage(&rpc, vec![leaf], vec![ino]).await };
        self.until_due(class, stage).await
    }

    /// Of how many bytes a group is on this link.
    fn group_bytes(&self) -> usize {
        let stats = self.remote.link().stats();
        let link = stats.map(|stats| (stats.rate, stats.base_rtt.unwrap_or_default()));
        group_bytes(link)
    }

    /// Sends the group's chunks on their way, and empties it.
    pub(super) async fn send_group(self: &Arc<Self>, group: &mut Group) -> Result<(), Refusal> {
        let chunks = std::mem::take(&mut group.chunks);
        let files: Vec<Ino> = std::mem::take(&mut group.files).into_iter().collect();
        group.bytes = 0;
        if chunks.is_empty() || group.way != Way::Sent {
            return Ok(());
        }
        group.landed_but(FLYING_MAX - 1).await?;
        let hints = group.differ.as_mut().and_then(Differ::hints);
        let (write_back, class) = (Arc::clone(self), group.class);
        group.flying.spawn(async move {
            let sender = Arc::clone(&write_back);
            let send = |rpc| async move { sender.send_chunks(&rpc, chunks, files, hints).await };
            write_back.until_due(class, send).await
        });
        Ok(())
    }

    /// Makes sure that the server has chunks for `files`.
    async fn send_chunks(
        &self,
        rpc: &Rpc,
        chunks: Vec<WireChunk>,
        files: Vec<Ino>,
        hints: Option<Hints>,
    ) -> Result<(), Refusal> {
        let hints = hints.as_ref();
        let nonce = match self.remote.link().state() {
            LinkState::Online { welcome, .. } => welcome.nonce,
            _ => return Err(Refusal::Unreachable),
        };
        let indexes = self.remote.offer(rpc, &nonce, &chunks).await?;
        let size = |chunks: &[WireChunk]| chunks.iter().map(|(_, chunk)| chunk.len() as u64).sum();
        let all: u64 = size(&chunks);
        let wanted = indexes.iter().filter_map(|&index| chunks.get(index as usize).cloned());
        let mut put: Vec<WireChunk> = Vec::new();
        let mut sum = 0;
        let mut sent = 0;
        for chunk in wanted {
            if sum > 0 && sum + chunk.1.len() > PUT_MAX {
                self.put(rpc, &put, files.clone(), hints).await?;
                self.note_sent(size(&put));
                sent += size(&put);
                (put, sum) = (Vec::new(), 0);
            }
            sum += chunk.1.len();
            put.push(chunk);
        }
        if !put.is_empty() {
            self.put(rpc, &put, files, hints).await?;
        }
        self.note_sent(all - sent);
        Ok(())
    }
}
