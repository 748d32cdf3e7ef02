//! A set of byte ranges, kept as few as possible.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Ranges of a file: sorted, not empty, not touching.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// How many they are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds `range`.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: Range<u64>) {
        while let Some((&s, &e)) = self.ranges.range(..range.end).next_back() {
            if e <= range.start || range.is_empty() {
                break;
            }
            self.ranges.remove(&s);
            if s < range.start {
                self.ranges.insert(s, range.start);
            }
            if range.end < e {
                self.ranges.insert(range.end, e);
            }
        }
    }

    /// The parts of `range` that are in the set.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self
            .ranges
            .range(..=range.start)
            .next_back()
            .filter(|&(_, &e)| e > range.start)
            .map_or(range.start, |(&s, _)| s);
        let end = range.end.max(first);
        self.ranges
            .range(first..end)
            .map(move |(&s, &e)| s.max(range.start)..e.min(range.end))
            .filter(|part| !part.is_empty())
    }

    /// The parts of `range` that are not in the set.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut at = range.start;
        let mut gaps = Vec::new();
        for part in self.within(range.clone()) {
            if at < part.start {
                gaps.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// True if all of `range` is in the set.
    pub fn contains(&self, range: Range<u64>) -> bool {
        self.missing(range).is_empty()
    }

    /// True if some of `range` is in the set.
    pub fn overlaps(&self, range: Range<u64>) -> bool {
        self.within(range).next().is_some()
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(s, e)| e - s).sum()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&s, &e)| s..e)
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn touching_ranges_become_one() {
        let mut set = RangeSet::default();
        set.insert(0..10);
        set.insert(20..30);
        set.insert(10..20);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..30]);
        set.remove(5..7);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..5, 7..30]);
        assert_eq!(set.missing(3..10), [5..7]);
        assert_eq!(set.bytes(), 28);
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_bytes(
            steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..32), 0..40),
            from in 0u64..64, len in 0u64..40,
        ) {
            let mut set = RangeSet::default();
            let mut model = [false; 128];
            for (insert, start, len) in steps {
                let range = start..start + len;
                range.clone().for_each(|byte| model[byte as usize] = insert);
                if insert { set.insert(range) } else { set.remove(range) }
            }
            let inside: Vec<u64> = set.within(from..from + len).flatten().collect();
            let outside: Vec<u64> = set.missing(from..from + len).into_iter().flatten().collect();
            let (yes, no): (Vec<u64>, Vec<u64>) =
                (from..from + len).partition(|&byte| model[byte as usize]);
            prop_assert_eq!(inside, yes);
            prop_assert_eq!(outside, no);
            prop_assert_eq!(set.bytes(), model.iter().filter(|&&byte| byte).count() as u64);
            let ranges: Vec<_> = set.iter().collect();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
