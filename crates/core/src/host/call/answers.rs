//! Answers of the server to looks: how each goes into the cache, and when to ask again.

use super::Running;
use super::look::{Look, Looking, OVERTAKEN_MAX, Sighted};
use crate::host::action::{Action, Fact, Now, Told};
use crate::host::cache::{AsOf, Moved};
use crate::host::{Fault, Host};
use crate::nouns::{Dentry, Ino};
use crate::refusal::Refusal;
use crate::sharing::Hidden;
use crate::wire::{Looked, Node, Page};

impl Host {
    /// Takes in how a question to the server ended.
    pub(super) fn answered(&mut self, call: &mut Running, told: Result<Told, Refusal>, now: Now) {
        let Some(Looking { look, so_far }) = call.so_far.looks.last_mut() else { return };
        let ended = match look {
            Look::Attr(ino) | Look::AttrAnew(ino) | Look::AttrToOpen(ino) => {
                self.answered_attr(*ino, so_far, told, now)
            }
            Look::Name(at) => {
                self.storms.waited(at.parent, [so_far.asked, now.time]);
                match so_far.listing.take() {
                    Some(limit) => self.answered_listing(at, so_far, (limit, told), now),
                    None => self.answered_name(at, so_far, told, now),
                }
            }
            Look::Names(_) => match told.and_then(|told| self.answered_page(so_far, told, now)) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(refusal) => Some(Err(refusal)),
            },
            Look::Xattrs(ino) => Some(told.and_then(|told| {
                let Fact::Xattrs(told) = told.fact else { return Err(Refusal::Protocol) };
                let map = told.values.into_iter().collect();
                self.told_xattrs(*ino, told.change, map);
                Ok(())
            })),
            Look::Same(files) => Some(told.and_then(|told| {
                let Fact::Same(is_same) = told.fact else { return Err(Refusal::Protocol) };
                so_far.is_same = is_same;
                if !is_same {
                    self.different.insert(files.one.0, *files);
                }
                Ok(())
            })),
            // Another look asks for it.
            Look::Target(_) => None,
        };
        so_far.answered = ended;
    }

    fn answered_attr(
        &mut self,
        ino: Ino,
        so_far: &mut Sighted,
        told: Result<Told, Refusal>,
        now: Now,
    ) -> Option<Result<(), Refusal>> {
        let refusal = match told {
            Ok(Told { fact: Fact::Attr(node), promised, asked }) => {
                self.told_attr(node, self.tree.as_of(promised, [asked, now.time]));
                return Some(Ok(()));
            }
            Ok(Told { fact: Fact::Opened(node, is_hidden), promised, asked }) => {
                let is_empty = node.attr.size == 0;
                self.told_attr(node, self.tree.as_of(promised, [asked, now.time]));
                self.tree.forget_announced(ino, is_hidden);
                return match self.settings.hidden {
                    _ if !is_hidden => Some(Ok(())),
                    Hidden::Last if !is_empty => Some(Ok(())),
                    Hidden::Last | Hidden::Fail => Some(Err(Refusal::Hidden)),
                    Hidden::Wait => {
                        so_far.is_put_off = true;
                        None
                    }
                };
            }
            Ok(_) => Refusal::Protocol,
            Err(refusal) => refusal,
        };
        // An inode that is pending or in use here exists here.
        if refusal == Refusal::Stale && !self.is_open(ino) && !self.is_held(ino) {
            self.tree.forget(ino, now.time);
        }
        Some(Err(refusal))
    }

    fn told_attr(&mut self, node: Node, as_of: AsOf) {
        self.tree.install_node(node, &as_of);
        self.tree.promised(&as_of);
    }

    /// A listing that was fetched instead of a name, or the first page of a long one.
    fn answered_listing(
        &mut self,
        at: &Dentry,
        so_far: &mut Sighted,
        (limit, told): (u32, Result<Told, Refusal>),
        now: Now,
    ) -> Option<Result<(), Refusal>> {
        let mut is_answered = false;
        if let Ok(Told { fact: Fact::Page(page), promised, asked }) = told {
            let as_of = self.tree.as_of(promised, [asked, now.time]);
            let is_whole = !page.more;
            // Promised or not, all names are the answer to this question.
            is_answered = self.install_first_page(page, limit, &as_of, now) && is_whole;
        }
        so_far.named = self.tree.name(at.parent, &at.name, now.time).usable(is_answered);
        None
    }

    /// False if it had been overtaken.
    fn install_first_page(&mut self, page: Page, limit: u32, as_of: &AsOf, now: Now) -> bool {
        if !page.more {
            return self.install_listing(page, as_of, now);
        }
        self.storms.note_longer(page.directory.ino, limit);
        for (name, node) in page.entries {
            if !self.tree.install_name(page.directory, name, Some(node), as_of) {
                return false;
            }
        }
        self.tree.promised(as_of);
        true
    }

    /// False if it had been overtaken.
    fn install_listing(&mut self, page: Page, as_of: &AsOf, now: Now) -> bool {
        self.shrink(now.time);
        let is_taken = self.tree.install_page(page, as_of);
        if is_taken {
            self.tree.promised(as_of);
        }
        is_taken
    }

    fn answered_name(
        &mut self,
        at: &Dentry,
        so_far: &mut Sighted,
        told: Result<Told, Refusal>,
        now: Now,
    ) -> Option<Result<(), Refusal>> {
        let (looked, promised, asked) = match told {
            Ok(Told { fact: Fact::Name(looked), promised, asked }) => (looked, promised, asked),
            Ok(_) => return Some(Err(Refusal::Protocol)),
            Err(refusal) => return Some(Err(refusal)),
        };
        let as_of = self.tree.as_of(promised, [asked, now.time]);
        let Looked { parent, node, .. } = looked;
        self.shrink(now.time);
        if self.tree.install_name(parent, at.name.clone(), node.clone(), &as_of) {
            self.tree.promised(&as_of);
            so_far.named = self.tree.name(parent.ino, &at.name, now.time).usable(true);
        }
        if so_far.named.is_some() {
            return None;
        }
        so_far.overtaken += 1;
        if so_far.overtaken < OVERTAKEN_MAX {
            return None;
        }
        if self.tree.is_pending(at.parent) {
            return Some(Err(Refusal::Changed));
        }
        // The directory changes faster than it can be asked: the answer was true when it was given.
        so_far.named = Some(node.as_ref().map(|node| node.attr.ino));
        node.into_iter().for_each(|node| self.tree.install_node(node, &as_of));
        None
    }

    /// True if that was the last page of a listing, which is known now.
    fn answered_page(
        &mut self,
        so_far: &mut Sighted,
        told: Told,
        now: Now,
    ) -> Result<bool, Refusal> {
        let Told { fact: Fact::Page(page), promised, asked } = told else {
            return Err(Refusal::Protocol);
        };
        let Some(listing) = so_far.paging.take(page, promised, asked)? else { return Ok(false) };
        let as_of = self.tree.as_of(listing.promised, [listing.asked, now.time]);
        let is_taken = self.install_listing(listing.page, &as_of, now);
        if !is_taken {
            so_far.paging.again()?;
        }
        Ok(is_taken)
    }

    /// Forgets cached data of which the server has other versions. The writes of memory maps are
    /// logged before.
    pub(super) fn follow_moved(&mut self) {
        for Moved { ino, version, was_known } in self.tree.take_moved() {
            let is_new = self.observe(ino, version);
            if is_new {
                self.leave(ino);
            }
            if is_new || was_known && !self.is_ahead(ino) {
                self.act(Action::ForgetData(ino));
            }
        }
    }

    /// The container of `ino` is another one. A kernel that reads the old one is to call the file
    /// something else.
    pub(super) fn leave(&mut self, ino: Ino) {
        if !self.has_planted(Fault::KeepsBacking) && self.nodes.moved(ino) {
            self.act(Action::Leave(ino));
        }
    }
}
