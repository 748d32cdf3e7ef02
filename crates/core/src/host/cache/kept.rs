//! Listings that the kernel keeps without telling when a directory is opened or closed.
//!
//! The kernel asks with the position behind which it wants names. It keeps each name that comes at
//! the position at which its copy ends, from whichever reader, and uses the copy once a reader has
//! come to the end. So each position has two parts:
//!
//! ```text
//!   tag: of one reader │ place: made from the name
//! ```
//!
//! The place of a name is always the same, so a reader goes on behind it whatever has changed. Each
//! reader has a tag of its own. So no copy has names of two readers, and the tag of its end says
//! which listing it has. If that is not the present one, the kernel is to drop its copy; also if
//! the copy may have begun with another reader's names. Nothing was lost on the way.
//!
//! Answers that are on their way when a copy is dropped begin the next copy. With one tag, names
//! and an end of two readers would complete it, though the listing changed. One reader asks for the
//! end only behind its names.
//!
//! A reader gets the names of the moment at which it began, as behind an open directory. Else it
//! would miss an older name and see a newer one. Nobody tells that a reader is gone: its names are
//! held for [`READ_FOR`] at most, and as long as there is room.
//!
//! Invariant: the kernel uses no copy of a listing that was dropped.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::outliving::LONG;
use crate::nouns::{Ino, Name, Time};

/// Bits of a place. The rest of 63 is the tag: positions are positive numbers of 64 bits.
const PLACE_BITS: u32 = 46;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const TAG_MAX: u64 = (1 << (63 - PLACE_BITS)) - 1;
/// Places of "." and "..".
const DOTS: u64 = 2;
/// Places of names; some are left for those that have one place.
const PLACES: u64 = PLACE_MASK - (1 << 32);
/// A listing is read anew so long before its names may have expired: each name alone would be a
/// request.
const SPARE: Duration = Duration::from_secs(10);
/// A reader that began so long ago is taken for gone.
const READ_FOR: Duration = Duration::from_secs(60);
/// Names of directories that are being read: some twenty megabytes. Others are listed again for
/// each answer.
const NAMES_MAX: usize = 200_000;

/// A name in a directory that is being read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name is behind this place.
    pub place: u64,
    /// The name.
    pub name: Name,
    /// Its inode.
    pub ino: Ino,
}

/// A listing, as one reader reads it.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The position before all names, "." and ".." included. 0 stands for it, too.
    pub base: u64,
    /// The names in the order of their places.
    pub names: Arc<Vec<Listed>>,
    /// When it began.
    pub since: Time,
}

impl Reading {
    /// The position of a name for this reader.
    pub fn position(&self, listed: &Listed) -> u64 {
        self.base + listed.place
    }

    /// The names behind `position`.
    pub fn behind(&self, position: u64) -> &[Listed] {
        let first = self.names.partition_point(|listed| self.position(listed) < position);
        self.names.get(first..).unwrap_or_default()
    }

    /// The number of "." and "..", in this order, that come before `position`.
    pub fn dots_before(position: u64) -> u64 {
        (position & PLACE_MASK).min(DOTS)
    }
}

/// A listing of which the kernel may have a copy, or is reading one.
#[derive(Clone, Debug)]
struct Kept {
    tag: u64,
    /// The last reader began with the listing that the host knew then, and the kernel had no part
    /// of another reader's names.
    may_be_used: bool,
    /// The kernel may use its copy.
    is_whole: bool,
    /// The kernel is to drop its copy then.
    until: Time,
}

/// The names that one reader gets.
#[derive(Clone, Debug)]
struct Held {
    directory: Ino,
    names: Arc<Vec<Listed>>,
    since: Time,
}

/// All of them.
#[derive(Debug, Default)]
pub struct KeptListings {
    /// So that nobody can choose names with one place.
    key: u64,
    last_tag: u64,
    of: BTreeMap<Ino, Kept>,
    /// Of readers, by their tags.
    held: BTreeMap<u64, Held>,
    /// Names in these.
    names: usize,
}

impl KeptListings {
    /// Has places of names be others than those of other mounts.
    pub fn set_key(&mut self, key: u64) {
        self.key = key;
    }

    /// A reader begins with `directory`, which has these names. The host may know others now.
    pub fn begin(
        &mut self,
        directory: Ino,
        (names, is_present): (Vec<(Name, Ino)>, bool),
        now: Time,
    ) -> Reading {
        let before = self.of.remove(&directory);
        let may_be_used = is_present && before.is_none_or(|kept| kept.is_whole);
        let tag = self.next_tag();
        let names = self.hold(tag, directory, names, now);
        let until = Time(now.0 + (LONG - SPARE));
        self.of.insert(directory, Kept { tag, may_be_used, is_whole: false, until });
        Reading { base: tag << PLACE_BITS, names, since: now }
    }

