//! Everything that is open while this process holds a data directory.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use segue_core::namespace::keys::SERVER_TAGS;
use segue_core::namespace::lives::Start;
use segue_core::namespace::{ChunkPlace, create_volume, get_row, put_row, volumes};
use segue_core::nouns::VolumeId;
use segue_core::upkeep::collect::packs;
use segue_rpc::identity::{Authority, IdentityError};
use serde::{Deserialize, Serialize};

use super::DataDir;
use crate::clock::now;
use crate::collect::Holds;
use crate::disk_space::Purpose;
use crate::error::{Remedy, ServeError};
use crate::meta::{Kv, Store, StoreError};
use crate::packs::{ENTRY_BYTES, Packs, StoredChunk};
use crate::principals;
use crate::random::random;

/// The file of the metadata.
const META: &str = "meta.db";
/// The volume that a new server has.
const FIRST_VOLUME: &str = "home";
const LISTEN: &[u8] = &[SERVER_TAGS + 2];
const DIRECTORY: &[u8] = &[SERVER_TAGS + 3];

/// What the metadata say about the directory that they belong to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DirectoryRow {
    /// The directory's id, as in its VERSION.
    id: String,
    /// Fingerprint of the certificate that hosts know the server by.
    authority: String,
}

/// An open data directory.
pub(crate) struct Data {
    pub(crate) store: Arc<Store>,
    pub(crate) packs: Packs,
    pub(crate) authority: Authority,
    pub(crate) holds: Holds,
    /// Last, so that it is released when nothing is open any more.
    pub(crate) directory: DataDir,
}

impl Data {
    /// Opens what is in `directory`, or makes it in one that is new.
    pub(crate) fn open(mut directory: DataDir) -> Result<Data, ServeError> {
        let path = directory.path().to_owned();
        let identity = path.join("identity");
        if directory.is_new() {
            let authority = Authority::open(&identity).map_err(|error| lost(&identity, error))?;
            make_store(&directory, &authority)?;
            directory.finish().map_err(|error| ServeError::data(&path, error))?;
        }
        let store = open_store(&path)?;
        let row = directory_row(&store, &directory)?;
        let authority = Authority::load(&identity).map_err(|error| lost(&identity, error))?;
        if authority.fingerprint() != row.authority {
            let words = "is another certificate than the one that the hosts of this server know";
            return Err(ServeError::part(&identity.join("ca.pem"), words, Remedy::Identity));
        }
        let packs = open_packs(&store, &path)?.within(store.disk_space().clone());
        Ok(Data { store: Arc::new(store), packs, authority, holds: Holds::default(), directory })
    }

    /// Has the numbers of this directory differ from those of any copy of it: before it is served,
    /// or changed.
    pub(crate) fn begin_life(&self) -> Result<(), ServeError> {
        let meta = self.path().join(META);
        let start = start().map_err(|error| ServeError::data(self.path(), error))?;
        self.store.begin_life(start).map_err(|error| unusable(&meta, error))
    }

    /// Makes another certificate authority, and shuts out every identity of the last one.
    pub(crate) fn renew_identity(directory: &DataDir) -> Result<(), ServeError> {
        let store = open_store(directory.path())?;
        let row = directory_row(&store, directory)?;
        let identity = directory.path().join("identity");
        let authority = Authority::renew(&identity).map_err(|error| lost(&identity, error))?;
        let row = DirectoryRow { authority: authority.fingerprint().to_owned(), ..row };
        let done = store.write_blocking(move |txn| {
            principals::revoke_all(txn, now().secs)?;
            put_row(txn, DIRECTORY, &row)
        });
        done.map_err(|error| unusable(&directory.path().join(META), error))
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes chunks that were checked, durably: rows may lead to the places returned. Whoever
    /// calls this holds a pin until they do.
    pub(crate) fn keep(
        &self,
        volume: VolumeId,
        chunks: &[StoredChunk],
        purpose: Purpose,
    ) -> Result<Vec<ChunkPlace>, StoreError> {
        let appended = self.packs.append(volume, chunks, purpose).map_err(|error| {
            if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
                return StoreError::Full;
            }
            tracing::error!("cannot write chunks: {error}");
            StoreError::Chunks(error.to_string())
        });
        let (places, unsynced) = appended?;
        self.packs.sync(&unsynced).map_err(|error| {
            tracing::error!("cannot sync chunks to disk, restart the server: {error}");
            self.store.poison();
            StoreError::Poisoned
        })?;
        Ok(places)
    }

    /// Remembers where the server listens, for invites that are made while it is down.
    pub(crate) fn set_listen(&self, listen: SocketAddr) -> Result<(), StoreError> {
        self.store.write_blocking(move |txn| put_row(txn, LISTEN, &listen))
    }

