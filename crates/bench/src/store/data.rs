//! Megabytes in a second: data that the server has not, data that it has, data that it sends.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use segue_core::chunk::{fingerprint, possession_proof};
use segue_core::nouns::{Attr, Fingerprint, Ino, NewNode, Piece, PieceBytes};
use segue_core::wire::{Fetch, Fetched, Offer, Put, Reply, Request, Wanted};
use segue_rpc::codec::{BlockReader, block_from_stored};
use segue_rpc::{Body, Peer};

use super::client::{Client, wrong};
use super::{Course, SEGUE, SQLITE};
use crate::samples::Unit;
use crate::workload::{content, expect};
use segue_bed::{Result, Rng};

/// About the average of files of this size.
const CHUNK_BYTES: u32 = 64 << 10;
pub(super) const CHUNK: usize = CHUNK_BYTES as usize;
/// Chunks of a file: 16 MB.
const FILE_CHUNKS: usize = 256;
/// Files of a repeat.
const FILES: u32 = 16;
/// Files on their way at a time.
const LANES: usize = 4;
/// Chunks of a PUT, and between two syncs of the floor: 4 MB.
const PUT_CHUNKS: u32 = 64;
/// Bytes of a FETCH.
const FETCH: u32 = 4 << 20;

/// A chunk as a client has it.
#[derive(Clone)]
struct Chunk {
    fingerprint: Fingerprint,
    bytes: Bytes,
}

/// A file's chunks with the proofs that one session needs.
type File = Vec<(Chunk, Fingerprint)>;

pub(super) fn run(course: &mut Course<'_>) -> Result<()> {
    let files = usize::try_from(course.scaled(FILES)).unwrap_or(1);
    let chunks = chunks(files * FILE_CHUNKS, u64::from(course.repeat));
    let megabytes = (chunks.len() * CHUNK) as f64 / f64::from(1 << 20);
    let add = |course: &mut Course<'_>, test, seconds: f64, floor: f64| {
        course.add(SEGUE, test, Unit::Megabytes, megabytes / seconds)?;
        course.add(SQLITE, test, Unit::Megabytes, megabytes / floor)
    };
    let bytes: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk.bytes[..]).collect();
    course.remember_peak("upload", |course| {
        let (seconds, _) = upload(course, &chunks, true)?;
        let floor = course.floor.keep(&bytes, PUT_CHUNKS as usize)?;
        add(course, "upload new data", seconds, floor)
    })?;
    let mut uploaded = None;
    course.remember_peak("upload of known data", |course| {
        let (seconds, made) = upload(course, &chunks, false)?;
        uploaded = Some(made);
        let floor = course.floor.read_and_hash()?;
        add(course, "upload known data", seconds, floor)
    })?;
    let (client, made) = uploaded.ok_or_else(|| wrong("nothing was uploaded"))?;
    course.remember_peak("read", |course| {
        let start = Instant::now();
        let read = course.runtime.block_on(read(&client.peer, &made))?;
        let seconds = start.elapsed().as_secs_f64();
        expect(read.concat() == bytes.concat(), || "the server sent other data".into())?;
        let floor = course.floor.read_and_hash()?;
        add(course, "read data", seconds, floor)
    })
}

fn chunks(count: usize, seed: u64) -> Vec<Chunk> {
    let mut rng = Rng::new(seed);
    let chunk = |_| {
        let bytes = Bytes::from(content::noise(&mut rng, CHUNK));
        Chunk { fingerprint: fingerprint(&bytes), bytes }
    };
    (0..count).map(chunk).collect()
}

/// Uploads `chunks` in new files from a new session: the seconds that it takes, and the files.
fn upload(
    course: &mut Course<'_>,
    chunks: &[Chunk],
    is_new: bool,
) -> Result<(f64, (Client, Vec<Attr>))> {
    let clients = course.served.clients(1, &[]);
    let client = course.runtime.block_on(clients)?.pop();
    let mut client = client.ok_or_else(|| wrong("no client"))?;
    let prove = |chunk: &Chunk| (chunk.clone(), possession_proof(&client.nonce, &chunk.bytes));
    let files: Vec<Arc<File>> =
        chunks.chunks(FILE_CHUNKS).map(|file| Arc::new(file.iter().map(prove).collect())).collect();
    let start = Instant::now();
    let made = course.runtime.block_on(async {
        let peer = client.peer.clone();
        in_lanes(&files, move |file| send(peer.clone(), file, is_new)).await?;
        store(&mut client, &files).await
    })?;
    Ok((start.elapsed().as_secs_f64(), (client, made)))
}

/// Does `work` on every one of `all`, some at a time; what came of them in order.
pub(super) async fn in_lanes<I, F, R>(all: &[I], work: impl Fn(I) -> F) -> Result<Vec<R>>
where
    I: Clone,
    F: Future<Output = Result<R>> + Send + 'static,
    R: Send + 'static,
{
    let mut done = Vec::new();
    for some in all.chunks(LANES) {
        let tasks: Vec<_> = some.iter().map(|item| tokio::spawn(work(item.clone()))).collect();
        for task in tasks {
            done.push(task.await.map_err(wrong)??);
        }
    }
    Ok(done)
}

