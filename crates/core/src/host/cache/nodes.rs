//! What the kernel knows a file by, and which opens it may read past us ("passthrough").
//!
//! An inode of the kernel is in one mode at a time: its descriptors go through the page cache,
//! or all of them are *backed* by one file of ours, the container. A backing file cannot be
//! taken back, so a backed inode keeps its container for as long as anything has it open.
//!
//! ```text
//!              open for reading, whole and clean                 the container is given up
//!   (closed) ────────────────────────────────────▶ backed ─────────────────────────────▶ left
//!      │  ▲               last close                 │            (a newer version)        behind
//!      │  └──────────────────────────────────────────┘
//!      └─ any other open ─▶ cached ─ last close ─▶ (closed)
//! ```
//!
//! Who opens a backed inode for writing is backed too, but *direct*: its reads and writes come
//! to us, and change the same container, where all others see them. When the server has newer
//! data, the container stays as it is for those who have it open, and the file gets a second
//! inode in the kernel: an open of the first one is sent back to look the name up again.
//!
//! The number of a new inode may turn out to be another inode's. The kernel knows the new one by
//! that number as long as a process works in it, so the other one gets a second inode as well.
//!
//! Invariants: no inode is cached and backed at once; who is backed sees one version of the
//! data and what this host changed in it. A file that was left behind is not backed again while
//! the kernel knows its second inode: whatever changes it elsewhere will go on.

use std::collections::{BTreeMap, BTreeSet};

use crate::nouns::Ino;

/// Set in the number of a file's second inode in the kernel. Inode numbers are granted from
/// below, and none has got here.
const SECOND: u64 = 1 << 63;

/// Files that are backed at a time, each with an open container: a part of the 1,024 that a
/// process may have open.
pub const BACKED_MAX: usize = 256;

/// How a descriptor reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the kernel's pages, which ask us.
    Cached,
    /// The kernel reads the container.
    Backed,
    /// Of a backed inode, but asking us for every read and write.
    Direct,
}

/// An open, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// It only reads, and through the page cache.
    pub only_reads: bool,
    /// All of the file is in the container, and the server has the same.
    pub whole: bool,
}

/// The inode was left behind: the name means another one by now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftBehind;

/// The kernel's inodes of files that are open or were left behind.
#[derive(Debug)]
pub struct Nodes {
    limit: usize,
    /// Descriptors that go through the page cache.
    cached: BTreeMap<Ino, u32>,
    /// Descriptors of first inodes that are backed, whether these were left behind or not.
    backed: BTreeMap<Ino, u32>,
    /// Files whose first inode was left behind, for as long as the kernel may know the second:
    /// its memory bounds them.
    left: BTreeSet<Ino>,
    /// Inodes whose first inode in the kernel is that of another file or directory, until the
    /// kernel forgets it.
    released: BTreeSet<Ino>,
    /// How often the kernel was told of an inode that it has not forgotten since, as FUSE counts.
    /// Its memory bounds them.
    told: BTreeMap<u64, u64>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes::new(BACKED_MAX)
    }
}

impl Nodes {
    /// Nothing open. At most `limit` files are backed at a time: each holds an open file.
    fn new(limit: usize) -> Nodes {
        let (cached, backed, left, released, told) = Default::default();
        Nodes { limit, cached, backed, left, released, told }
    }

    /// The file that the kernel calls `node`.
    pub fn ino(node: u64) -> Ino {
        Ino(node & !SECOND)
    }

    /// What the kernel is to call `ino`.
    pub fn node(&self, ino: Ino) -> u64 {
        if self.is_left_behind(ino) { ino.0 | SECOND } else { ino.0 }
    }

    /// All that the kernel may call `ino`.
    pub fn all(&self, ino: Ino) -> impl Iterator<Item = u64> {
        let second = self.is_left_behind(ino).then_some(ino.0 | SECOND);
        [ino.0].into_iter().chain(second)
    }

