//! Calls that look: attributes, names, listings, links, extended attributes.
//!
//! What the cache may answer is answered at once. Otherwise the index is looked at, and then the
//! server is asked. An answer of the server goes into the cache. It answers the call also where it
//! comes without a promise.
//!
//! ```text
//!   cache ─▶ Load ─▶ cache ─▶ Query ─▶ cache ─▶ Reply
//! ```

use super::paging::Paging;
use super::{Answer, Call, Next, Running, Step};
use crate::host::Host;
use crate::host::action::{Action, Ask, CallId, Fact, Load, Noted, Now, Query, Reach, Told};
use crate::host::cache::{AsOf, Known, Moved, XattrMap};
use crate::nouns::{Attr, Dentry, Ino, Name, Time};
use crate::refusal::Refusal;
use crate::wire::{Looked, Page};

/// So often a reply may be overtaken by a change before the caller is told to try again.
pub(super) const OVERTAKEN_MAX: u32 = 8;

/// What is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// Attributes: [`Seen::Attr`].
    Attr(Ino),
    /// The server's attributes, unless this host is ahead of it: [`Seen::Attr`].
    AttrAnew(Ino),
    /// What a name means: [`Seen::Name`].
    Name(Dentry),
    /// All names in a directory: [`Seen::Names`].
    Names(Ino),
    /// The target of a symbolic link: [`Seen::Target`].
    Target(Ino),
    /// The user's extended attributes: [`Seen::Xattrs`].
    Xattrs(Ino),
}

/// What is seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Attributes, as they are stored.
    Attr(Attr),
    /// Attributes of what a name means. `None`: it surely means nothing.
    Name(Option<Attr>),
    /// All names, in byte order.
    Names(Vec<(Name, Ino)>),
    /// The target of a link.
    Target(Vec<u8>),
    /// Extended attributes.
    Xattrs(XattrMap),
}

/// A look that is not over.
#[derive(Debug)]
pub(super) struct Looking {
    look: Look,
    so_far: Sighted,
}

/// How far a look came.
#[derive(Debug, Default)]
struct Sighted {
    /// When this attempt of it began.
    since: Time,
    /// What the index has is known.
    is_loaded: bool,
    /// How the question to the server ended.
    answered: Option<Result<(), Refusal>>,
    /// When the question was put.
    asked: Time,
    /// Answers that a change overtook.
    overtaken: u32,
    /// A listing was thought of instead of the name.
    tried_listing: bool,
    /// It is being asked for, so much of it at most.
    listing: Option<u32>,
    /// What the name means.
    named: Option<Option<Ino>>,
    /// It meant what another host removed, and can still be read.
    removed: Option<Attr>,
    /// How often it meant something else than before.
    changes: u32,
    /// The pages of a listing.
    paging: Paging,
}

impl Looking {
    fn new(look: Look, now: Now) -> Looking {
        Looking { look, so_far: Sighted { since: now.time, ..Sighted::default() } }
    }
}

/// How far the cache brings a look.
enum Glimpse {
    /// To its end.
    Seen(Seen),
    /// Another look comes first.
    Needs(Look),
    Load(Load),
    Query(Query),
}

fn is_alone(now: Now) -> bool {
    now.link != Reach::Online
}

impl Host {
    pub(super) fn attempt_look(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Look(look) = &call.call else { return Err(Refusal::Invalid) };
        let look = look.clone();
        let Some(seen) = self.look(id, call, look, now)? else { return Ok(Next::Step) };
        let is_cached = !call.so_far.has_asked;
        Ok(Next::Reply(Answer { seen: Some(Box::new(seen)), is_cached, ..Answer::default() }))
    }

    /// What the cache shows of something without any action. So most looks need no call.
    pub fn glance(&mut self, look: &Look, now: Now) -> Option<Seen> {
        let looking = Sighted { since: now.time, tried_listing: true, ..Sighted::default() };
        let mut looking = Looking { look: look.clone(), so_far: looking };
        let mut within = None;
        loop {
            match self.see(&mut looking, within, now) {
                Ok(Glimpse::Seen(seen)) => return Some(seen),
                Ok(Glimpse::Needs(Look::Attr(ino))) => {
                    within = Some(Ok(self.glance(&Look::Attr(ino), now)?));
                }
                _ => return None,
            }
        }
    }

