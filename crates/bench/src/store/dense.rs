//! The experiment `dense`: one file of 100 GB, then one of 8 TiB that is nearly empty.
//!
//! What a mount does to send a large file (`client::write_back::upload`) happens here without one,
//! which would need the file's bytes on its own disk. No two chunks are alike, and each is
//! small once it is compressed, so that a small disk takes the file.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use segue_core::chunk::{fingerprint, possession_proof};
use segue_core::namespace::{LEAF_EXTENTS_MAX, leaf_wanted};
use segue_core::nouns::{Attr, Fingerprint, Ino, NewNode, Piece, PieceBytes, Record};
use segue_core::wire::{Fetch, Offer, Put, Reply, Request, Stage, Staged, Wanted};
use segue_rpc::codec::encode_block;
use segue_rpc::{Body, Peer};

use super::changes::NamedFile;
use super::client::{Client, wrong};
use super::data::{ask, fetch, in_lanes};
use super::served::HOME;
use super::{Course, SEGUE};
use crate::record::Context;
use crate::samples::{Section, Style, Unit};
use crate::workload::expect;
use segue_bed::{Result, Rng};

/// As files from 1 GiB on are cut, on average.
const CHUNK_BYTES: u32 = 1 << 20;
/// Chunks of the file: 100 GB.
const CHUNKS: u32 = 100 << 10;
/// Chunks offered together, and of a PUT, as a mount does it.
const GROUP: u32 = 8;
const PUT_CHUNKS: usize = 4;
/// Chunks of a FETCH.
const FETCH_CHUNKS: u32 = 4;
/// Size of the file that is nearly empty.
const SPARSE: u64 = 8 << 40;
/// Less in packs is nothing: they are not compacted for it.
const NOTHING_BYTES: u64 = 2 << 20;
/// When to give up on space that does not come back.
const SPACE_MAX: Duration = Duration::from_secs(1800);

const STYLE: Style = Style {
    title: "dense",
    base: SEGUE,
    preface: "A file of 100 GB at scale 1, whose 1 MB chunks all differ: a run of 64 bytes fills \
              each 4 KB, with a count in it. `segue serve` is asked over QUIC by one client on \
              its host, which makes the data, hashes and compresses them, and when it reads, \
              makes them again and compares. Then a file of 8 TiB with a chunk at its start, in \
              its middle and at its end.",
    sections: &[
        Section { heading: "Rates", text: "", units: &[Unit::Megabytes] },
        Section {
            heading: "Times",
            text: "Space is back when packs have less than 2 MB.",
            units: &[Unit::Milliseconds],
        },
        Section {
            heading: "Memory and disk",
            text: "Memory: the server's highest resident memory (VmHWM) in each phase.",
            units: &[Unit::MegabytesHeld],
        },
    ],
    targets: &[],
};

/// Measures both files, writes the results into `out` and returns the tables.
pub fn run(out: &Path, context: Context, scale: f64) -> Result<String> {
    super::on_a_host(out, STYLE, context, scale, |course| {
        let client = course.runtime.block_on(course.served.clients(1, &[]))?.pop();
        let mut client = client.ok_or_else(|| wrong("no client"))?;
        dense(course, &mut client)?;
        sparse(course, &mut client)
    })
}

fn dense(course: &mut Course<'_>, client: &mut Client) -> Result<()> {
    let chunks = course.scaled(CHUNKS);
    let megabytes = f64::from(chunks);
    let rate = |course: &mut Course<'_>, test, start: Instant| {
        course.add(SEGUE, test, Unit::Megabytes, megabytes / start.elapsed().as_secs_f64())
    };
    let mut made = None;
    course.remember_peak("memory: upload", |course| {
        let start = Instant::now();
        made = Some(course.runtime.block_on(upload(client, chunks))?);
        rate(course, "upload", start)
    })?;
    let (place, attr) = made.ok_or_else(|| wrong("nothing was uploaded"))?;
    for (test, bytes) in
        [("disk: metadata", course.served.metadata_bytes()?), ("disk: packs", packed(course)?)]
    {
        course.add(SEGUE, test, Unit::MegabytesHeld, bytes as f64 / f64::from(1 << 20))?;
    }
    course.remember_peak("memory: reading back", |course| {
        let start = Instant::now();
        course.runtime.block_on(read(&client.peer, attr, chunks))?;
        rate(course, "read and compare", start)
    })?;
    course.remember_peak("memory: check", |course| {
        let start = Instant::now();
        check(course, chunks)?;
        rate(course, "check", start)
    })?;
    course.remember_peak("memory: deletion", |course| {
        let start = Instant::now();
        course.runtime.block_on(unlink(client, place))?;
        milliseconds(course, "delete", start)?;
        while packed(course)? >= NOTHING_BYTES {
            expect(start.elapsed() < SPACE_MAX, || "the space does not come back".into())?;
            std::thread::sleep(Duration::from_millis(100));
        }
        milliseconds(course, "space is back after deletion", start)
    })
}

