//! The path of an inode, as far as parents lead.

use super::{FoundRow, find};
use crate::namespace::rows::InodeRow;
use crate::namespace::{MetaSnapshot, keys};
use crate::nouns::{Ino, VolumeId};

/// Most directories above an inode that are looked at: who is deeper has its upper part left
/// out, and a ring comes to an end.
const DEPTH_MAX: usize = 512;

/// Where `ino` is in its volume, `/` being the root. Above a directory that is missing the
/// path begins with that directory's number. `None` if the name that the inode records is not
/// its own: it may have another, which only a search finds.
pub fn path<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    ino: Ino,
) -> Result<Option<String>, S::Error> {
    let mut above = String::new();
    let mut at = ino;
    for _ in 0..DEPTH_MAX {
        if at == Ino::ROOT {
            return Ok(Some(if above.is_empty() { "/".to_owned() } else { above }));
        }
        let FoundRow::Row(row) = find::<_, InodeRow>(snapshot, &keys::inode(volume, at))? else {
            break;
        };
        let own = find::<_, Ino>(snapshot, &keys::dentry(volume, row.parent, &row.name))?;
        if !matches!(own, FoundRow::Row(named) if named == at) {
            break;
        }
        above = format!("/{}{above}", String::from_utf8_lossy(&row.name));
        at = row.parent;
    }
    Ok((at != ino).then(|| format!("[inode {at}]{above}")))
}

/// Where `name` is if it stands in `directory`.
pub(super) fn name_path<S: MetaSnapshot>(
    snapshot: &mut S,
    volume: VolumeId,
    directory: Ino,
    name: &[u8],
) -> Result<String, S::Error> {
    let above = match path(snapshot, volume, directory)? {
        Some(path) if path == "/" => String::new(),
        Some(path) => path,
        None => format!("[inode {directory}]"),
    };
    Ok(format!("{above}/{}", String::from_utf8_lossy(name)))
}