    /// Looks for a call. `None` if an action is under way.
    pub(super) fn look(
        &mut self,
        id: CallId,
        call: &mut Running,
        look: Look,
        now: Now,
    ) -> Result<Option<Seen>, Refusal> {
        let mut looks = std::mem::take(&mut call.so_far.looks);
        if looks.is_empty() {
            looks.push(Looking::new(look, now));
        }
        let mut within = None;
        while let Some(mut looking) = looks.pop() {
            let action = match self.see(&mut looking, within.take(), now) {
                Ok(Glimpse::Seen(seen)) => {
                    within = Some(Ok(seen));
                    continue;
                }
                Err(refusal) => {
                    within = Some(Err(refusal));
                    continue;
                }
                Ok(Glimpse::Needs(look)) => {
                    looks.push(looking);
                    looks.push(Looking::new(look, now));
                    continue;
                }
                Ok(Glimpse::Load(load)) => {
                    call.step = Some(Step::Load(load.clone()));
                    Action::Load(id, load)
                }
                Ok(Glimpse::Query(query)) => {
                    call.so_far.has_asked = true;
                    looking.so_far.asked = now.time;
                    call.step = Some(Step::Query);
                    Action::Query(id, query)
                }
            };
            looks.push(looking);
            call.so_far.looks = looks;
            self.act(action);
            return Ok(None);
        }
        within.transpose()
    }

    fn see(
        &mut self,
        looking: &mut Looking,
        within: Option<Result<Seen, Refusal>>,
        now: Now,
    ) -> Result<Glimpse, Refusal> {
        let Looking { look, so_far } = looking;
        match look {
            Look::Attr(ino) => self.see_attr(*ino, so_far, now),
            Look::AttrAnew(ino) => self.see_attr_anew(*ino, so_far),
            Look::Name(at) => self.see_name(at, so_far, within, now),
            Look::Names(directory) => self.see_names(*directory, so_far, within, now),
            Look::Target(ino) => self.see_target(*ino, so_far, within),
            Look::Xattrs(ino) => self.see_xattrs(*ino, so_far, within, now),
        }
    }

    fn see_attr(&self, ino: Ino, so_far: &Sighted, now: Now) -> Result<Glimpse, Refusal> {
        if so_far.answered.is_none() {
            let known = self.tree.attr(ino, now.time);
            if known == Known::Unknown && !so_far.is_loaded {
                return Ok(Glimpse::Load(Load::Node(ino)));
            }
            if let Some(attr) = known.usable(is_alone(now)) {
                return Ok(Glimpse::Seen(Seen::Attr(attr)));
            }
        }
        self.see_attr_anew(ino, so_far)
    }

    fn see_attr_anew(&self, ino: Ino, so_far: &Sighted) -> Result<Glimpse, Refusal> {
        let known = self.tree.peek(ino).copied();
        match (so_far.answered, known) {
            (None, known) => {
                Ok(Glimpse::Query(Query { ask: Ask::Attr(ino), is_known: known.is_some() }))
            }
            (Some(_), Some(attr)) => Ok(Glimpse::Seen(Seen::Attr(attr))),
            (Some(answered), None) => Err(answered.err().unwrap_or(Refusal::Stale)),
        }
    }

    fn see_name(
        &mut self,
        at: &Dentry,
        so_far: &mut Sighted,
        within: Option<Result<Seen, Refusal>>,
        now: Now,
    ) -> Result<Glimpse, Refusal> {
        match within {
            Some(Ok(Seen::Attr(attr))) if self.forget_removed(attr.ino, now.time) => {
                so_far.removed = Some(attr);
            }
            Some(Ok(Seen::Attr(attr))) if !self.names_another(at, Some(attr.ino), now) => {
                return Ok(Glimpse::Seen(Seen::Name(Some(attr))));
            }
            Some(Err(refusal)) if refusal != Refusal::Stale => return Err(refusal),
            _ => {}
        }
        if within.is_some() {
            // The name means something else by now.
            if so_far.changes + 1 == OVERTAKEN_MAX {
                let seen = so_far.removed.map(|attr| Glimpse::Seen(Seen::Name(Some(attr))));
                return seen.ok_or(Refusal::Stale);
            }
            let (removed, changes) = (so_far.removed, so_far.changes + 1);
            *so_far = Sighted { since: now.time, removed, changes, ..Sighted::default() };
        }
        let named = match so_far.named {
            Some(named) => named,
            None => match self.see_meaning(at, so_far, now)? {
                Ok(named) => *so_far.named.insert(named),
                Err(found) => return Ok(found),
            },
        };
        let Some(ino) = named else { return Ok(Glimpse::Seen(Seen::Name(None))) };
        // Who asks for a name is told what it names.
        Ok(match self.tree.attr_since(ino, [so_far.since, now.time]) {
            Some(attr) => Glimpse::Seen(Seen::Name(Some(attr))),
            None => Glimpse::Needs(Look::Attr(ino)),
        })
    }

