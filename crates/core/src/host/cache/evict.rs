//! What of the cached data goes when there is no room for all: what was used longest ago.
//!
//! ```text
//!   0 ──────────── target ── soft ── limit        clean bytes: nothing else is bounded
//!                     ◀── goes ──┘
//! ```
//!
//! The limit is `cache-size`, or less where the disk has so little left that `cache-min-free`
//! would not be. Beyond the soft limit data go until the target is met, so that the cleaner
//! works now and then and not with each block; what comes meanwhile is cached.
//!
//! Invariant: what somebody uses and what the server lacks stays, however much that is.

use crate::nouns::{ContainerId, Ino};

/// What of its disk the cache leaves alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MinFree {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of it.
    Percent(u8),
    /// The less of both: a tenth of a large disk would often be more than is free on it.
    Less(u64, u8),
}

/// How much may be cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Most bytes.
    pub size: u64,
    /// What is left on the disk..
    pub min_free: MinFree,
    /// ..which is at least this: whoever writes needs it more.
    pub reserve: u64,
}

/// The disk that the cache is on, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disk {
    /// All of it.
    pub total: u64,
    /// What nobody uses.
    pub free: u64,
}

impl Bounds {
    /// How many clean bytes may be here, of which there are `clean`.
    pub fn limit(&self, disk: Disk, clean: u64) -> u64 {
        let share = |percent: u8| disk.total / 100 * u64::from(percent);
        let min_free = match self.min_free {
            MinFree::Bytes(bytes) => bytes,
            MinFree::Percent(percent) => share(percent),
            MinFree::Less(bytes, percent) => bytes.min(share(percent)),
        };
        let room = clean.saturating_add(disk.free).saturating_sub(min_free.max(self.reserve));
        self.size.min(room)
    }

    /// How many of `clean` bytes are to go, with this limit.
    pub fn excess(limit: u64, clean: u64) -> u64 {
        if clean > Bounds::soft(limit) { clean - (limit - limit / 10) } else { 0 }
    }

    /// Beyond this something is to go.
    pub fn soft(limit: u64) -> u64 {
        limit - limit / 20
    }
}

/// Data of one file that are noted on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The file.
    pub ino: Ino,
    /// Where they are.
    pub container: ContainerId,
    /// When the file was used last.
    pub used: u64,
    /// The room they take.
    pub bytes: u64,
}

/// Which of `candidates` go, so that `excess` bytes are free: those used longest ago, of those
/// that `may_go` lets go. It is asked about no more than are needed.
pub fn choose(
    mut candidates: Vec<Candidate>,
    excess: u64,
    mut may_go: impl FnMut(&Candidate) -> bool,
) -> Vec<Candidate> {
    candidates.sort_by_key(|candidate| (candidate.used, candidate.ino));
    let mut freed = 0;
    let mut chosen = Vec::new();
    for candidate in candidates.into_iter().filter(|candidate| candidate.bytes > 0) {
        if freed >= excess {
            break;
        }
        if may_go(&candidate) {
            freed += candidate.bytes;
            chosen.push(candidate);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;
    const BOUNDS: Bounds =
        Bounds { size: 20 * GIB, min_free: MinFree::Percent(10), reserve: GIB / 8 };

    /// Proves S15.1, S15.2.
    #[test]
    fn the_smaller_of_both_bounds_counts() {
        let disk = |free| Disk { total: 100 * GIB, free };
        assert_eq!(BOUNDS.limit(disk(90 * GIB), 5 * GIB), 20 * GIB);
        assert_eq!(BOUNDS.limit(disk(12 * GIB), 5 * GIB), 7 * GIB);
        assert_eq!(BOUNDS.limit(disk(4 * GIB), 5 * GIB), 0);
        let small = Disk { total: GIB, free: GIB };
        assert_eq!(BOUNDS.limit(small, 0), GIB - GIB / 8, "writers need their reserve");
        let bytes = Bounds { min_free: MinFree::Bytes(30 * GIB), ..BOUNDS };
        assert_eq!(bytes.limit(disk(40 * GIB), GIB), 11 * GIB);
        let less = Bounds { min_free: MinFree::Less(5 * GIB, 10), ..BOUNDS };
        assert_eq!(less.limit(disk(12 * GIB), 0), 7 * GIB);
        assert_eq!(
            less.limit(Disk { total: 10_000_000_000, free: 4_000_000_000 }, 0),
            3_000_000_000
        );
    }

    #[test]
    fn the_cleaner_goes_further_than_it_has_to() {
        assert_eq!(Bounds::excess(1_000, 950), 0);
        assert_eq!(Bounds::excess(1_000, 951), 51);
        assert_eq!(Bounds::excess(0, 7), 7);
        assert_eq!(Bounds::excess(0, 0), 0);
    }

    proptest! {
        /// Proves S15.3.
        #[test]
        fn the_oldest_go_and_nothing_that_is_in_use(
            files in prop::collection::vec((0..20u64, 0..50u64, any::<bool>()), 0..40),
            excess in 0..600u64,
        ) {
            let candidates: Vec<Candidate> = (1..)
                .zip(&files)
                .map(|(ino, &(used, bytes, _))| Candidate {
                    ino: Ino(ino),
                    container: ContainerId(ino),
                    used,
                    bytes,
                })
                .collect();
            let free: BTreeSet<Ino> = (1..)
                .zip(&files)
                .filter(|(_, (_, bytes, is_used))| !is_used && *bytes > 0)
                .map(|(ino, _)| Ino(ino))
                .collect();
            let chosen = choose(candidates.clone(), excess, |file| free.contains(&file.ino));
            let gone: BTreeSet<Ino> = chosen.iter().map(|file| file.ino).collect();
            prop_assert!(gone.is_subset(&free));
            let freed: u64 = chosen.iter().map(|file| file.bytes).sum();
            prop_assert!(freed >= excess || gone == free, "more could have gone");
            let last = chosen.last().map(|file| (file.used, file.ino, file.bytes));
            if let Some((used, ino, bytes)) = last {
                prop_assert!(freed - bytes < excess, "fewer would have done");
                let older = candidates.iter().filter(|file| (file.used, file.ino) < (used, ino));
                for file in older.filter(|file| free.contains(&file.ino)) {
                    prop_assert!(gone.contains(&file.ino), "{file:?} is older and stayed");
                }
            }
        }
    }
}
