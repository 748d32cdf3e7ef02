//! Similar files: the one with which a new file may have most data in common. Programs write a file
//! anew under another name and rename it, or copy one and change the copy.

use crate::host::Host;
use crate::host::cache::FileData;
use crate::host::log::Change;
use crate::nouns::{ContainerId, Ino, Kind, Name, Record, RenameMode, Version};

/// Smaller stores have no basis: to offer their chunks costs a kilobyte.
pub const BASIS_MIN: u64 = 1 << 20;
/// So many other files may be a basis.
const BASES_MAX: usize = 2;
/// So many changes behind a store are looked at for a rename of its file.
const CHANGES_MAX: usize = 256;
/// So many names of its directory are.
const NAMES_MAX: usize = 4096;
/// A file is stored while it is still written. What it is like may be so many times as large: to
/// ask how that is cut costs a hundredth of what is stored then.
const LARGER_MAX: u64 = 64;

/// All data of one version of a file, as the server has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CleanCopy {
    /// The version.
    pub version: Version,
    /// Where they are.
    pub container: ContainerId,
    /// How many.
    pub size: u64,
}

impl Host {
    /// What is here of `ino`, if that is all of it and the server has the same.
    pub fn clean_copy(&self, ino: Ino) -> Option<CleanCopy> {
        let size = self.tree.peek(ino)?.size;
        let file = self.files.get(&ino).filter(|file| file.is_valid(0..size, size))?;
        let is_clean = !file.is_ahead() && !file.is_mapped() && !self.queue.has_data(ino);
        let (version, container) = (file.version(), file.container());
        is_clean.then_some(CleanCopy { version, container, size })
    }

    /// The data version of `ino` that the server has, as far as is known; `None` for a file that it
    /// does not know.
    pub fn stored_version(&self, ino: Ino) -> Option<Version> {
        let known = self.files.get(&ino).map(FileData::version);
        let known = known.or_else(|| self.tree.peek(ino).map(|attr| attr.data_version));
        known.filter(|version| *version != Version::default())
    }

    /// The files of which a version may be a basis for change `seq` of `ino`, the likeliest first:
    /// its own earlier version, and those that are most like it.
    pub fn bases(&self, ino: Ino, seq: u64) -> Vec<Ino> {
        [ino].into_iter().chain(self.alike(ino, seq).into_iter().take(BASES_MAX)).collect()
    }

    /// The files that the data of change `seq` of `ino` may be most like, the likeliest first: what
    /// `ino` replaces, and what is called almost like it and is not much smaller.
    fn alike(&self, ino: Ino, seq: u64) -> Vec<Ino> {
        let Some(size) = self.tree.peek(ino).map(|attr| attr.size) else { return Vec::new() };
        let replaced =
            self.queue.iter_from(seq).take(CHANGES_MAX).find_map(|logged| match &logged.change {
                Change::Record(Record::Rename {
                    ino: renamed,
                    mode: RenameMode::Replace(replaced),
                    ..
                }) if *renamed == ino => *replaced,
                _ => None,
            });
        let is_near = |other: &u64| other / LARGER_MAX <= size && size / 2 <= *other;
        let near = self.called_alike(ino).filter(|(other, _)| is_near(other));
        let mut near: Vec<_> = near.map(|(other, ino)| (other.abs_diff(size), ino)).collect();
        near.sort_unstable();
        let found = replaced.into_iter().chain(near.into_iter().map(|(_, other)| other));
        let mut alike = Vec::new();
        for other in found.filter(|other| *other != ino) {
            if !alike.contains(&other) {
                alike.push(other);
            }
        }
        alike
    }

    /// True if all data of `ino` are here and clean, and are so many that a new version of them is
    /// sent as a difference.
    pub(in crate::host) fn is_worth_a_basis(&self, ino: Ino) -> bool {
        self.clean_copy(ino).is_some_and(|copy| copy.size >= BASIS_MIN)
    }

    /// The same, though a memory map may have changed some of them: the server takes no difference
    /// from other bytes than its own.
    pub(in crate::host) fn is_worth_writing_on(&self, ino: Ino) -> bool {
        let size = self.tree.peek(ino).map_or(0, |attr| attr.size);
        let file = self.files.get(&ino).filter(|file| file.is_valid(0..size, size));
        size >= BASIS_MIN && file.is_some_and(|file| !file.is_ahead()) && !self.queue.has_data(ino)
    }

    /// Other files of its directory that are called almost like `ino`, with their sizes.
    fn called_alike(&self, ino: Ino) -> impl Iterator<Item = (u64, Ino)> {
        let place = self.tree.place(ino);
        let named = place.into_iter().flat_map(move |(directory, name)| {
            let named = self.tree.named_in(directory).take(NAMES_MAX);
            named.filter(move |(other, _)| is_like(&name, other)).map(|(_, other)| other)
        });
        let others = named.filter(move |other| *other != ino);
        others.filter_map(|other| {
            let attr = self.tree.peek(other).filter(|attr| attr.kind == Kind::File)?;
            Some((attr.size, other))
        })
    }
}

/// True if two names begin alike, up to what programs put behind or before a name.
fn is_like(name: &Name, other: &Name) -> bool {
    let stem = |name: &'_ Name| -> Vec<u8> {
        let from = name.as_bytes().iter().skip_while(|byte| b".#~".contains(byte));
        from.take_while(|byte| !b".#~".contains(byte)).copied().collect()
    };
    let stem_of = stem(name);
    !stem_of.is_empty() && stem_of == stem(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S6.17.
    #[test]
    fn names_are_like_each_other_up_to_what_programs_add() {
        let name = |name: &str| Name::new(name).unwrap();
        for (one, other, is) in [
            ("disk.img", ".disk.img.Xa93bQ", true),
            ("disk.img", "disk.img~", true),
            ("notes", "notes.new", true),
            ("#notes#", "notes", true),
            ("IMG_1.jpg", "IMG_2.jpg", false),
            ("...", "..a", false),
        ] {
            assert_eq!(is_like(&name(one), &name(other)), is, "{one} {other}");
        }
    }
}
