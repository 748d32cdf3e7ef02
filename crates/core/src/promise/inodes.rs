//! A set of inodes in little space: hosts number what they make one after the other, so most sets
//! are a few runs of numbers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::nouns::Ino;

/// Inodes, each once.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Inodes {
    /// For each run how many numbers are left out before it, and how many it has beyond its first.
    runs: Vec<(u64, u64)>,
}

impl Inodes {
    /// How many; at most `u64::MAX`, whatever somebody sent.
    pub fn len(&self) -> u64 {
        let len = |(_, more): &(u64, u64)| more.saturating_add(1);
        self.runs.iter().map(len).fold(0, u64::saturating_add)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Runs of consecutive numbers.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// In order of numbers. What does not fit into a number is not there.
    pub fn iter(&self) -> impl Iterator<Item = Ino> {
        let mut next = Some(0_u64);
        let run = move |(gap, more): &(u64, u64)| {
            let first = next?.checked_add(*gap)?;
            let last = first.checked_add(*more)?;
            next = last.checked_add(1);
            Some(first..=last)
        };
        self.runs.iter().map_while(run).flatten().map(Ino)
    }

    /// The same in at most `runs` runs: with what lies between those that are close, unless there
    /// would be more than `most`; then without those at the end.
    pub fn within(mut self, runs: usize, most: u64) -> Inodes {
        let mut gaps: Vec<u64> = self.runs.iter().skip(1).map(|(gap, _)| *gap).collect();
        gaps.sort_unstable_by(|a, b| b.cmp(a));
        let Some(&close) = gaps.get(runs.saturating_sub(1)) else { return self };
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(runs);
        for &(gap, more) in &self.runs {
            match joined.last_mut() {
                Some((_, before)) if gap <= close => {
                    *before = before.saturating_add(gap).saturating_add(more).saturating_add(1);
                }
                _ => joined.push((gap, more)),
            }
        }
        let joined = Inodes { runs: joined };
        if joined.len() <= most {
            return joined;
        }
        self.runs.truncate(runs);
        self
    }
}

impl FromIterator<Ino> for Inodes {
    fn from_iter<I: IntoIterator<Item = Ino>>(inodes: I) -> Inodes {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut next = 0;
        for Ino(number) in inodes.into_iter().collect::<BTreeSet<_>>() {
            match runs.last_mut() {
                Some((_, more)) if number == next => *more += 1,
                _ => runs.push((number - next, 0)),
            }
            // Nothing follows the last number there is.
            next = number.saturating_add(1);
        }
        Inodes { runs }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_one_host_made_takes_few_bytes() {
        let inodes: Inodes = (1_000_000..1_100_000).map(Ino).collect();
        assert_eq!((inodes.len(), inodes.runs()), (100_000, 1));
        assert!(postcard::to_stdvec(&inodes).unwrap().len() < 10);
    }

    #[test]
    fn every_other_inode_is_one_run_with_those_between() {
        let inodes: Inodes = (0..1000).map(|at| Ino(5 + 2 * at)).collect();
        let within = inodes.clone().within(3, 2000);
        assert_eq!((within.len(), within.runs(), within.iter().next()), (1999, 1, Some(Ino(5))));
        let within = inodes.within(3, 1500);
        assert_eq!((within.len(), within.runs()), (3, 3), "there would be too many");
    }

    #[test]
    fn what_a_stranger_sent_does_no_harm() {
        let max = u64::MAX;
        for runs in [vec![(max, max)], vec![(0, max), (0, 0)], vec![(max, 0), (0, 5)]] {
            let inodes = Inodes { runs };
            assert!(!inodes.is_empty());
            assert!(inodes.iter().take(3).count() <= 3);
        }
        assert_eq!([Ino(max), Ino(0)].into_iter().collect::<Inodes>().iter().count(), 2);
    }

    proptest! {
        #[test]
        fn a_set_is_what_was_put_in(numbers in prop::collection::btree_set(0_u64..60, 0..40)) {
            let inodes: Inodes = numbers.iter().rev().copied().map(Ino).collect();
            let back: Vec<u64> = inodes.iter().map(|ino| ino.0).collect();
            prop_assert_eq!(&back, &numbers.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(inodes.len(), back.len() as u64);
        }

        #[test]
        fn what_is_close_is_joined(
            numbers in prop::collection::btree_set(0_u64..60, 0..40),
            runs in 1..9usize,
            most in 0..60u64,
        ) {
            let inodes: Inodes = numbers.iter().copied().map(Ino).collect();
            let within = inodes.clone().within(runs, most);
            prop_assert!(within.runs() <= runs);
            let is_there = |ino: &Ino| numbers.contains(&ino.0);
            if inodes.runs() <= runs || !within.iter().all(|ino| is_there(&ino)) {
                let all: Vec<_> = within.iter().filter(is_there).collect();
                prop_assert!(inodes.iter().eq(all), "nothing is left out");
            }
            if inodes.runs() > runs {
                prop_assert!(within.len() <= most.max(inodes.len()));
            }
        }
    }
}