    /// Holds the names of the reader with `tag`, if there is room.
    fn hold(
        &mut self,
        tag: u64,
        directory: Ino,
        names: Vec<(Name, Ino)>,
        now: Time,
    ) -> Arc<Vec<Listed>> {
        let names = Arc::new(self.placed(names));
        self.release_old(now);
        self.release(tag);
        if self.names + names.len() <= NAMES_MAX {
            self.names += names.len();
            let held = Held { directory, names: Arc::clone(&names), since: now };
            self.held.insert(tag, held);
        }
        names
    }

    /// A reader goes on at `position`, if its names are held.
    pub fn goes_on(&self, directory: Ino, position: u64) -> Option<Reading> {
        let held = self.held.get(&(position >> PLACE_BITS))?;
        let Held { names, since, .. } = (held.directory == directory).then(|| held.clone())?;
        Some(Reading { base: base_of(position), names, since })
    }

    /// A reader goes on at `position`, and these are the names now. Its own are not held: it read
    /// the kernel's copy until that was dropped, or there was no room for them.
    pub fn listed_again(
        &mut self,
        directory: Ino,
        position: u64,
        names: Vec<(Name, Ino)>,
        now: Time,
    ) -> Reading {
        let names = self.hold(position >> PLACE_BITS, directory, names, now);
        Reading { base: base_of(position), names, since: now }
    }

    /// A reader has come to the end at `position`. True if the kernel may use its copy: that is the
    /// present listing, which it `may_keep`. Else the kernel is to drop it.
    pub fn end(&mut self, directory: Ino, position: u64, may_keep: bool) -> bool {
        let tag = position >> PLACE_BITS;
        self.release(tag);
        let Some(kept) = self.of.get_mut(&directory).filter(|kept| kept.tag == tag) else {
            return false;
        };
        kept.is_whole = may_keep && kept.may_be_used;
        let is_whole = kept.is_whole;
        if !is_whole {
            // The next reader begins a new copy.
            self.of.remove(&directory);
        }
        is_whole
    }

    /// The listing is another one, or may not be used any more. True if the kernel may have a copy.
    pub fn drop_one(&mut self, directory: Ino) -> bool {
        self.of.remove(&directory).is_some()
    }

    /// Returns all directories of whose listings the kernel may have a copy, which it is to drop.
    pub fn drop_all(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.of).into_keys().collect()
    }

    /// The same of those whose time has come.
    pub fn drop_old(&mut self, now: Time) -> Vec<Ino> {
        let old = self.of.iter().filter(|(_, kept)| kept.until <= now);
        let old: Vec<Ino> = old.map(|(ino, _)| *ino).collect();
        self.of.retain(|_, kept| kept.until > now);
        self.release_old(now);
        old
    }

    /// The reader with `tag` has come to its end, or is gone.
    fn release(&mut self, tag: u64) {
        self.names -= self.held.remove(&tag).map_or(0, |held| held.names.len());
    }

    /// Releases the names of readers that are taken for gone.
    fn release_old(&mut self, now: Time) {
        let is_old = |held: &Held| now.since(held.since) >= READ_FOR;
        let old: Vec<u64> =
            self.held.iter().filter(|(_, held)| is_old(held)).map(|(tag, _)| *tag).collect();
        old.into_iter().for_each(|tag| self.release(tag));
    }

    fn next_tag(&mut self) -> u64 {
        self.last_tag = self.last_tag % TAG_MAX + 1;
        self.last_tag
    }

    fn hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        self.key.hash(&mut hasher);
        hasher
    }

    /// Names in the order of their places. Two with one place get places that follow each other.
    fn placed(&self, names: Vec<(Name, Ino)>) -> Vec<Listed> {
        let place = |name: &Name| {
            let mut hasher = self.hasher();
            name.hash(&mut hasher);
            DOTS + hasher.finish() % PLACES
        };
        let mut placed: Vec<Listed> = names
            .into_iter()
            .map(|(name, ino)| Listed { place: place(&name), name, ino })
            .collect();
        placed.sort_unstable_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)));
        let mut least = DOTS;
        for listed in &mut placed {
            listed.place = listed.place.max(least);
            least = listed.place + 1;
        }
        placed
    }
}

