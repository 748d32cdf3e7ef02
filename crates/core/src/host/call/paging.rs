//! The listing of a directory in pages: of one state of it, if it holds still for long enough.

use super::look::OVERTAKEN_MAX;
use crate::host::action::{Ask, Query};
use crate::host::cache::{Pages, Promised, Tree};
use crate::nouns::{Ino, Name, Time, Version};
use crate::refusal::Refusal;
use crate::wire::{PAGE_MAX, Page};

/// A listing that is being fetched, perhaps for the second time.
#[derive(Debug, Default)]
pub(super) struct Paging {
    is_begun: bool,
    is_known: bool,
    /// States of the directory that changed while they were fetched.
    overtaken: u32,
    pages: Pages,
    after: Option<Name>,
    first: Option<First>,
}

/// The start of a listing.
#[derive(Debug)]
struct First {
    change: Version,
    commit: u64,
    gone: Option<Vec<Name>>,
    promised: Option<Promised>,
    asked: Time,
}

/// All pages as one.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) page: Page,
    pub(super) promised: Option<Promised>,
    /// All of it is at least as new as this.
    pub(super) asked: Time,
}

impl Paging {
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// The first question. `is_known`: the names were known once.
    pub(super) fn begin(&mut self, tree: &Tree, directory: Ino, is_known: bool) -> Query {
        (self.is_begun, self.is_known) = (true, is_known);
        self.next(tree, directory)
    }

    /// The next question. At first it asks only for names that changed since all were known.
    pub(super) fn next(&self, tree: &Tree, directory: Ino) -> Query {
        let is_first = self.overtaken == 0 && self.first.is_none();
        let since = tree.listed_through(directory).filter(|_| is_first);
        let after = self.after.clone();
        let ask = Ask::Page { directory, after, since, limit: PAGE_MAX };
        Query { ask, is_known: self.is_known }
    }

    /// Takes in a page. Returns the listing if that was the last one.
    pub(super) fn take(
        &mut self,
        mut page: Page,
        promised: Option<Promised>,
        asked: Time,
    ) -> Result<Option<Listing>, Refusal> {
        let after = self.pages.add(&mut page)?;
        match &mut self.first {
            Some(first) => first.promised = first.promised.take().map(|all| all.and(promised)),
            None => {
                let (change, commit) = (page.directory.change, page.commit);
                let gone = page.gone.take();
                self.first = Some(First { change, commit, gone, promised, asked });
            }
        }
        let is_last_try = self.overtaken + 1 == OVERTAKEN_MAX;
        let is_one_state =
            self.first.as_ref().is_some_and(|first| first.change == page.directory.change);
        if page.more && (is_one_state || is_last_try) {
            self.after = after;
            return Ok(None);
        }
        if !is_one_state && !is_last_try {
            self.again()?;
            return Ok(None);
        }
        let entries = std::mem::take(&mut self.pages).into_entries();
        let Some(First { commit, gone, promised, asked, .. }) = self.first.take() else {
            return Err(Refusal::Protocol);
        };
        let promised = promised.filter(|_| is_one_state);
        let page = Page { entries, commit, gone, ..page };
        Ok(Some(Listing { page, promised, asked }))
    }

    /// A change has overtaken the pages.
    pub(super) fn again(&mut self) -> Result<(), Refusal> {
        let overtaken = self.overtaken + 1;
        *self = Paging { is_begun: true, is_known: self.is_known, overtaken, ..Paging::default() };
        if overtaken == OVERTAKEN_MAX { Err(Refusal::Changed) } else { Ok(()) }
    }
}
