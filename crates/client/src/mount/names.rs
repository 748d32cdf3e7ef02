//! Looking: attributes, names, listings, links, space.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use segue_core::host::cache::{AsOf, Known, Pages};
use segue_core::nouns::{Attr, Class, Ino, Kind, Name, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Looked, PAGE_MAX, Page, Space};
use segue_rpc::Rpc;

use crate::remote::Remote;

use super::directories::ListedName;
use super::metrics::Asked;
use super::notes::known as noted;
use super::{DirectoryHandle, Mount, Reading, idle, lock};

/// Lookups are counted for so long.
const STORM_WINDOW: Duration = Duration::from_secs(1);
/// So many in one directory meanwhile, and a long listing is fetched instead.
const STORM: u32 = 4;
/// The same where the listing was short when it was seen last.
const STORM_IN_SMALL: u32 = 1;
/// A listing of so many names costs about as much as one name.
const SMALL: u32 = 64;
/// How long a directory is known to be longer than a listing that was fetched for a lookup.
const BIG_FOR: Duration = Duration::from_secs(60);

/// So often a reply may be overtaken by a change before the caller is told to try again.
const OVERTAKEN_MAX: u32 = 8;

/// Lookups that went to the server for one directory.
#[derive(Debug)]
pub(super) struct Storm {
    /// When the window began that `lookups` counts; what was waited for answers in it does not
    /// count, or there would be no storm on a slow link.
    since: Time,
    lookups: u32,
    /// Its listing has more names than this, as of lately.
    longer_than: u32,
}

impl Mount {
    /// Attributes of `ino`, asked for if what is known is stale.
    pub(crate) async fn getattr(&self, ino: Ino) -> Result<Attr, Refusal> {
        let mut known = self.core().tree.attr(ino, self.now());
        if known == Known::Unknown {
            self.load_node(ino);
            known = self.core().tree.attr(ino, self.now());
        }
        let usable = known.usable(self.remote.is_silent());
        self.metrics.looked_up(Asked::Attributes, usable.is_some());
        let attr = match usable {
            Some(attr) => attr,
            None => self.ask_attr(ino).await?,
        };
        Ok(self.shown(attr))
    }

    /// The server, for a question that waits for it only as long as the answer is worth it.
    pub(super) fn refreshing(&self, is_known: bool) -> Remote {
        if is_known { self.remote.to_refresh() } else { self.remote.clone() }
    }

    /// Attributes of `ino` from the server, unless this host is ahead of it.
    pub(super) async fn ask_attr(&self, ino: Ino) -> Result<Attr, Refusal> {
        let is_known = self.core().tree.peek(ino).is_some();
        // From here on it may change: the answer is as old as the question.
        let asked = self.now();
        match self.refreshing(is_known).getattr(ino).await {
            Ok((node, promised)) => {
                let mut core = self.core();
                let as_of = core.tree.as_of(promised, [asked, self.now()]);
                core.tree.install_node(node, &as_of);
                core.tree.promised(&as_of);
                drop(core);
                self.follow_moved();
                self.core().tree.peek(ino).copied().ok_or(Refusal::Stale)
            }
            Err(Refusal::Unreachable) => {
                self.core().tree.peek(ino).copied().ok_or(Refusal::Unreachable)
            }
            Err(refusal) => {
                let mut core = self.core();
                // What is pending or still in use here exists here.
                if refusal == Refusal::Stale && !core.is_open(ino) && !core.is_held(ino) {
                    core.tree.forget(ino, self.now());
                }
                core.tree.peek(ino).copied().ok_or(refusal)
            }
        }
    }