    /// Decides how a descriptor of `node` is to be. One that is to be backed and cannot be
    /// needs [`Nodes::not_backed`].
    pub fn open(&mut self, node: u64, ask: Ask) -> Result<Way, LeftBehind> {
        let ino = Nodes::ino(node);
        if self.node(ino) != node {
            return Err(LeftBehind);
        }
        if !self.is_left_behind(ino) {
            if let Some(open) = self.backed.get_mut(&ino) {
                *open += 1;
                return Ok(if ask.only_reads { Way::Backed } else { Way::Direct });
            }
            let has_room = self.backed.len() < self.limit;
            if ask.only_reads && ask.whole && has_room && !self.cached.contains_key(&ino) {
                self.backed.insert(ino, 1);
                return Ok(Way::Backed);
            }
        }
        *self.cached.entry(ino).or_default() += 1;
        Ok(Way::Cached)
    }

    /// The first descriptor of `ino` cannot be backed after all, and is cached.
    pub fn not_backed(&mut self, ino: Ino) {
        self.backed.remove(&ino);
        *self.cached.entry(ino).or_default() += 1;
    }

    /// True if some descriptor of a backed inode is open, left behind or not.
    pub fn is_read(&self, ino: Ino) -> bool {
        self.backed.contains_key(&ino)
    }

    /// True if one descriptor of a backed inode is open.
    pub fn is_first(&self, ino: Ino) -> bool {
        self.backed.get(&ino) == Some(&1)
    }

    /// How many descriptors of `ino` are cached, and how many are not.
    pub(in crate::host) fn descriptors(&self, ino: Ino) -> [u32; 2] {
        [&self.cached, &self.backed].map(|table| table.get(&ino).copied().unwrap_or(0))
    }

    /// A descriptor was closed; true if its inode is not backed any more.
    pub fn closed(&mut self, ino: Ino, way: Way) -> bool {
        let table = if way == Way::Cached { &mut self.cached } else { &mut self.backed };
        let Some(open) = table.get_mut(&ino) else { return false };
        *open -= 1;
        let is_last = *open == 0;
        if is_last {
            table.remove(&ino);
        }
        is_last && way != Way::Cached
    }

    /// True if the next open of `ino` may be the first that is backed.
    pub fn may_be_backed(&self, ino: Ino) -> bool {
        let is_open = self.cached.contains_key(&ino) || self.backed.contains_key(&ino);
        !is_open && !self.is_left_behind(ino) && self.backed.len() < self.limit
    }

    /// The container of `ino` is given up for another. True if the kernel is to call it something
    /// else from now on.
    pub fn moved(&mut self, ino: Ino) -> bool {
        self.backed.contains_key(&ino) && self.left.insert(ino)
    }

    /// An inode that the kernel may know as `ino` has another number from now on, and `ino` is
    /// another one.
    pub fn release(&mut self, ino: Ino) {
        if self.is_told(ino.0) {
            self.released.insert(ino);
            self.left.insert(ino);
        }
    }

    /// True if the kernel may mean by some number what had it before.
    pub fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// True if the kernel means by `node` what had its number before.
    pub fn is_released(&self, node: u64) -> bool {
        self.released.contains(&Ino(node))
    }

    /// An answer tells the kernel of `node`.
    pub fn tell(&mut self, node: u64) {
        *self.told.entry(node).or_default() += 1;
    }

    /// True if the kernel knows `node`, or will once it has taken in the answers that tell of it.
    pub fn is_told(&self, node: u64) -> bool {
        self.told.contains_key(&node)
    }

    /// All that the kernel knows, or will once it has taken in the answers that tell of it.
    pub fn known(&self) -> impl ExactSizeIterator<Item = u64> {
        self.told.keys().copied()
    }

    /// The kernel has not taken in what told it of `node`, and will not.
    pub fn untold(&mut self, node: u64) {
        self.told.remove(&node);
    }

