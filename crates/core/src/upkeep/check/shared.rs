//! What all volumes share: names of volumes, packs, what is remembered of clients, and the tables
//! of the server itself.

use std::collections::BTreeMap;

use super::scan::Scan;
use super::{Damage, Finding, FoundRow, Visitor, decode, find};
use crate::namespace::rows::{ChunkRow, PackRow, VolumeRow};
use crate::namespace::{MetaSnapshot, keys};
use crate::nouns::VolumeId;

/// Checks what belongs to no volume alone. What the server's own tables say is the server's
/// business: here they are read, which shows whether they can be.
pub fn shared<S: MetaSnapshot, V: Visitor>(
    snapshot: &mut S,
    visitor: &mut V,
) -> Result<(), S::Error> {
    packs(snapshot, visitor)?;
    names(snapshot, visitor)?;
    clients(snapshot, visitor)?;
    let mut rest = [Scan::new(keys::removed_volumes()), Scan::between(keys::of_server())];
    for scan in &mut rest {
        while scan.next(snapshot)?.is_some() {}
    }
    Ok(())
}

fn tell<V: Visitor>(visitor: &mut V, damage: Damage) {
    visitor.finding(Finding { ino: None, path: None, entry: None, damage });
}

/// Each name is that of the volume it leads to.
fn names<S: MetaSnapshot, V: Visitor>(snapshot: &mut S, visitor: &mut V) -> Result<(), S::Error> {
    let mut scan = Scan::new(keys::volume_names());
    while let Some((key, value)) = scan.next(snapshot)? {
        let (Some(name), Some(volume)) = (keys::volume_name_part(&key), decode::<VolumeId>(&value))
        else {
            tell(visitor, Damage::Row { key, what: "a volume's name" });
            continue;
        };
        let is_its = match find::<_, VolumeRow>(snapshot, &keys::volume(volume))? {
            FoundRow::Row(row) => row.name == name,
            FoundRow::Broken => true,
            FoundRow::Nothing => false,
        };
        if !is_its {
            tell(visitor, Damage::StrayName { name: name.to_owned() });
        }
    }
    Ok(())
}

/// What is remembered of clients is of such as there are.
fn clients<S: MetaSnapshot, V: Visitor>(snapshot: &mut S, visitor: &mut V) -> Result<(), S::Error> {
    let mut told = None;
    for table in keys::memories() {
        let mut scan = Scan::new(table.clone());
        while let Some((key, _)) = scan.next(snapshot)? {
            let Some(client) = keys::client_part(&key) else {
                tell(visitor, Damage::Row { key, what: "a client's" });
                continue;
            };
            if snapshot.get(&keys::client(client))?.is_none()
                && told.replace(client) != Some(client)
            {
                tell(visitor, Damage::Nobody { client });
            }
            // The others of this client are looked at with its volume.
            let prefix = key.get(..keys::client(client).len()).unwrap_or(&key);
            scan = Scan::starting(&table, keys::after(prefix));
        }
    }
    Ok(())
}

/// What the packs' rows count. Holds a few numbers for each pack.
fn packs<S: MetaSnapshot, V: Visitor>(snapshot: &mut S, visitor: &mut V) -> Result<(), S::Error> {
    let mut found: BTreeMap<u64, PackRow> = BTreeMap::new();
    let mut chunks = Scan::new(keys::all_chunks());
    while let Some((_, value)) = chunks.next(snapshot)? {
        let Some(ChunkRow { place, .. }) = decode(&value) else { continue };
        let pack = found.entry(place.pack).or_default();
        pack.chunks += 1;
        pack.live_bytes += u64::from(place.stored_len);
    }
    let mut rows = Scan::new(keys::packs());
    while let Some((key, value)) = rows.next(snapshot)? {
        let told: Option<PackRow> = decode(&value);
        let pack = keys::pack_part(&key).unwrap_or_default();
        let (told, found) = (told.unwrap_or_default(), found.remove(&pack).unwrap_or_default());
        if told != found {
            tell(visitor, Damage::Pack { pack, told: told.chunks, found: found.chunks });
        }
    }
    for (pack, row) in found {
        tell(visitor, Damage::Pack { pack, told: 0, found: row.chunks });
    }
    Ok(())
}
