//! A listing that comes in pages, from a server that may say anything.

use crate::nouns::Name;
use crate::refusal::Refusal;
use crate::wire::{Node, PAGE_MAX, Page};

/// Most names of a directory that a host lists.
const NAMES_MAX: usize = 16 << 20;
/// Most bytes of memory that its listing takes meanwhile.
const BYTES_MAX: usize = 3 << 30;

/// The pages so far.
#[derive(Debug, Default)]
pub struct Pages {
    entries: Vec<(Name, Node)>,
    bytes: usize,
}

impl Pages {
    /// Takes the entries out of the next page, and returns the last name so far. Errors:
    /// `Protocol` for a page that is longer than was asked for, is not in order, or brings a
    /// listing no further; `Limit` for a directory with too many names.
    pub fn add(&mut self, page: &mut Page) -> Result<Option<Name>, Refusal> {
        let more = std::mem::take(&mut page.entries);
        if more.len() > PAGE_MAX as usize || more.is_empty() && page.more {
            return Err(Refusal::Protocol);
        }
        for (name, node) in more {
            if self.entries.last().is_some_and(|(last, _)| *last >= name) {
                return Err(Refusal::Protocol);
            }
            let target = node.target.as_ref().map_or(0, Vec::len);
            self.bytes += name.as_bytes().len() + target + size_of::<(Name, Node)>();
            self.entries.push((name, node));
        }
        if self.entries.len() > NAMES_MAX || self.bytes > BYTES_MAX {
            return Err(Refusal::Limit);
        }
        Ok(self.entries.last().map(|(name, _)| name.clone()))
    }

    /// All entries, in byte order of names.
    pub fn into_entries(self) -> Vec<(Name, Node)> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nouns::Kind;
    use crate::testing::attr;

    fn page(names: impl IntoIterator<Item = String>, more: bool) -> Page {
        let node = Node { attr: attr(5, Kind::File, 1), target: None };
        let name = |name: String| (Name::new(name.into_bytes()).unwrap(), node.clone());
        Page {
            directory: attr(1, Kind::Directory, 1),
            entries: names.into_iter().map(name).collect(),
            more,
            promised: None,
            commit: 0,
            gone: None,
        }
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn pages_in_order_are_one_listing() {
        let mut pages = Pages::default();
        assert_eq!(pages.add(&mut page(names(&[]), false)), Ok(None));
        let last = pages.add(&mut page(names(&["a", "b"]), true)).unwrap();
        assert_eq!(last.unwrap().as_bytes(), b"b");
        pages.add(&mut page(names(&["c"]), false)).unwrap();
        assert_eq!(pages.into_entries().len(), 3);
    }

    /// A server that sent the same page for ever had the mount take all memory.
    #[test]
    fn a_server_that_says_anything_gets_no_memory_for_it() {
        let wrong = [names(&["b"]), names(&["a", "c"]), names(&["d", "c"]), names(&[])];
        for entries in wrong {
            let mut pages = Pages::default();
            pages.add(&mut page(names(&["a", "b"]), true)).unwrap();
            assert_eq!(pages.add(&mut page(entries.clone(), true)), Err(Refusal::Protocol));
        }
        let long = (0..=PAGE_MAX).map(|number| format!("{number:08}"));
        assert_eq!(Pages::default().add(&mut page(long, false)), Err(Refusal::Protocol));
        let mut full = Pages { bytes: BYTES_MAX, ..Pages::default() };
        assert_eq!(full.add(&mut page(names(&["a"]), false)), Err(Refusal::Limit));
    }
}
