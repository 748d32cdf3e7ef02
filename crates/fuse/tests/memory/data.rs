//! What a file holds: pages, and holes where there are none.

use std::collections::BTreeMap;

pub(crate) const PAGE: u64 = 4096;
const PAGE_LEN: usize = 4096;

/// A file's bytes. Pages behind its end are reserved and hold zeros.
#[derive(Default)]
pub(crate) struct Data {
    pub(crate) size: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// The part of a page that a range covers, and where it is in the range.
struct Piece {
    page: u64,
    start: usize,
    end: usize,
    at: usize,
}

impl Piece {
    fn is_whole(&self) -> bool {
        self.end - self.start == PAGE_LEN
    }
}

fn pieces(start: u64, end: u64) -> impl Iterator<Item = Piece> {
    (start / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let from = start.max(page * PAGE);
        let to = end.min((page + 1).saturating_mul(PAGE));
        let within = |offset: u64| usize::try_from(offset - page * PAGE).unwrap();
        let at = usize::try_from(from - start).unwrap();
        Piece { page, start: within(from), end: within(to), at }
    })
}

impl Data {
    pub(crate) fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// So many pages more would a write to this range need.
    pub(crate) fn missing(&self, start: u64, end: u64) -> u64 {
        let wanted = start / PAGE..end.div_ceil(PAGE);
        let count = wanted.end - wanted.start;
        count - self.pages.range(wanted).count() as u64
    }

    pub(crate) fn read(&self, offset: u64, size: u64) -> Vec<u8> {
        let end = offset.saturating_add(size).min(self.size);
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(offset)).unwrap()];
        for piece in pieces(offset, end) {
            if let Some(page) = self.pages.get(&piece.page) {
                let part = &page[piece.start..piece.end];
                bytes[piece.at..piece.at + part.len()].copy_from_slice(part);
            }
        }
        bytes
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for piece in pieces(offset, end) {
            let part = &bytes[piece.at..piece.at + piece.end - piece.start];
            self.page(piece.page)[piece.start..piece.end].copy_from_slice(part);
        }
        if !bytes.is_empty() {
            self.size = self.size.max(end);
        }
    }

    fn page(&mut self, number: u64) -> &mut [u8] {
        self.pages.entry(number).or_insert_with(|| vec![0; PAGE_LEN].into())
    }

    /// Cuts off, or adds a hole.
    pub(crate) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, u64::MAX);
        }
        self.size = size;
    }

    /// Makes a hole.
    pub(crate) fn punch(&mut self, start: u64, end: u64) {
        let (first, last) = (start / PAGE, end.div_ceil(PAGE));
        let touched: Vec<u64> = self.pages.range(first..last).map(|(page, _)| *page).collect();
        for page in touched {
            let piece = pieces(start.max(page * PAGE), end.min((page + 1) * PAGE)).next();
            match piece {
                Some(piece) if !piece.is_whole() => {
                    self.page(page)[piece.start..piece.end].fill(0);
                }
                _ => drop(self.pages.remove(&page)),
            }
        }
    }

    /// Makes sure that there are pages; what is there stays.
    pub(crate) fn reserve(&mut self, start: u64, end: u64) {
        for piece in pieces(start, end) {
            self.page(piece.page);
        }
    }

    /// The first offset from `offset` on where data begin.
    pub(crate) fn data_from(&self, offset: u64) -> Option<u64> {
        let (page, _) = self.pages.range(offset / PAGE..).next()?;
        let found = offset.max(page * PAGE);
        (found < self.size).then_some(found)
    }

    /// The first offset from `offset` on where a hole begins; there is one at the end.
    pub(crate) fn hole_from(&self, offset: u64) -> Option<u64> {
        let first = offset / PAGE;
        let run = self.pages.range(first..).zip(first..).take_while(|((page, _), n)| *page == n);
        let behind = (first + run.count() as u64) * PAGE;
        (offset < self.size).then(|| behind.max(offset).min(self.size))
    }
}

#[test]
fn a_page_that_was_cut_off_comes_back_empty() {
    let mut data = Data::default();
    data.write(4000, &[7; 200]);
    assert_eq!((data.size, data.pages()), (4200, 2));
    data.resize(4050);
    data.resize(5000);
    let bytes = data.read(4000, 4096);
    assert_eq!(bytes.len(), 1000);
    assert!(bytes[..50].iter().all(|byte| *byte == 7) && bytes[50..].iter().all(|byte| *byte == 0));
    assert_eq!((data.data_from(0), data.hole_from(0)), (Some(0), Some(4096)));
    data.punch(0, 4096);
    assert_eq!((data.data_from(0), data.hole_from(0), data.hole_from(5000)), (None, Some(0), None));
}
