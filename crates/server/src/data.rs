//! Everything that is open while this process holds a data directory.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use segue_core::namespace::keys::SERVER_TAGS;
use segue_core::namespace::{create_volume, get_row, packs, put_row, volumes};
use segue_core::types::Timestamp;
use segue_rpc::identity::Authority;

use crate::collect::Holds;
use crate::data_dir::DataDir;
use crate::error::ServeError;
use crate::meta::{Kv, MetaFault, Store, StoreError};
use crate::packs::Packs;

/// The volume that a new server has.
const FIRST_VOLUME: &str = "home";
const LISTEN: &[u8] = &[SERVER_TAGS + 2];

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
    /// Opens what is in `directory`, or makes it.
    pub(crate) fn open(directory: DataDir) -> Result<Data, ServeError> {
        let path = directory.path();
        let meta = path.join("meta.db");
        let broken = |words| ServeError::Meta { path: meta.clone(), words };
        let identity = path.join("identity");
        let authority = Authority::open(&identity).map_err(|error| ServeError::Identity {
            path: identity.clone(),
            words: error.to_string(),
        })?;
        let store = Store::open(&meta).map_err(broken)?;
        let uuid = random().map_err(|error| ServeError::data(path, error))?;
        store
            .write_blocking(move |txn| first_volume(txn, uuid))
            .map_err(|error| broken(error.to_string()))?;
        let known = store
            .read_blocking(|kv| packs(kv))
            .and_then(|known| known.map_err(StoreError::from))
            .map_err(|error| broken(error.to_string()))?;
        let last = known.keys().last().copied().unwrap_or(0);
        let packs = path.join("packs");
        let packs = Packs::open(&packs, last).map_err(|error| ServeError::data(&packs, error))?;
        // What was made just now has to be found again.
        File::open(path)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| ServeError::data(path, error))?;
        Ok(Data { store: Arc::new(store), packs, authority, holds: Holds::default(), directory })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
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

fn first_volume(txn: &mut Kv<'_>, uuid: [u8; 16]) -> Result<(), MetaFault> {
    if volumes(txn)?.is_empty() {
        // The name is a good one and nobody has it.
        let _ = create_volume(txn, FIRST_VOLUME, uuid, now())?;
    }
    Ok(())
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The time by this server's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { secs, nanos: since.subsec_nanos() }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