/// The position before all names of the reader that is at `position`.
fn base_of(position: u64) -> u64 {
    position & !PLACE_MASK
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIR: Ino = Ino(7);

    /// Positions behind names, and their inodes.
    type Names = Vec<(u64, u64)>;

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    fn names(numbers: impl IntoIterator<Item = u64>) -> Vec<(Name, Ino)> {
        let name = |number: u64| Name::new(format!("name {number}").as_bytes()).unwrap();
        numbers.into_iter().map(|number| (name(number), Ino(number))).collect()
    }

    fn begin(kept: &mut KeptListings, names: Vec<(Name, Ino)>, seconds: u64) -> Reading {
        kept.begin(DIR, (names, true), at(seconds))
    }

    fn inodes(listed: &[Listed]) -> Vec<u64> {
        let mut all: Vec<u64> = listed.iter().map(|listed| listed.ino.0).collect();
        all.sort_unstable();
        all
    }

    /// Proves S6.8.
    #[test]
    fn a_copy_may_be_used_if_it_has_the_present_listing() {
        let mut kept = KeptListings::default();
        let reading = begin(&mut kept, names(0..3), 0);
        assert_eq!(inodes(reading.behind(0)), [0, 1, 2]);
        let end = reading.position(reading.names.last().unwrap()) + 1;
        assert!(reading.behind(end).is_empty());
        assert!(kept.end(DIR, end, true));
        assert!(!kept.end(DIR, end, false), "nobody would tell of a change");
        for others in [names(0..2), names(0..3)] {
            let other = begin(&mut kept, others, 1);
            assert_ne!(other.base, reading.base);
            assert!(!kept.end(DIR, end, true), "its reader began before");
        }
        assert!(kept.drop_one(DIR) && !kept.drop_one(DIR));
        assert!(!kept.end(DIR, end, true) && kept.goes_on(DIR, end).is_none());
    }

    /// The names that one reader got and the end that another one got were on their way when the
    /// copy was dropped, and the kernel took both for a copy of the new listing.
    #[test]
    fn names_and_an_end_of_two_readers_make_no_copy() {
        let mut kept = KeptListings::default();
        let end = |reading: &Reading| reading.position(reading.names.last().unwrap()) + 1;
        let first = begin(&mut kept, names(0..3), 0);
        let second = begin(&mut kept, names(0..3), 0);
        assert_ne!(first.base, second.base);
        // The kernel may have a part of the first one's names, and drops it.
        assert!(!kept.end(DIR, end(&first), true) && !kept.end(DIR, end(&second), true));
        let third = begin(&mut kept, names(0..3), 0);
        assert!(kept.end(DIR, end(&third), true));
    }

    /// A reader that was given the names of later answers missed an older file and saw a newer one.
    /// Proves S7.1.
    #[test]
    fn a_reader_gets_the_names_of_its_beginning() {
        let mut kept = KeptListings::default();
        let first = begin(&mut kept, names(0..3), 0);
        let at_first = first.position(&first.names[0]) + 1;
        assert!(kept.drop_one(DIR));
        let second = begin(&mut kept, names(0..9), 1);
        let goes_on = |kept: &KeptListings, position| kept.goes_on(DIR, position).unwrap();
        assert_eq!(goes_on(&kept, at_first).behind(at_first), &first.names[1..]);
        assert_eq!(goes_on(&kept, second.base).names.len(), 9);
        assert!(kept.goes_on(Ino(8), at_first).is_none());
        let end = first.position(first.names.last().unwrap()) + 1;
        assert!(!kept.end(DIR, end, true) && kept.goes_on(DIR, end).is_none());
    }

    #[test]
    fn a_reader_keeps_its_tag_and_finds_its_place_in_another_listing() {
        let mut kept = KeptListings::default();
        let reading = begin(&mut kept, names(0..100), 0);
        let half = reading.position(&reading.names[49]) + 1;
        assert_eq!(kept.goes_on(DIR, half).unwrap().behind(half).len(), 50);
        assert!(kept.drop_one(DIR));
        let gone = reading.names[70].ino.0;
        let later = kept.listed_again(DIR, half, names((0..120).filter(|n| *n != gone)), at(1));
        assert_eq!(later.base, reading.base);
        let rest = inodes(later.behind(half));
        let unchanged = reading.names[50..].iter().map(|listed| listed.ino.0);
        assert!(unchanged.filter(|ino| *ino != gone).all(|ino| rest.contains(&ino)));
        let read = reading.names[..50].iter().map(|listed| listed.ino.0);
        assert!(read.into_iter().all(|ino| !rest.contains(&ino)), "no name comes twice");
    }

    /// The rest of 100,000 names took 17 s: each answer listed the directory anew.
    #[test]
    fn who_read_the_kernel_s_copy_until_it_was_dropped_lists_once() {
        let mut kept = KeptListings::default();
        let reading = begin(&mut kept, names(0..9), 0);
        assert!(kept.end(DIR, reading.position(&reading.names[8]) + 1, true));
        let half = reading.position(&reading.names[4]);
        assert!(kept.drop_one(DIR) && kept.goes_on(DIR, half).is_none());
        let rest = kept.listed_again(DIR, half, names(0..9), at(1)).behind(half).to_vec();
        assert_eq!(kept.goes_on(DIR, half).unwrap().behind(half), rest);
        assert!(!kept.end(DIR, half, true) && kept.names == 0);
    }

    #[test]
    fn what_is_kept_is_dropped_in_time_and_all_at_once() {
        let mut kept = KeptListings::default();
        begin(&mut kept, names(0..3), 0);
        kept.begin(Ino(8), (names(0..3), true), at(300));
        assert_eq!((kept.drop_old(at(589)), kept.drop_old(at(590))), (vec![], vec![DIR]));
        begin(&mut kept, names(0..3), 600);
        assert_eq!((kept.drop_all(), kept.names), (vec![DIR, Ino(8)], 3), "somebody reads on");
        assert_eq!((kept.drop_old(at(659)), kept.names), (vec![], 3));
        assert_eq!((kept.drop_old(at(660)), kept.names), (vec![], 0));
    }

    #[test]
    fn no_more_names_are_held_than_there_is_room_for() {
        let mut kept = KeptListings::default();
        let many = begin(&mut kept, names(0..NAMES_MAX as u64), 0);
        let few = kept.begin(Ino(8), (names(0..3), true), at(0));
        assert!(kept.goes_on(DIR, many.base).is_some() && kept.goes_on(Ino(8), few.base).is_none());
        assert!(kept.end(DIR, many.base, true) && kept.end(Ino(8), few.base, true));
        assert_eq!(kept.names, 0);
    }

    #[test]
    fn dots_come_first() {
        let mut kept = KeptListings::default();
        let reading = begin(&mut kept, names(0..3), 0);
        let before = |place: u64| Reading::dots_before(reading.base | place);
        assert_eq!([before(0), before(1), before(2), before(9)], [0, 1, 2, 2]);
        assert!(reading.behind(reading.base | 2).len() == 3);
    }

    proptest! {
        /// The kernel keeps what comes at the end of its copy, of readers that begin and go on in
        /// any order while the listing changes. It never uses a copy that is not the present one.
        #[test]
        fn no_old_copy_is_used(
            steps in prop::collection::vec((0..5u8, 0..3usize, 1..4usize), 1..80),
        ) {
            let mut kept = KeptListings::default();
            let mut now: Vec<u64> = (0..4).collect();
            // Of each reader its position, and an answer that it has not taken in: where it begins,
            // and names with their positions.
            let mut readers: [(u64, Option<Names>); 3] = Default::default();
            // The copy, where it ends, whether a reader has come to the end, and whether a part
            // of it is gone.
            let (mut copy, mut end): (Vec<u64>, u64) = Default::default();
            let (mut is_whole, mut has_gap) = (false, false);
            for (step, who, count) in steps {
                let reader = &mut readers[who];
                match step {
                    0 => {
                        now.push(now.iter().max().unwrap_or(&0) + 1);
                        has_gap |= kept.drop_one(DIR) && end != 0;
                    }
                    1 if now.len() > 1 => {
                        now.remove(0);
                        has_gap |= kept.drop_one(DIR) && end != 0;
                    }
                    2 => *reader = (0, None),
                    3 if reader.1.is_none() => {
                        let position = reader.0;
                        let listed = names(now.iter().copied());
                        let reading = match position {
                            0 => begin(&mut kept, listed, 0),
                            _ => kept
                                .goes_on(DIR, position)
                                .unwrap_or_else(|| kept.listed_again(DIR, position, listed, at(0))),
                        };
                        let some = reading.behind(position).iter().take(count);
                        let some: Vec<_> =
                            some.map(|one| (reading.position(one) + 1, one.ino.0)).collect();
                        has_gap |= some.is_empty() && !kept.end(DIR, position, true) && end != 0;
                        reader.1 = Some(some);
                    }
                    _ => {
                        let Some(answer) = reader.1.take() else { continue };
                        is_whole |= answer.is_empty() && end == reader.0 && end != 0;
                        for (behind, ino) in answer {
                            if end == reader.0 && !is_whole {
                                copy.push(ino);
                                end = behind;
                            }
                            reader.0 = behind;
                        }
                    }
                }
                if is_whole && has_gap {
                    // Who uses it finds that, and it begins anew.
                    (copy, end, is_whole, has_gap) = (Vec::new(), 0, false, false);
                }
                if is_whole {
                    copy.sort_unstable();
                    prop_assert_eq!(&copy, &now);
                }
            }
        }
    }
}