    /// The kernel has forgotten that it was told of `node` so many `times`. Without its second
    /// inode, and with nobody at the first, a file is as if it had never been left behind.
    pub fn forgotten(&mut self, node: u64, times: u64) {
        let left = self.told.get(&node).map_or(0, |told| told.saturating_sub(times));
        if left > 0 {
            // An answer that tells of it again is on its way.
            self.told.insert(node, left);
            return;
        }
        self.told.remove(&node);
        self.released.remove(&Ino(node));
        let ino = Nodes::ino(node);
        let is_used = self.backed.contains_key(&ino)
            || self.cached.contains_key(&ino)
            || self.is_released(ino.0);
        if node != ino.0 && !is_used {
            self.left.remove(&ino);
        }
    }

    /// True while the kernel reads the container of `ino`: nothing of it may become invalid.
    pub fn is_backed(&self, ino: Ino) -> bool {
        self.backed.contains_key(&ino) && !self.is_left_behind(ino)
    }

    /// Files of which the kernel reads the container.
    pub fn backed_files(&self) -> impl Iterator<Item = Ino> {
        self.backed.keys().copied().filter(|ino| !self.is_left_behind(*ino))
    }

    /// True if `ino` was given up a container that the kernel may still read.
    pub fn is_left_behind(&self, ino: Ino) -> bool {
        self.left.contains(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INO: Ino = Ino(7);
    const READS: Ask = Ask { only_reads: true, whole: true };
    const WRITES: Ask = Ask { only_reads: false, whole: true };
    const IN_PART: Ask = Ask { only_reads: true, whole: false };

    #[test]
    fn only_what_is_whole_and_read_is_backed() {
        for ask in [WRITES, IN_PART] {
            assert_eq!(Nodes::new(9).open(7, ask), Ok(Way::Cached), "{ask:?}");
        }
        assert_eq!(Nodes::new(9).open(7, READS), Ok(Way::Backed));
        assert_eq!(Nodes::new(0).open(7, READS), Ok(Way::Cached));
    }

    #[test]
    fn an_inode_is_in_one_mode_at_a_time() {
        let mut nodes = Nodes::new(9);
        assert_eq!(nodes.open(7, IN_PART), Ok(Way::Cached));
        assert_eq!(nodes.open(7, READS), Ok(Way::Cached));
        nodes.closed(INO, Way::Cached);
        assert_eq!(nodes.open(7, READS), Ok(Way::Cached));
        nodes.closed(INO, Way::Cached);
        nodes.closed(INO, Way::Cached);
        assert_eq!(nodes.open(7, READS), Ok(Way::Backed));
        assert_eq!(nodes.open(7, WRITES), Ok(Way::Direct));
        // What is dirty is in the container too.
        assert_eq!(nodes.open(7, IN_PART), Ok(Way::Backed));
        assert!(!nodes.closed(INO, Way::Backed) && !nodes.closed(INO, Way::Backed));
        assert!(nodes.is_backed(INO));
        assert!(nodes.closed(INO, Way::Direct));
        assert_eq!(nodes.open(7, WRITES), Ok(Way::Cached));
    }

    #[test]
    fn a_file_that_moved_on_gets_another_inode() {
        let mut nodes = Nodes::new(9);
        nodes.moved(INO);
        assert_eq!(nodes.node(INO), 7);
        nodes.open(7, READS).unwrap();
        nodes.moved(INO);
        let second = nodes.node(INO);
        assert_eq!((Nodes::ino(second), second == 7), (INO, false));
        assert_eq!(nodes.open(7, READS), Err(LeftBehind));
        assert_eq!(nodes.open(second, READS), Ok(Way::Cached));
        assert!(!nodes.is_backed(INO));
        assert!(nodes.closed(INO, Way::Backed));
        assert_eq!(nodes.open(7, READS), Err(LeftBehind), "the kernel may remember both");
        nodes.forgotten(second, 1);
        assert_eq!(nodes.node(INO), second, "it is open");
        nodes.closed(INO, Way::Cached);
        nodes.forgotten(7, 1);
        assert_eq!(nodes.node(INO), second);
        nodes.forgotten(second, 1);
        assert_eq!(nodes.open(7, READS), Ok(Way::Backed));
    }

    /// A process may work for long in a directory whose number is another's.
    #[test]
    fn a_released_number_means_nothing_until_the_kernel_forgets_it() {
        let mut nodes = Nodes::new(9);
        nodes.release(INO);
        assert_eq!(nodes.node(INO), 7, "the kernel knows of nothing");
        nodes.tell(7);
        nodes.release(INO);
        let second = nodes.node(INO);
        assert!(nodes.is_released(7) && !nodes.is_released(second) && second != 7);
        nodes.tell(second);
        nodes.forgotten(second, 1);
        assert_eq!(nodes.node(INO), second, "the first would be taken for it");
        nodes.tell(second);
        nodes.forgotten(7, 1);
        assert_eq!((nodes.is_released(7), nodes.node(INO)), (false, second));
        nodes.forgotten(second, 1);
        assert_eq!(nodes.node(INO), 7);
    }

    /// An answer that tells of an inode may be on its way while the kernel forgets it.
    #[test]
    fn the_kernel_knows_what_it_was_told_more_often_than_it_forgot() {
        let mut nodes = Nodes::new(9);
        nodes.open(7, READS).unwrap();
        nodes.moved(INO);
        nodes.closed(INO, Way::Backed);
        let second = nodes.node(INO);
        (0..3).for_each(|_| nodes.tell(second));
        nodes.forgotten(second, 2);
        assert!(nodes.is_told(second) && nodes.is_left_behind(INO));
        nodes.forgotten(second, 1);
        assert!(!nodes.is_told(second) && !nodes.is_left_behind(INO));
        nodes.tell(7);
        nodes.untold(7);
        assert!(!nodes.is_told(7));
    }

    /// Files that were left behind took the place of others for ever.
    #[test]
    fn only_what_is_open_counts() {
        let mut nodes = Nodes::new(1);
        for ino in 7..20 {
            assert_eq!(nodes.open(ino, READS), Ok(Way::Backed));
            assert_eq!(nodes.open(ino + 100, READS), Ok(Way::Cached));
            nodes.moved(Ino(ino));
            assert!(nodes.closed(Ino(ino), Way::Backed));
        }
    }

    #[test]
    fn what_cannot_be_backed_is_cached() {
        let mut nodes = Nodes::new(9);
        nodes.open(7, READS).unwrap();
        nodes.not_backed(INO);
        assert_eq!(nodes.open(7, READS), Ok(Way::Cached));
    }

    proptest! {
        /// As the kernel sees it: an open in the wrong mode is its EIO.
        #[test]
        fn no_open_is_an_error(
            steps in prop::collection::vec((0..4u8, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let mut nodes = Nodes::new(9);
            // Descriptors by the kernel's inode.
            let mut open: Vec<(u64, Way)> = Vec::new();
            for (step, only_reads, whole) in steps {
                match step {
                    0 | 1 => {
                        let node = nodes.node(INO);
                        let way = nodes.open(node, Ask { only_reads, whole }).unwrap();
                        let clash = |(other, theirs): &(u64, Way)| {
                            *other == node && (*theirs == Way::Cached) != (way == Way::Cached)
                        };
                        prop_assert!(!open.iter().any(clash), "{open:?} {way:?}");
                        prop_assert!(way == Way::Cached || only_reads == (way == Way::Backed));
                        open.push((node, way));
                    }
                    2 if !open.is_empty() => {
                        let (node, way) = open.swap_remove(usize::from(only_reads) % open.len());
                        nodes.closed(INO, way);
                        // What is open is not forgotten.
                        if whole && !open.iter().any(|(other, _)| *other == node) {
                            nodes.forgotten(node, 1);
                        }
                    }
                    _ => drop(nodes.moved(INO)),
                }
            }
        }
    }
}