    /// True if a name surely means something else than `ino` now.
    pub(super) fn names_another(&self, at: &Dentry, ino: Option<Ino>, now: Now) -> bool {
        let known = self.tree.name(at.parent, &at.name, now.time).usable(false);
        known.is_some_and(|known| known != ino)
    }

    /// The inode that a name means, or what that needs.
    fn see_meaning(
        &mut self,
        at: &Dentry,
        so_far: &mut Sighted,
        now: Now,
    ) -> Result<Result<Option<Ino>, Glimpse>, Refusal> {
        let known = self.tree.name(at.parent, &at.name, now.time);
        match so_far.answered.take() {
            None => {
                if known == Known::Unknown && !so_far.is_loaded {
                    return Ok(Err(Glimpse::Load(Load::Name(at.clone()))));
                }
                if let Some(named) = known.clone().usable(is_alone(now)) {
                    return Ok(Ok(named));
                }
            }
            Some(Err(refusal)) if refusal != Refusal::Unreachable => return Err(refusal),
            Some(_) => return known.usable(true).map(Ok).ok_or(Refusal::Unreachable),
        }
        let is_known = known.usable(true).is_some();
        let parent = at.parent;
        if !std::mem::replace(&mut so_far.tried_listing, true)
            && let Some(limit) = self.storms.listing_instead(&self.tree, parent, now.time)
        {
            let since = self.tree.listed_through(parent);
            let ask = Ask::Page { directory: parent, after: None, since, limit };
            so_far.listing = Some(limit);
            return Ok(Err(Glimpse::Query(Query { ask, is_known })));
        }
        Ok(Err(Glimpse::Query(Query { ask: Ask::Name(at.clone()), is_known })))
    }

    fn see_names(
        &mut self,
        directory: Ino,
        so_far: &mut Sighted,
        within: Option<Result<Seen, Refusal>>,
        now: Now,
    ) -> Result<Glimpse, Refusal> {
        if self.is_removed(directory) {
            let known = self.tree.attr(directory, now.time).usable(is_alone(now));
            return Ok(match known.is_some() || within.is_some() {
                // It was empty when it lost its name.
                true => Glimpse::Seen(Seen::Names(Vec::new())),
                // The server may have refused to remove it.
                false => Glimpse::Needs(Look::Attr(directory)),
            });
        }
        match so_far.answered {
            None if so_far.paging.is_begun() => {
                return Ok(Glimpse::Query(so_far.paging.next(&self.tree, directory)));
            }
            None => {}
            Some(Ok(()) | Err(Refusal::Unreachable)) => {
                let known = self.tree.listing(directory, now.time).usable(true);
                return known.map(Seen::Names).map(Glimpse::Seen).ok_or(Refusal::Unreachable);
            }
            Some(Err(refusal)) => return Err(refusal),
        }
        let known = self.tree.listing(directory, now.time);
        let is_known = known != Known::Unknown;
        let may_be_noted =
            self.tree.peek(directory).is_none() || self.tree.is_listed_on_disk(directory);
        if !is_known && !so_far.is_loaded && may_be_noted {
            return Ok(Glimpse::Load(Load::Listing(directory)));
        }
        Ok(match known.usable(is_alone(now)) {
            Some(names) => Glimpse::Seen(Seen::Names(names)),
            None => Glimpse::Query(so_far.paging.begin(&self.tree, directory, is_known)),
        })
    }

    fn see_target(
        &self,
        ino: Ino,
        so_far: &Sighted,
        within: Option<Result<Seen, Refusal>>,
    ) -> Result<Glimpse, Refusal> {
        if self.tree.peek(ino).is_none() && !so_far.is_loaded {
            return Ok(Glimpse::Load(Load::Node(ino)));
        }
        match (self.tree.target(ino), within) {
            (Some(target), _) => Ok(Glimpse::Seen(Seen::Target(target.to_vec()))),
            (None, Some(Ok(_))) => Err(Refusal::Invalid),
            (None, Some(Err(refusal))) => Err(refusal),
            (None, None) => Ok(Glimpse::Needs(Look::AttrAnew(ino))),
        }
    }