    /// What `name` in `parent` is; `None`: surely nothing.
    pub(crate) async fn lookup(&self, parent: Ino, name: &Name) -> Result<Option<Attr>, Refusal> {
        let mut removed = Err(Refusal::Stale);
        for _ in 0..OVERTAKEN_MAX {
            let (silent, since) = (self.remote.is_silent(), self.now());
            let mut known = self.core().tree.name(parent, name, self.now());
            if known == Known::Unknown {
                self.load_name(parent, name);
                known = self.core().tree.name(parent, name, self.now());
            }
            let usable = known.usable(silent);
            self.metrics.looked_up(Asked::Name, usable.is_some());
            let ino = match usable {
                Some(ino) => ino,
                None => self.ask_name(parent, name).await?,
            };
            let Some(ino) = ino else { return Ok(None) };
            // Who asks for a name is told what it names.
            let told = self.core().tree.attr_since(ino, [since, self.now()]);
            if let Some(attr) = told {
                return Ok(Some(self.shown(attr)));
            }
            match self.getattr(ino).await {
                // It went while it was asked for: the name means something else by now.
                Err(Refusal::Stale) => {}
                // The same, and it can be read still.
                Ok(attr) if self.core().forget_removed(ino, self.now()) => removed = Ok(Some(attr)),
                found => return found.map(Some),
            }
        }
        removed
    }

    /// The directory that `directory` was last seen in; itself, if that is not known.
    pub(crate) fn parent(&self, directory: Ino) -> Ino {
        self.core().tree.parent(directory).unwrap_or(directory)
    }