/// Offers a file's chunks, and sends them if they are new.
async fn send(peer: Peer, file: Arc<File>, is_new: bool) -> Result<()> {
    let chunks = file.iter().map(|(chunk, proof)| (chunk.fingerprint, *proof)).collect();
    let wanted = match ask(&peer, Request::Offer(Offer { chunks }), Body::Empty).await? {
        (Reply::Wanted(Wanted { indexes }), _) => indexes.len(),
        (other, _) => return Err(wrong(format!("an offer came to {other:?}"))),
    };
    let expected = if is_new { file.len() } else { 0 };
    expect(wanted == expected, || format!("{wanted} chunks wanted, not {expected}"))?;
    for part in file.chunks(PUT_CHUNKS as usize).filter(|_| is_new) {
        let mut body = Vec::with_capacity(part.len() * (CHUNK + 16));
        for (chunk, _) in part {
            body.extend_from_slice(&block_from_stored(CHUNK, &chunk.bytes));
        }
        let named = |(chunk, _): &(Chunk, _)| (chunk.fingerprint, CHUNK_BYTES);
        let put = Put { chunks: part.iter().map(named).collect(), ..Put::default() };
        ask(&peer, Request::Put(put), body.into()).await?;
    }
    Ok(())
}

/// Calls; an answer that refuses is an error.
pub(super) async fn ask(
    peer: &Peer,
    request: Request,
    body: Body,
) -> Result<(Reply, segue_rpc::BodyReader)> {
    let response = peer.call(&request, body).await.map_err(wrong)?;
    match response.reply {
        Reply::Refused(refused) => Err(wrong(format!("{} refused: {refused:?}", request.name()))),
        reply => Ok((reply, response.body)),
    }
}

/// Makes files of chunks that the server has; their attributes.
async fn store(client: &mut Client, files: &[Arc<File>]) -> Result<Vec<Attr>> {
    let (acked_below, mut records, mut inos) = (client.changes.next_seq(), Vec::new(), Vec::new());
    for file in files {
        let (place, made) = client.changes.create(Ino::ROOT, NewNode::File)?;
        records.push(made);
        let pieces = (0u64..).zip(file.iter()).map(|(index, (chunk, _))| {
            let fingerprint = chunk.fingerprint;
            let bytes = PieceBytes::Chunk { fingerprint, len: CHUNK_BYTES };
            Piece { offset: index * CHUNK as u64, bytes }
        });
        let size = (file.len() * CHUNK) as u64;
        records.push(client.changes.store(place.ino, size, pieces.collect()));
        inos.push(place.ino);
    }
    let touched = client.apply(records, acked_below).await?;
    // What the store of each file touched.
    let stores = touched.iter().skip(1).step_by(2);
    let found = inos
        .iter()
        .zip(stores)
        .filter_map(|(ino, touched)| touched.iter().find(|attr| attr.ino == *ino).copied());
    let found: Vec<Attr> = found.collect();
    expect(found.len() == files.len(), || "a store did not touch its file".into())?;
    Ok(found)
}

/// All bytes of `files`.
async fn read(peer: &Peer, files: &[Attr]) -> Result<Vec<Bytes>> {
    let asks = files.iter().flat_map(|attr| {
        let at =
            |offset| Fetch { ino: attr.ino, version: attr.data_version, offset, len: FETCH.into() };
        (0..attr.size).step_by(FETCH as usize).map(at)
    });
    let asks: Vec<Fetch> = asks.collect();
    let parts = in_lanes(&asks, |ask| fetch(peer.clone(), ask)).await?;
    Ok(parts.into_iter().flatten().collect())
}

/// The bytes of a range, without its holes.
pub(super) async fn fetch(peer: Peer, range: Fetch) -> Result<Vec<Bytes>> {
    let (reply, body) = ask(&peer, Request::Fetch(range), Body::Empty).await?;
    let Reply::Fetched(Fetched { segments }) = reply else {
        return Err(wrong("FETCH was not answered"));
    };
    let (mut blocks, mut data, mut len) = (BlockReader::new(body), Vec::new(), 0u64);
    while let Some(block) = blocks.next().await.map_err(wrong)? {
        len += block.len() as u64;
        data.push(block);
    }
    let promised: u64 = segments.iter().filter(|(_, is_data)| *is_data).map(|(len, _)| len).sum();
    expect(len == promised, || format!("{len} bytes sent, not {promised}"))?;
    Ok(data)
}

/// New chunks, as many as a PUT has, ready to be sent.
pub(super) struct PutReady(Arc<File>);

impl PutReady {
    /// The `number`th of a session.
    pub(super) fn new(client: &Client, number: usize) -> PutReady {
        // Nonces differ between sessions, and so do the data.
        let seed = u64::from_be_bytes(*client.nonce.first_chunk().unwrap_or(&[1; 8]));
        let prove = |chunk: Chunk| {
            let proof = possession_proof(&client.nonce, &chunk.bytes);
            (chunk, proof)
        };
        let new = chunks(PUT_CHUNKS as usize, seed.wrapping_add(number as u64));
        PutReady(Arc::new(new.into_iter().map(prove).collect()))
    }

    /// Sends them, and makes nothing of them; how many.
    pub(super) async fn send(self, client: &Client) -> Result<u32> {
        send(client.peer.clone(), self.0, true).await?;
        Ok(PUT_CHUNKS)
    }
}