fn sparse(course: &mut Course<'_>, client: &mut Client) -> Result<()> {
    let offsets = [0, SPARSE / 2, SPARSE - u64::from(CHUNK_BYTES)];
    course.remember_peak("memory: 8 TiB", |course| {
        let start = Instant::now();
        let (place, attr) = course.runtime.block_on(async {
            let parts = send(client.peer.clone(), client.nonce, CHUNKS..CHUNKS + 3).await?;
            let pieces = offsets.iter().zip(parts);
            let pieces = pieces.map(|(&offset, (fingerprint, len))| Piece {
                offset,
                bytes: PieceBytes::Chunk { fingerprint, len },
            });
            make(client, SPARSE, pieces.collect()).await
        })?;
        milliseconds(course, "8 TiB: make", start)?;
        let start = Instant::now();
        let stat = course.runtime.block_on(client.ask(&Request::Getattr(place.ino)))?;
        milliseconds(course, "8 TiB: stat", start)?;
        let right = matches!(&stat, Reply::Node(found) if found.node.attr.size == SPARSE);
        expect(right, || format!("not of 8 TiB: {stat:?}"))?;
        let start = Instant::now();
        for (number, &offset) in (CHUNKS..).zip(&offsets) {
            let range = range(&attr, offset, 1);
            let bytes = course.runtime.block_on(fetch(client.peer.clone(), range))?.concat();
            expect(bytes == chunk(number), || format!("other data at {offset}"))?;
        }
        milliseconds(course, "8 TiB: read three chunks", start)?;
        let start = Instant::now();
        check(course, 3)?;
        milliseconds(course, "8 TiB: check", start)?;
        let start = Instant::now();
        course.runtime.block_on(unlink(client, place))?;
        milliseconds(course, "8 TiB: delete", start)
    })
}

fn milliseconds(course: &mut Course<'_>, test: &'static str, start: Instant) -> Result<()> {
    course.add(SEGUE, test, Unit::Milliseconds, start.elapsed().as_secs_f64() * 1e3)
}

/// Bytes of all packs.
fn packed(course: &Course<'_>) -> Result<u64> {
    // One that is gone when its length is asked for has none.
    let len = |path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    Ok(course.served.packs()?.into_iter().map(len).sum())
}

/// Checks the volume, in which there are `chunks`.
fn check(course: &Course<'_>, chunks: u32) -> Result<()> {
    let checked = course.served.check(HOME)?;
    let right = checked["ok"] == true && checked["chunks"] == chunks;
    expect(right, || format!("not the {chunks} chunks that were made: {checked}"))
}

/// Chunk `number`: no other is like it, and compressed it is small.
fn chunk(number: u32) -> Bytes {
    let mut rng = Rng::new(u64::from(number) + 1);
    let mut bytes = Vec::with_capacity(CHUNK_BYTES as usize);
    while bytes.len() < CHUNK_BYTES as usize {
        let mut run = [0; 64];
        rng.fill(&mut run);
        for count in 0..64 {
            run[0] = count;
            bytes.extend_from_slice(&run);
        }
    }
    bytes.into()
}

/// Makes a file of the first `chunks` chunks.
async fn upload(client: &mut Client, chunks: u32) -> Result<(NamedFile, Attr)> {
    let (mut pieces, mut offset) = (Vec::new(), 0);
    for leaf in ranges(0..chunks, LEAF_EXTENTS_MAX) {
        let (peer, nonce) = (client.peer.clone(), client.nonce);
        let groups: Vec<_> = ranges(leaf, GROUP as usize).collect();
        let parts = in_lanes(&groups, |group| send(peer.clone(), nonce, group)).await?.concat();
        let len = parts.iter().map(|(_, len)| u64::from(*len)).sum();
        let leaf = stage(client, parts).await?;
        pieces.push(Piece { offset, bytes: PieceBytes::Leaf { leaf, len } });
        offset += len;
    }
    make(client, offset, pieces).await
}