    fn see_xattrs(
        &self,
        ino: Ino,
        so_far: &mut Sighted,
        within: Option<Result<Seen, Refusal>>,
        now: Now,
    ) -> Result<Glimpse, Refusal> {
        match (so_far.answered, within) {
            (None, None) => return Ok(Glimpse::Needs(Look::Attr(ino))),
            (None, Some(seen)) => drop(seen?),
            (Some(Err(refusal)), _) if refusal != Refusal::Unreachable => return Err(refusal),
            _ => {}
        }
        let known = self.tree.xattrs(ino, now.time);
        let is_known = known != Known::Unknown;
        let is_enough = so_far.answered.is_some() || is_alone(now);
        match known.usable(is_enough) {
            Some(map) => Ok(Glimpse::Seen(Seen::Xattrs(map.clone()))),
            None if so_far.answered.is_some() => Err(Refusal::Unreachable),
            None => Ok(Glimpse::Query(Query { ask: Ask::Xattrs(ino), is_known })),
        }
    }

    /// Takes in what the index has.
    pub(super) fn noted_was(&mut self, call: &mut Running, load: Load, noted: Noted) {
        if let Some(looking) = call.so_far.looks.last_mut() {
            looking.so_far.is_loaded = true;
        }
        self.install_noted(load, noted);
    }

    /// Takes in what the index has, where nothing newer is known.
    pub fn install_noted(&mut self, load: Load, noted: Noted) {
        noted.nodes.into_iter().for_each(|note| self.tree.install_note(note));
        match load {
            Load::Name(Dentry { parent, name }) => {
                let meaning = noted.names.into_iter().next().map(|(_, meaning)| meaning);
                // A directory whose names are all noted has no others.
                let is_all = self.tree.is_listed_on_disk(parent);
                if let Some(meaning) = meaning.or(is_all.then_some(None)) {
                    self.tree.install_noted_name(parent, name, meaning);
                }
            }
            Load::Listing(directory) if self.tree.is_listed_on_disk(directory) => {
                for (name, meaning) in noted.names {
                    self.tree.install_noted_name(directory, name, meaning);
                }
                self.tree.install_noted_listing(directory);
            }
            _ => {}
        }
    }

    /// Takes in how a question to the server ended.
    pub(super) fn answered(&mut self, call: &mut Running, told: Result<Told, Refusal>, now: Now) {
        let Some(Looking { look, so_far }) = call.so_far.looks.last_mut() else { return };
        let ended = match look {
            Look::Attr(ino) | Look::AttrAnew(ino) => self.answered_attr(*ino, told, now),
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
                let Fact::Xattrs(map) = told.fact else { return Err(Refusal::Protocol) };
                self.tree.install_xattrs(*ino, map);
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
        told: Result<Told, Refusal>,
        now: Now,
    ) -> Option<Result<(), Refusal>> {
        let refusal = match told {
            Ok(Told { fact: Fact::Attr(node), promised, asked }) => {
                let as_of = self.tree.as_of(promised, [asked, now.time]);
                self.tree.install_node(node, &as_of);
                self.tree.promised(&as_of);
                return Some(Ok(()));
            }
            Ok(_) => Refusal::Protocol,
            Err(refusal) => refusal,
        };
        // What is pending or still in use here exists here.
        if refusal == Refusal::Stale && !self.is_open(ino) && !self.is_held(ino) {
            self.tree.forget(ino, now.time);
        }
        Some(Err(refusal))
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

    /// Forgets what is here of other data than the server's answers told of. Do it after what maps
    /// wrote before is logged.
    pub fn follow_moved(&mut self) -> Vec<Followed> {
        let moved = self.tree.take_moved();
        let follow = |moved: Moved| {
            let ino = moved.ino;
            let is_new = self.observe(ino, moved.version);
            let shows = is_new || moved.was_known && !self.is_ahead(ino);
            Followed { ino, is_new, shows }
        };
        moved.into_iter().map(follow).collect()
    }
}

/// A file of which the server has other data than were known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// The file.
    pub ino: Ino,
    /// What was here of its data is forgotten. Its container is another one.
    pub is_new: bool,
    /// The kernel may have pages of the old data.
    pub shows: bool,
}
