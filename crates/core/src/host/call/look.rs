//! Calls that look: attributes, names, listings, links, extended attributes.
//!
//! The cache answers at once if it may. Otherwise the index is looked at, and then the
//! server is asked. An answer of the server goes into the cache. It answers the call also where it
//! comes without a promise.
//!
//! ```text
//!   cache ─▶ Load ─▶ cache ─▶ Query ─▶ cache ─▶ Reply
//! ```

use std::time::Duration;

use super::paging::Paging;
use super::{Answer, Call, Next, Running, Step};
use crate::host::Host;
use crate::host::action::{Action, Ask, CallId, Load, Noted, Now, Query, Reach};
use crate::host::cache::{Known, XattrMap};
use crate::nouns::{Attr, Dentry, Ino, Name, Time};
use crate::refusal::Refusal;
use crate::wire::Compare;

/// So often a reply may be overtaken by a change before the caller is told to try again.
pub(super) const OVERTAKEN_MAX: u32 = 8;
/// An open that waits for a host that is away asks so often.
const HIDDEN_EVERY: Duration = Duration::from_secs(1);

/// The object of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// Attributes: [`Seen::Attr`].
    Attr(Ino),
    /// The server's attributes, unless this host is ahead of it: [`Seen::Attr`].
    AttrAnew(Ino),
    /// The same, for a program that opens the file: it waits until other hosts have sent what they
    /// changed of it. Refused with [`Refusal::Hidden`] if that does not come, as
    /// [the user wants](crate::host::Settings::hidden).
    AttrToOpen(Ino),
    /// The inode of a name: [`Seen::Name`].
    Name(Dentry),
    /// All names in a directory: [`Seen::Names`].
    Names(Ino),
    /// The target of a symbolic link: [`Seen::Target`].
    Target(Ino),
    /// The user's extended attributes: [`Seen::Xattrs`].
    Xattrs(Ino),
    /// Whether the server has the same bytes of two files: [`Seen::Same`].
    Same(Compare),
}

/// The result of a look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Attributes, as they are stored.
    Attr(Attr),
    /// Attributes of a name's inode. `None`: the name surely does not exist.
    Name(Option<Attr>),
    /// All names, in byte order.
    Names(Vec<(Name, Ino)>),
    /// The target of a link.
    Target(Vec<u8>),
    /// Extended attributes.
    Xattrs(XattrMap),
    /// The files have the same bytes.
    Same(bool),
}

/// A look that is not over.
#[derive(Debug)]
pub(super) struct Looking {
    pub(super) look: Look,
    pub(super) so_far: Sighted,
}

/// How far a look came.
#[derive(Debug, Default)]
pub(super) struct Sighted {
    /// When this attempt of it began.
    pub(super) since: Time,
    /// The index was read.
    pub(super) is_loaded: bool,
    /// How the question to the server ended.
    pub(super) answered: Option<Result<(), Refusal>>,
    /// When the question was put.
    pub(super) asked: Time,
    /// Answers that a change overtook.
    pub(super) overtaken: u32,
    /// The next question is put later: the answer was that a host is away.
    pub(super) is_put_off: bool,
    /// A listing was thought of instead of the name.
    pub(super) tried_listing: bool,
    /// It is being asked for, so much of it at most.
    pub(super) listing: Option<u32>,
    /// The inode of the name.
    pub(super) named: Option<Option<Ino>>,
    /// The name's inode, which another host removed, and which can still be read.
    pub(super) removed: Option<Attr>,
    /// How often it meant something else than before.
    pub(super) changes: u32,
    /// The pages of a listing.
    pub(super) paging: Paging,
    /// The files have the same bytes.
    pub(super) is_same: bool,
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
    /// A pause comes first.
    Pause,
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

    /// Looks at the cache only, without any action. So most looks need no call.
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
        if looks.first().is_some_and(|first| first.look != look) {
            // A change made here meanwhile makes another fact the next one.
            looks.clear();
        }
        // Most are over at once, and no list is made for those.
        let mut next = looks.is_empty().then(|| Looking::new(look, now));
        let mut within = None;
        while let Some(mut looking) = next.take().or_else(|| looks.pop()) {
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
                Ok(Glimpse::Pause) => {
                    call.step = Some(Step::Pause);
                    Action::Pause(id, HIDDEN_EVERY)
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
            Look::AttrAnew(ino) => self.see_attr_anew(Ask::Attr(*ino), *ino, so_far),
            Look::AttrToOpen(ino) => self.see_attr_anew(Ask::Open(*ino), *ino, so_far),
            Look::Name(at) => self.see_name(at, so_far, within, now),
            Look::Names(directory) => self.see_names(*directory, so_far, within, now),
            Look::Target(ino) => self.see_target(*ino, so_far, within),
            Look::Xattrs(ino) => self.see_xattrs(*ino, so_far, within, now),
            Look::Same(files) => match so_far.answered {
                None => Ok(Glimpse::Query(Query { ask: Ask::Same(*files), is_known: false })),
                Some(answered) => answered.map(|()| Glimpse::Seen(Seen::Same(so_far.is_same))),
            },
        }
    }

    fn see_attr(&self, ino: Ino, so_far: &mut Sighted, now: Now) -> Result<Glimpse, Refusal> {
        if so_far.answered.is_none() {
            let known = self.tree.attr(ino, now.time);
            if known == Known::Unknown && !so_far.is_loaded {
                return Ok(Glimpse::Load(Load::Node(ino)));
            }
            if let Some(attr) = known.usable(is_alone(now)) {
                return Ok(Glimpse::Seen(Seen::Attr(attr)));
            }
        }
        self.see_attr_anew(Ask::Attr(ino), ino, so_far)
    }

    fn see_attr_anew(&self, ask: Ask, ino: Ino, so_far: &mut Sighted) -> Result<Glimpse, Refusal> {
        if std::mem::take(&mut so_far.is_put_off) {
            return Ok(Glimpse::Pause);
        }
        let known = self.tree.peek(ino).copied().filter(|_| !self.tree.is_size_lost(ino));
        match (so_far.answered, known) {
            (None, known) => Ok(Glimpse::Query(Query { ask, is_known: known.is_some() })),
            (Some(Err(Refusal::Hidden)), _) => Err(Refusal::Hidden),
            // It cannot be asked.
            (Some(Err(_)), Some(_)) if ask == Ask::Open(ino) && self.tree.lacks_contents(ino) => {
                Err(Refusal::Hidden)
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
        // The answer to a name has the attributes of its inode.
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

    /// The inode of a name, or the action or look that comes first.
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

    /// Takes in notes that were read for a call.
    pub(super) fn noted_was(&mut self, call: &mut Running, load: Load, noted: Noted) {
        if let Some(looking) = call.so_far.looks.last_mut() {
            looking.so_far.is_loaded = true;
        }
        self.install_noted(load, noted);
    }
}
