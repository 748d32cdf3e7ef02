//! Facts that a call needs before it can decide: each may have to be asked for.
//!
//! A call looks for one fact at a time. The fact counts for this call only, because it may come
//! without a promise of the server.

use super::{Look, Running, Seen, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now};
use crate::host::cache::XattrMap;
use crate::nouns::{Attr, Dentry, Ino, Kind, Name};
use crate::refusal::Refusal;
use crate::wire::Compare;

/// Values by keys, in the order in which they came: so few that a search is no more than a look
/// at each.
#[derive(Debug)]
pub(in crate::host) struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Few<K, V> {
        Few(Vec::new())
    }
}

impl<K: PartialEq, V> Few<K, V> {
    fn insert(&mut self, key: K, value: V) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.0.push((key, value)),
        }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.0.iter()
    }
}

/// Facts that a call has looked for.
#[derive(Debug, Default)]
pub(in crate::host) struct Facts {
    pub(super) names: Few<Dentry, Option<Attr>>,
    attrs: Few<Ino, Attr>,
    listings: Few<Ino, Vec<(Name, Ino)>>,
    targets: Few<Ino, Vec<u8>>,
    xattrs: Few<Ino, XattrMap>,
    /// Whether the data of two files are the same. `None`: they have other versions by now.
    same: Option<(Compare, Option<bool>)>,
    pub(super) number: Option<Ino>,
}

impl Facts {
    /// Takes in the result of a look.
    fn learn(&mut self, look: Look, seen: Seen) {
        match (look, seen) {
            (Look::Name(at), Seen::Name(attr)) => self.names.insert(at, attr),
            (Look::Attr(ino), Seen::Attr(attr)) => self.attrs.insert(ino, attr),
            (Look::Names(ino), Seen::Names(names)) => self.listings.insert(ino, names),
            (Look::Target(ino), Seen::Target(target)) => self.targets.insert(ino, target),
            (Look::Xattrs(ino), Seen::Xattrs(map)) => self.xattrs.insert(ino, map),
            (Look::Same(files), Seen::Same(same)) => self.same = Some((files, Some(same))),
            (look, seen) => unreachable!("{seen:?} is not seen by {look:?}"),
        }
    }
}

/// Why a call cannot decide yet, or at all.
pub(in crate::host) enum Halt {
    /// This fact comes first.
    Look(Look),
    /// The number of a new inode comes first.
    Number,
    /// It is refused.
    Refused(Refusal),
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Halt {
        Halt::Refused(refusal)
    }
}

/// The facts of a call, each of which may have to be asked for.
#[derive(Clone, Copy)]
pub(in crate::host) struct Known<'a>(&'a Facts);

impl Known<'_> {
    pub(in crate::host) fn name(&self, at: &Dentry) -> Result<Option<Attr>, Halt> {
        self.0.names.get(at).copied().ok_or_else(|| Halt::Look(Look::Name(at.clone())))
    }

    pub(super) fn existing(&self, at: &Dentry) -> Result<Attr, Halt> {
        Ok(self.name(at)?.ok_or(Refusal::NotFound)?)
    }

    pub(super) fn free(&self, at: &Dentry) -> Result<(), Halt> {
        match self.name(at)? {
            Some(_) => Err(Refusal::Exists.into()),
            None => Ok(()),
        }
    }

    pub(super) fn attr(&self, ino: Ino) -> Result<Attr, Halt> {
        self.0.attrs.get(&ino).copied().ok_or(Halt::Look(Look::Attr(ino)))
    }

    pub(super) fn listing(&self, directory: Ino) -> Result<&[(Name, Ino)], Halt> {
        let listing = self.0.listings.get(&directory).map(Vec::as_slice);
        listing.ok_or(Halt::Look(Look::Names(directory)))
    }

    pub(super) fn empty(&self, directory: Ino) -> Result<(), Halt> {
        match self.listing(directory)?.is_empty() {
            true => Ok(()),
            false => Err(Refusal::NotEmpty.into()),
        }
    }

    pub(in crate::host) fn target(&self, ino: Ino) -> Result<&[u8], Halt> {
        let target = self.0.targets.get(&ino).map(Vec::as_slice);
        target.ok_or(Halt::Look(Look::Target(ino)))
    }

    pub(in crate::host) fn xattrs(&self, ino: Ino) -> Result<&XattrMap, Halt> {
        self.0.xattrs.get(&ino).ok_or(Halt::Look(Look::Xattrs(ino)))
    }

    /// Whether two files have the same bytes. `None`: one has another version by now.
    pub(in crate::host) fn same(&self, files: &Compare) -> Result<Option<bool>, Halt> {
        let same = self.0.same.as_ref().filter(|(of, _)| of == files);
        same.map(|(_, same)| *same).ok_or(Halt::Look(Look::Same(*files)))
    }

    pub(super) fn number(&self) -> Result<Ino, Halt> {
        self.0.number.ok_or(Halt::Number)
    }

    pub(super) fn replaceable(&self, source: &Attr, target: &Attr) -> Result<(), Halt> {
        match (source.kind == Kind::Directory, target.kind == Kind::Directory) {
            (true, false) => Err(Refusal::NotDirectory.into()),
            (false, true) => Err(Refusal::IsDirectory.into()),
            (true, true) => self.empty(target.ino),
            (false, false) => Ok(()),
        }
    }
}

impl Host {
    /// Has a call decide, out of the facts that it asks for. `None`: one of them is under way.
    pub(super) fn with_facts<R>(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
        decide: impl Fn(&Host, Known<'_>) -> Result<R, Halt>,
    ) -> Result<Option<R>, Refusal> {
        loop {
            let look = match decide(self, Known(&call.so_far.facts)) {
                Ok(decision) => {
                    // It may do without the fact that was asked for.
                    call.so_far.looks.clear();
                    return Ok(Some(decision));
                }
                Err(Halt::Refused(refusal)) => return Err(refusal),
                Err(Halt::Number) => {
                    call.so_far.has_waited = true;
                    call.step = Some(Step::Number);
                    self.act(Action::Number(id));
                    return Ok(None);
                }
                Err(Halt::Look(look)) => look,
            };
            match (self.look(id, call, look.clone(), now), look) {
                (Ok(Some(seen)), look) => call.so_far.facts.learn(look, seen),
                (Ok(None), _) => {
                    call.so_far.has_waited = true;
                    return Ok(None);
                }
                (Err(Refusal::Changed | Refusal::Stale), Look::Same(files)) => {
                    call.so_far.facts.same = Some((files, None));
                }
                (Err(refusal), _) => return Err(refusal),
            }
        }
    }
}
