//! What a file holds: pages, and zeros where there are none.

use std::collections::BTreeMap;
use std::ops::Range;

const PAGE: u64 = 4096;

/// A file's bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Content {
    size: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// Where a part of a range is: in which page, where in that, and where in the range.
struct Piece {
    page: u64,
    within: Range<usize>,
    at: Range<usize>,
}

fn pieces(range: Range<u64>) -> impl Iterator<Item = Piece> {
    let pages = range.start / PAGE..range.end.div_ceil(PAGE);
    pages.map(move |page| {
        let first = page * PAGE;
        let (from, to) = (range.start.max(first), range.end.min(first + PAGE));
        let part = |base: u64| len(from - base)..len(to - base);
        Piece { page, within: part(first), at: part(range.start) }
    })
}

/// A length in memory. There are no files that do not fit.
fn len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn read(&self, offset: u64, size: u64) -> Vec<u8> {
        let end = offset.saturating_add(size).min(self.size);
        let mut bytes = vec![0; len(end.saturating_sub(offset))];
        for piece in pieces(offset..end.max(offset)) {
            if let Some(page) = self.pages.get(&piece.page) {
                bytes[piece.at].copy_from_slice(&page[piece.within]);
            }
        }
        bytes
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for piece in pieces(offset..end) {
            let empty = || vec![0; len(PAGE)].into();
            let page = self.pages.entry(piece.page).or_insert_with(empty);
            page[piece.within].copy_from_slice(&bytes[piece.at]);
        }
        self.size = self.size.max(end);
    }

    /// Cuts off, or adds zeros.
    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.punch(size..self.size);
        }
        self.size = size;
    }

    /// Makes zeros.
    pub(super) fn punch(&mut self, hole: Range<u64>) {
        let touched = hole.start / PAGE..hole.end.div_ceil(PAGE);
        for (page, bytes) in self.pages.range_mut(touched) {
            let first = page * PAGE;
            let (from, to) = (hole.start.max(first), hole.end.min(first + PAGE));
            bytes[len(from - first)..len(to - first)].fill(0);
        }
    }

    /// Everything that is not zeros without a page, with its place.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().filter_map(|(page, bytes)| {
            let offset = page * PAGE;
            Some((offset, bytes.get(..len(self.size.saturating_sub(offset).min(PAGE)))?))
        })
    }
}

#[test]
fn what_was_cut_off_comes_back_as_zeros() {
    let mut content = Content::default();
    content.write(4000, &[7; 200]);
    assert_eq!((content.size(), content.read(4190, 100)), (4200, vec![7; 10]));
    content.resize(4050);
    content.resize(5000);
    let expected = [vec![7; 50], vec![0; 950]].concat();
    assert_eq!(content.read(4000, 5000), expected);
    content.punch(4010..4020);
    assert_eq!(content.read(4009, 12), [vec![7], vec![0; 10], vec![7]].concat());
    let parts: usize = content.parts().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(parts, 5000);
}