/// `all` in parts of at most `most`.
fn ranges(all: Range<u32>, most: usize) -> impl Iterator<Item = Range<u32>> {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    all.clone().step_by(most as usize).map(move |start| start..(start + most).min(all.end))
}

/// Offers and sends some chunks: what they are called, and their lengths.
async fn send(peer: Peer, nonce: [u8; 32], group: Range<u32>) -> Result<Vec<(Fingerprint, u32)>> {
    let named = move |number| {
        let raw = chunk(number);
        (fingerprint(&raw), possession_proof(&nonce, &raw), encode_block(&raw))
    };
    let made = tokio::task::spawn_blocking(move || group.map(named).collect::<Vec<_>>());
    let made = made.await.map_err(wrong)?;
    let offer = Offer { chunks: made.iter().map(|(name, proof, _)| (*name, *proof)).collect() };
    let (wanted, _) = ask(&peer, Request::Offer(offer), Body::Empty).await?;
    let all = matches!(&wanted, Reply::Wanted(Wanted { indexes }) if indexes.len() == made.len());
    expect(all, || format!("not all chunks are new: {wanted:?}"))?;
    for part in made.chunks(PUT_CHUNKS) {
        let chunks = part.iter().map(|(name, ..)| (*name, CHUNK_BYTES)).collect();
        let put = Put { chunks, ..Put::default() };
        let blocks: Vec<&[u8]> = part.iter().map(|(.., block)| &block[..]).collect();
        ask(&peer, Request::Put(put), blocks.concat().into()).await?;
    }
    Ok(made.into_iter().map(|(name, ..)| (name, CHUNK_BYTES)).collect())
}

/// Makes a leaf; its name.
async fn stage(client: &Client, parts: Vec<(Fingerprint, u32)>) -> Result<Fingerprint> {
    let leaf = leaf_wanted(&parts).ok_or_else(|| wrong("a leaf without a name"))?;
    let name = leaf.name;
    match client.ask(&Request::Stage(Stage { leaves: vec![leaf], files: Vec::new() })).await? {
        Reply::Staged(staged) if staged == Staged::default() => Ok(name),
        other => Err(wrong(format!("a leaf came to {other:?}"))),
    }
}

/// Makes a file of what the server has.
async fn make(client: &mut Client, size: u64, pieces: Vec<Piece>) -> Result<(NamedFile, Attr)> {
    let acked_below = client.changes.next_seq();
    let (place, made) = client.changes.create(Ino::ROOT, NewNode::File)?;
    let store = client.changes.store(place.ino, size, pieces);
    let touched = client.apply(vec![made, store], acked_below).await?;
    let attr = touched.concat().into_iter().rfind(|attr| attr.ino == place.ino);
    Ok((place, attr.ok_or_else(|| wrong("a store did not touch its file"))?))
}

async fn unlink(client: &mut Client, place: NamedFile) -> Result<()> {
    let acked_below = client.changes.next_seq();
    let NamedFile { parent, name, ino } = place;
    let record = client.changes.stamp(Record::Unlink { parent, name, ino, open: false });
    client.apply(vec![record], acked_below).await.map(drop)
}

/// Reads all of the file, and compares.
async fn read(peer: &Peer, attr: Attr, chunks: u32) -> Result<()> {
    let ranges: Vec<_> = ranges(0..chunks, FETCH_CHUNKS as usize).collect();
    let one = |chunks| compare(peer.clone(), attr, chunks);
    in_lanes(&ranges, one).await.map(drop)
}

async fn compare(peer: Peer, attr: Attr, chunks: Range<u32>) -> Result<()> {
    let offset = u64::from(chunks.start) * u64::from(CHUNK_BYTES);
    let read = fetch(peer, range(&attr, offset, chunks.end - chunks.start)).await?.concat();
    let same = move || {
        let mut read = read.chunks(CHUNK_BYTES as usize);
        chunks.map(chunk).all(|chunk| read.next() == Some(&chunk[..]))
    };
    let same = tokio::task::spawn_blocking(same).await.map_err(wrong)?;
    expect(same, || format!("the server sent other data at {offset}"))
}

fn range(attr: &Attr, offset: u64, chunks: u32) -> Fetch {
    let len = u64::from(chunks) * u64::from(CHUNK_BYTES);
    Fetch { ino: attr.ino, version: attr.data_version, offset, len }
}
