//! All rows of a volume, to be written down and put into another store.
//!
//! What a dump visits is the volume's tables and those of its clients: who may do what and where
//! the volume stands under its name belong to the server, not to the volume. Chunks come first,
//! because whoever puts rows in needs their bytes before their rows.

use super::check::Scan;
use crate::namespace::rows::{ChunkRow, ClientRow};
use crate::namespace::{MetaSnapshot, keys};
use crate::nouns::{Fingerprint, VolumeId};

/// Who is given rows, each with its key.
pub type Each<'a, E> = dyn FnMut(&[u8], &[u8]) -> Result<(), E> + 'a;

/// Gives every row of `volume` to `each`, in an order that is the same for the same rows. Rows
/// that make no sense are among them: whoever puts them in has what was there.
pub fn dump<S: MetaSnapshot, E: From<S::Error>>(
    snapshot: &mut S,
    volume: VolumeId,
    each: &mut Each<'_, E>,
) -> Result<(), E> {
    let mut clients = Vec::new();
    let mut scan = Scan::new(keys::clients());
    while let Some((key, value)) = scan.next(snapshot)? {
        let row: Option<ClientRow> = postcard::from_bytes(&value).ok();
        if row.is_some_and(|row| row.volume == volume) {
            clients.extend(keys::client_part(&key));
        }
    }
    let of_clients = clients.into_iter().flat_map(keys::tables_of_client);
    for prefix in keys::of_volume(volume).into_iter().chain(of_clients) {
        let mut scan = Scan::new(prefix);
        while let Some((key, value)) = scan.next(snapshot)? {
            each(&key, &value)?;
        }
    }
    Ok(())
}

/// True if a row of a dump belongs to a client.
pub fn is_of_client(key: &[u8]) -> bool {
    keys::client_part(key).is_some_and(|client| {
        keys::tables_of_client(client).iter().any(|table| key.starts_with(table))
    })
}

/// The chunk that a row of a dump is. Its place is that in the store it came from.
pub fn chunk(key: &[u8], value: &[u8]) -> Option<(Fingerprint, ChunkRow)> {
    let fingerprint = keys::fingerprint_part(key).filter(|_| keys::is_chunk(key))?;
    Some((fingerprint, postcard::from_bytes(value).ok()?))
}