    /// Where the server listens, or did last.
    pub(crate) fn listen(&self) -> Result<Option<SocketAddr>, StoreError> {
        Ok(self.store.read_blocking(|txn| get_row(txn, LISTEN, "the address"))??)
    }
}

/// Makes the metadata of a new directory, or goes on with making them.
fn make_store(directory: &DataDir, authority: &Authority) -> Result<(), ServeError> {
    let meta = directory.path().join(META);
    let uuid = random().map_err(|error| ServeError::data(directory.path(), error))?;
    let (id, authority) = (directory.id().to_owned(), authority.fingerprint().to_owned());
    let made = Store::make(&meta).map_err(|error| ServeError::part(&meta, error, Remedy::Copy))?;
    let first = move |txn: &mut Kv<'_>| {
        if volumes(txn)?.is_empty() {
            // The name is a good one and nobody has it.
            let _ = create_volume(txn, FIRST_VOLUME, uuid, now())?;
        }
        put_row(txn, DIRECTORY, &DirectoryRow { id, authority })
    };
    made.write_blocking(first).map_err(|error| unusable(&meta, error))
}

fn open_store(path: &Path) -> Result<Store, ServeError> {
    let meta = path.join(META);
    if !meta.exists() {
        let words = "is missing; it holds the metadata of all files";
        return Err(ServeError::part(&meta, words, Remedy::Copy));
    }
    Store::open(&meta).map_err(|error| ServeError::part(&meta, error, Remedy::Copy))
}

/// What the metadata say about their directory, if that is `directory`.
fn directory_row(store: &Store, directory: &DataDir) -> Result<DirectoryRow, ServeError> {
    let meta = directory.path().join(META);
    let row = store.read_blocking(|kv| get_row(kv, DIRECTORY, "the directory's id"));
    let row: Option<DirectoryRow> = match row {
        Ok(Ok(row)) => row,
        Ok(Err(fault)) => return Err(unusable(&meta, fault.into())),
        Err(error) => return Err(unusable(&meta, error)),
    };
    let words = match row {
        Some(row) if row.id == directory.id() => return Ok(row),
        Some(_) => "belongs to another data directory than VERSION",
        None => "does not name its data directory: it is truncated, or no metadata file",
    };
    Err(ServeError::part(&meta, words, Remedy::Copy))
}

/// Opens the packs. One that is lost costs the files in it, and not the volume.
fn open_packs(store: &Store, path: &Path) -> Result<Packs, ServeError> {
    // A damaged row hides the loss of its pack until it is read.
    let known = store.read_noting(|kv| packs(kv)).map(|(known, _)| known);
    let known = known.and_then(|known| known.map_err(StoreError::from));
    let known = known.map_err(|error| unusable(&path.join(META), error))?;
    let directory = path.join("packs");
    let last = known.keys().last().copied().unwrap_or(0);
    let packs = Packs::open(&directory, last).map_err(|error| match error.kind() {
        ErrorKind::NotFound => ServeError::part(&directory, "is missing", Remedy::Copy),
        _ => ServeError::data(&directory, error),
    })?;
    for (id, row) in known.iter().filter(|(_, row)| row.chunks > 0) {
        let what = match packs.entry_bytes(*id) {
            Ok(bytes) if bytes >= row.live_bytes + ENTRY_BYTES * row.chunks => continue,
            Ok(_) => "is too short for its chunks".to_owned(),
            Err(error) => format!("cannot be read: {error}"),
        };
        tracing::error!(
            "pack {id} {what}: up to {} chunks may be lost; segue volume check names the files",
            row.chunks
        );
    }
    Ok(packs)
}

fn unusable(meta: &Path, error: StoreError) -> ServeError {
    match error {
        StoreError::Damaged(_) | StoreError::Read(_) => {
            ServeError::part(meta, format!("cannot be used: {error}"), Remedy::Copy)
        }
        error => ServeError::Meta { path: meta.to_owned(), words: error.to_string() },
    }
}

fn lost(identity: &Path, error: IdentityError) -> ServeError {
    let part = |path: &Path, words: String| ServeError::part(path, words, Remedy::Identity);
    match error {
        IdentityError::Missing { path } => part(&path, "is missing".to_owned()),
        IdentityError::Damaged { path, words } => part(&path, format!("is damaged: {words}")),
        IdentityError::File { path, error } => ServeError::data(&path, error),
        error => part(identity, format!("cannot be used: {error}")),
    }
}

/// A start of the server, now.
pub(crate) fn start() -> io::Result<Start> {
    Ok(Start { now: now(), random: u64::from_ne_bytes(random()?) })
}