    async fn ask_name(&self, parent: Ino, name: &Name) -> Result<Option<Ino>, Refusal> {
        let known = self.core().tree.name(parent, name, self.now()).usable(true);
        let remote = self.refreshing(known.is_some());
        if let Some(limit) = self.listing_instead(parent) {
            let asked = self.now();
            let known = self.core().tree.listed_through(parent);
            let rpc = Rpc::new(Class::Fetch);
            let answer = remote.page(&rpc, parent, (None, known), limit).await;
            self.waited(parent, asked);
            // Promised or not, all names are the answer to this question.
            let is_answered = answer.is_ok_and(|(page, promised)| {
                let as_of = self.core().tree.as_of(promised, [asked, self.now()]);
                let is_whole = !page.more;
                self.install_page(page, limit, &as_of) && is_whole
            });
            let known = self.core().tree.name(parent, name, self.now());
            if let Some(ino) = known.usable(is_answered) {
                return Ok(ino);
            }
        }
        for attempt in 1..=OVERTAKEN_MAX {
            let asked = self.now();
            let answer = remote.lookup(parent, name).await;
            self.waited(parent, asked);
            match answer {
                Ok((looked, promised)) => {
                    let as_of = self.core().tree.as_of(promised, [asked, self.now()]);
                    let node = looked.node.clone();
                    let ino = self.install_looked(name, looked, &as_of)?;
                    if let Some(ino) = ino {
                        return Ok(ino);
                    }
                    // The directory changes faster than it can be asked: the answer was true when
                    // it was given.
                    if attempt == OVERTAKEN_MAX && !self.core().tree.is_pending(parent) {
                        let ino = node.as_ref().map(|node| node.attr.ino);
                        let mut core = self.core();
                        node.into_iter().for_each(|node| core.tree.install_node(node, &as_of));
                        drop(core);
                        self.follow_moved();
                        return Ok(ino);
                    }
                }
                Err(Refusal::Unreachable) => {
                    let known = self.core().tree.name(parent, name, self.now());
                    return known.usable(true).ok_or(Refusal::Unreachable);
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Refusal::Changed)
    }

    /// What the name means now, or `None` if the reply had been overtaken.
    fn install_looked(
        &self,
        name: &Name,
        looked: Looked,
        as_of: &AsOf,
    ) -> Result<Option<Option<Ino>>, Refusal> {
        let Looked { parent, node, .. } = looked;
        let known = {
            let mut core = self.core();
            core.shrink(self.now());
            if !core.tree.install_name(parent, name.clone(), node, as_of) {
                return Ok(None);
            }
            core.tree.promised(as_of);
            core.tree.name(parent.ino, name, self.now())
        };
        self.follow_moved();
        Ok(known.usable(true))
    }

    /// How much of the listing of `parent` to fetch instead of one name: a small directory is
    /// learnt whole with its first name, which then needs no network; a larger one when names
    /// of it are asked for again and again.
    fn listing_instead(&self, parent: Ino) -> Option<u32> {
        let now = self.now();
        let mut storms = lock(&self.lookups);
        storms.retain(|_, storm| now.since(storm.since) < BIG_FOR);
        let calm = Storm { since: now, lookups: 0, longer_than: 0 };
        let storm = storms.entry(parent).or_insert(calm);
        if now.since(storm.since) > STORM_WINDOW {
            storm.since = now;
            // A directory that is looked at again and again stays one.
            storm.lookups /= 2;
        }
        storm.lookups += 1;
        let (is_listed, is_small) = {
            let core = self.core();
            (core.tree.has_listing(parent), core.tree.is_listed_within(parent, SMALL as usize))
        };
        let storming = storm.lookups > if is_small { STORM_IN_SMALL } else { STORM };
        if !storming && is_listed {
            return None;
        }
        let limit = if storming { PAGE_MAX } else { SMALL };
        (storm.longer_than < limit).then_some(limit)
    }

    /// Somebody waited for an answer about a name in `parent` that was asked for then.
    fn waited(&self, parent: Ino, asked: Time) {
        let waited = self.now().since(asked);
        if let Some(storm) = lock(&self.lookups).get_mut(&parent) {
            storm.since = Time(storm.since.0 + waited);
        }
    }

    /// Takes in what may be a whole listing, or the first page of a long one. False if it had been
    /// overtaken.
    fn install_page(&self, page: Page, limit: u32, as_of: &AsOf) -> bool {
        if !page.more {
            return self.install_listing(page, as_of);
        }
        if let Some(storm) = lock(&self.lookups).get_mut(&page.directory.ino) {
            storm.longer_than = limit;
        }
        let mut core = self.core();
        for (name, node) in page.entries {
            if !core.tree.install_name(page.directory, name, Some(node), as_of) {
                return false;
            }
        }
        core.tree.promised(as_of);
        drop(core);
        self.follow_moved();
        true
    }

    /// False if the listing had been overtaken.
    fn install_listing(&self, page: Page, as_of: &AsOf) -> bool {
        {
            let mut core = self.core();
            core.shrink(self.now());
            if !core.tree.install_page(page, as_of) {
                return false;
            }
            core.tree.promised(as_of);
        }
        self.follow_moved();
        true
    }

    /// Everything in `directory`, in byte order of names, for process `pid`; 0: for none.
    pub(super) async fn list(&self, directory: Ino, pid: u32) -> Result<Vec<(Name, Ino)>, Refusal> {
        if self.core().is_removed(directory) {
            // It was empty when it lost its name.
            return Ok(Vec::new());
        }
        let mut known = self.core().tree.listing(directory, self.now());
        if known == Known::Unknown {
            self.load_listing(directory);
            known = self.core().tree.listing(directory, self.now());
        }
        let is_known = !matches!(known, Known::Unknown);
        if let Some(names) = known.usable(self.remote.is_silent()) {
            return Ok(names);
        }
        let rpc = Rpc::new(idle::class_of(pid));
        let remote = self.refreshing(is_known);
        match idle::list(&rpc, self.ask_listing(&remote, &rpc, directory)).await {
            Ok(()) | Err(Refusal::Unreachable) => {}
            Err(refusal) => return Err(refusal),
        }
        let known = self.core().tree.listing(directory, self.now());
        known.usable(true).ok_or(Refusal::Unreachable)
    }

    /// Fetches what changed in `directory` since all its names were told, or else all pages, of one
    /// state of the directory if it holds still for long enough.
    async fn ask_listing(&self, remote: &Remote, rpc: &Rpc, directory: Ino) -> Result<(), Refusal> {
        for attempt in 0..OVERTAKEN_MAX {
            let mut pages = Pages::default();
            let asked = self.now();
            let since = self.core().tree.listed_through(directory).filter(|_| attempt == 0);
            let first = remote.page(rpc, directory, (None, since), PAGE_MAX).await?;
            let (mut page, mut promised) = first;
            let (change, commit, gone) = (page.directory.change, page.commit, page.gone.take());
            loop {
                let after = pages.add(&mut page)?;
                let patient = attempt + 1 < OVERTAKEN_MAX;
                if !page.more || (patient && page.directory.change != change) {
                    break;
                }
                let (next, more) = remote.page(rpc, directory, (after, None), PAGE_MAX).await?;
                page = next;
                promised = promised.map(|promised| promised.and(more));
            }
            let one_state = !page.more && page.directory.change == change;
            let last_try = attempt + 1 == OVERTAKEN_MAX;
            if one_state || last_try {
                let entries = pages.into_entries();
                let promised = promised.filter(|_| one_state);
                let as_of = self.core().tree.as_of(promised, [asked, self.now()]);
                // All of it is at least as new as the first page.
                if self.install_listing(Page { entries, commit, gone, ..page }, &as_of) {
                    return Ok(());
                }
            }
        }
        Err(Refusal::Changed)
    }

    /// Target of symbolic link `ino`.
    pub(crate) async fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Refusal> {
        self.load_node(ino);
        if let Some(target) = self.core().tree.target(ino) {
            return Ok(target.to_vec());
        }
        self.ask_attr(ino).await?;
        self.core().tree.target(ino).map(<[u8]>::to_vec).ok_or(Refusal::Invalid)
    }

    /// What `ino` is, as far as is known.
    pub(crate) fn kind(&self, ino: Ino) -> Kind {
        self.core().tree.peek(ino).map_or(Kind::File, |attr| attr.kind)
    }

    /// Attributes of what a listing of `directory` names, which is being read `since` then, as far
    /// as they need not be asked for.
    pub(crate) fn listed(
        &self,
        directory: Ino,
        names: &[ListedName],
        since: Time,
    ) -> Vec<Option<(Attr, Duration)>> {
        let inodes = names.iter().map(|listed| listed.ino);
        let mut listed = self.core().tree.listed(directory, inodes, [since, self.now()]);
        for (attr, _) in listed.iter_mut().flatten() {
            *attr = self.shown(*attr);
        }
        listed
    }

    /// True if the kernel was told all that `directory` names, and may use it still.
    pub(crate) fn is_told(&self, directory: Ino) -> bool {
        self.core().tree.is_told(directory, self.now())
    }

    /// The kernel is told all that `directory` names.
    pub(crate) fn tell(&self, directory: Ino) {
        self.core().tree.tell(directory, self.now());
    }

    /// Opens a directory for reading, by process `pid`.
    pub(crate) fn open_directory(&self, ino: Ino, pid: u32) -> u64 {
        lock(&self.directories).add(DirectoryHandle { ino, pid, names: Mutex::new(None) })
    }

    /// The open directory with that number.
    pub(crate) fn directory(&self, handle: u64) -> Option<Arc<DirectoryHandle>> {
        lock(&self.directories).get(handle)
    }

    /// What an open directory lists, whose first name has position `first`; `anew` when its reader
    /// starts over.
    pub(crate) async fn directory_names(
        &self,
        directory: &DirectoryHandle,
        first: u64,
        anew: bool,
    ) -> Result<Reading, Refusal> {
        let read = lock(&directory.names).clone();
        match read {
            Some(reading) if !anew => Ok(reading),
            read => {
                let since = self.now();
                let found = self.list(directory.ino, directory.pid).await?;
                let read = read.unwrap_or_else(|| Reading::new(first));
                let reading = read.read_anew(found, since);
                *lock(&directory.names) = Some(reading.clone());
                Ok(reading)
            }
        }
    }

    /// The directory is closed.
    pub(crate) fn close_directory(&self, handle: u64) {
        lock(&self.directories).remove(handle);
    }

    /// Space of what `ino` counts against. Without a connection, and over one that is silent, these
    /// are at once the last figures that the server told.
    pub(crate) async fn space(&self, ino: Ino) -> Result<Space, Refusal> {
        let quota = self.core().tree.peek(ino).and_then(|attr| attr.quota);
        let known = {
            let known = lock(&self.last_space);
            known.get(&quota).or_else(|| known.get(&None)).copied()
        };
        if self.remote.is_silent()
            && let Some(known) = known
        {
            return Ok(known);
        }
        let remote = match known {
            Some(_) => self.remote.to_refresh(),
            None => self.remote.clone(),
        };
        match (remote.space(quota.unwrap_or(Ino::ROOT)).await, known) {
            (Ok(space), _) => {
                self.note_space(quota, space);
                Ok(space)
            }
            (Err(Refusal::Unreachable), Some(known)) => Ok(known),
            (Err(refusal), _) => Err(refusal),
        }
    }

    /// Notes the space of `quota`, or of the volume, also for the next process.
    pub(super) fn note_space(&self, quota: Option<Ino>, space: Space) {
        if lock(&self.last_space).insert(quota, space) != Some(space) {
            noted("index.db", self.index.save_space(quota, &space));
        }
    }
}
