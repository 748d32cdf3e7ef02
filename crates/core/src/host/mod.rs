//! The client's core: owns the cached tree, the files' data states and the queue of changes,
//! and routes between them.
//!
//! Every change goes through three steps: a `draft_*` makes its log entry and changes nothing,
//! the shell writes the entry to the log, [`Host::admit`] makes it part of this host's
//! view. So what cannot be logged never happened. When the server's outcome is known,
//! [`Host::settle`] takes the change out again.

pub mod action;
pub mod cache;
pub mod call;
pub mod conflict;
mod invariants;
pub mod log;
mod notes;
mod parts;
mod planted;
mod recover;
pub mod send;
mod told;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use self::action::{Action, CallId};
use self::cache::{Scrap, Storms};
use self::call::{Announcing, FreeSpace, Handles, Keeping, Owner, Room, Running, SharingCounts};
use self::invariants::Turn;
use self::log::{Bound, Pending};
use self::send::{BATCH_MAX, BatchSizes, OFFER_FROM, ServerDisk, Unsealed, UploadAhead, Waiters};
use crate::host::cache::{FileData, FileNote, KeptListings, Nodes, Tree};
use crate::host::log::Queue;
use crate::namespace::mode_after_write;
use crate::nouns::{
    Attr, Caller, ContainerId, INLINE_MAX, Ino, Kind, Name, RangeSet, Record, Role, SetAttr, Time,
    Touched, Version,
};
use crate::persist::Lm;
use crate::sharing::Hidden;
use crate::wire::Compare;

use notes::NotedLast;
pub use notes::Notes;
pub use planted::Fault;
pub use recover::{LeftDisk, LeftLog};

/// State of one mount.
#[derive(Debug)]
pub struct Host {
    /// Names and attributes.
    tree: Tree,
    /// Files with data here or handles open.
    files: BTreeMap<Ino, FileData>,
    /// What the server lacks.
    queue: Queue,
    /// What quotas have left.
    room: Room,
    /// What the user chose.
    settings: Settings,
    /// Open files.
    handles: Handles,
    /// The kernel's numbers of them, and the files that it reads by itself.
    nodes: Nodes,
    /// Listings that the kernel may have.
    listings: KeptListings,
    /// Calls that wait for outcomes.
    waiters: Waiters,
    /// Stores whose chunks the server has before their turn.
    ahead: UploadAhead,
    batch_sizes: BatchSizes,
    /// Whether the server's disk takes chunks.
    server_disk: ServerDisk,
    /// Stores that the server wants whole.
    whole: BTreeSet<u64>,
    /// Data that are not sealed, by file.
    unsealed: BTreeMap<Ino, Unsealed>,
    pending: Pending,
    space: FreeSpace,
    storms: Storms,
    keeping: Keeping,
    announcing: Announcing,
    sharing: SharingCounts,
    /// Duplicates that the server has compared, and that are different.
    different: BTreeMap<Ino, Compare>,
    /// Calls that are not answered.
    calls: BTreeMap<CallId, Box<Running>>,
    /// What the shell has to do.
    actions: VecDeque<Action>,
    /// Grows whenever something was settled or fetched.
    progress: u64,
    planted: Option<Fault>,
    /// By process session, of which those that cannot be told are one: what its syncs covered, and
    /// is not settled.
    covered: BTreeMap<u32, BTreeSet<u64>>,
    /// Sessions whose next change follows everything before it, and what they do later that one.
    covered_all: BTreeSet<u32>,
    /// The sessions that wrote to files since they were sealed.
    writers: BTreeMap<Ino, BTreeSet<u32>>,
    open: BTreeMap<Ino, u32>,
    /// Files that were used and whose use is not noted.
    used: BTreeSet<Ino>,
    /// Bytes of changes in the queue that are in files of their own. An empty set stands for bytes
    /// that may be there and are not logged.
    preserved: BTreeMap<u64, RangeSet>,
    noted_last: NotedLast,
    /// Stores in the queue of which an earlier process left no data.
    lost_stores: BTreeSet<u64>,
    /// What nobody needs any more, until the shell takes it.
    scrap: BTreeSet<Scrap>,
    /// What the shell is removing of it.
    going: BTreeSet<Scrap>,
    /// Inodes that the index is being told to forget.
    forgetting: BTreeSet<Ino>,
    next_container: u64,
    /// Inodes that lost their last name here and that the kernel still knows: somebody may be
    /// about to open one, or have it as working directory. What bounds them is what bounds the
    /// kernel: its memory.
    held: BTreeSet<Ino>,
    next_seq: u64,
    seq_reserved: u64,
    /// What is checked next.
    turn: Turn,
}

/// What the user of a mount chose, and who that is.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How soon changes must be with the server where neither file nor directory says so.
    pub lm: Lm,
    /// The most bytes that may wait for the server.
    pub bound: Bound,
    /// The user.
    pub owner: Owner,
    /// Every change is refused.
    pub is_read_only: bool,
    /// A file that is wholly here and has fewer bytes is copied here, not by the server.
    pub clone_min: u64,
    /// The most bytes of a batch.
    pub batch_max: u64,
    /// The most bytes of a change that go inside its record.
    pub inline_max: u64,
    /// From so many bytes on the server is asked which chunks it has.
    pub offer_from: u64,
    /// A sync waits until the server has what it covers.
    pub syncs_to_server: bool,
    /// A call waits so long for an unreachable server.
    pub grace: Duration,
    /// What an open does where a host is away that has changes of the file.
    pub hidden: Hidden,
    /// A promise of the server counts for so long after it came: where promises are to expire, as
    /// for the comparison with [MFS 3.4]. None: as long as the session.
    pub promises: Option<Duration>,
    /// The kernel takes containers that it may read by itself.
    pub backs: bool,
    /// Smaller files are read so fast through the kernel's pages that telling the kernel of their
    /// containers would take longer (docs/decisions/0016-passthrough.md).
    pub backed_min: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        let owner = Owner { uid: 0, gid: 0, role: Role::Host };
        let (lm, bound, is_read_only) = (Lm::default(), Bound(u64::MAX), false);
        Settings {
            lm,
            bound,
            owner,
            is_read_only,
            clone_min: CLONE_MIN,
            batch_max: BATCH_MAX,
            inline_max: INLINE_MAX as u64,
            offer_from: OFFER_FROM,
            syncs_to_server: false,
            grace: Duration::ZERO,
            hidden: Hidden::default(),
            promises: None,
            backs: false,
            backed_min: BACKED_MIN,
        }
    }
}

/// Shorter files are copied here sooner than a server answers.
const CLONE_MIN: u64 = 1 << 20;
/// Measured in docs/decisions/0016-passthrough.md.
const BACKED_MIN: u64 = 1 << 20;

/// Bytes to copy from a place in one file to a place in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// First byte in the one.
    pub from: u64,
    /// Where it goes in the other.
    pub to: u64,
    /// How many.
    pub len: u64,
}

/// How the set-id bits of a file go that was written by somebody who may not keep them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetIds {
    /// The server takes them when the data are stored in their writer's name.
    GoWithTheStore,
    /// Root, in whose name the data are stored, keeps them: they have to be taken.
    GoByChmod(SetAttr),
}

/// What a settled change asks the shell to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The container of this file holds another version than the server's: replace it, and
    /// have the kernel drop its pages.
    Replace(Ino),
    /// Our version now stands beside the server's.
    Conflict {
        /// The file.
        ino: Ino,
        /// Directory of the copy.
        parent: Ino,
        /// Name of the copy.
        name: Name,
    },
    /// Nobody can reach this file any more, and the server need not keep it.
    Release(Ino),
    /// The change was refused: keep it for the user.
    Refused {
        /// Why.
        refusal: crate::refusal::Refusal,
    },
}

impl Host {
    /// An empty core whose changes are numbered from `next_seq`.
    pub fn new(node_limit: usize, next_seq: u64) -> Host {
        Host {
            tree: Tree::new(node_limit),
            files: BTreeMap::new(),
            queue: Queue::default(),
            room: Room::default(),
            settings: Settings::default(),
            handles: Handles::default(),
            nodes: Nodes::default(),
            listings: KeptListings::default(),
            waiters: Waiters::default(),
            ahead: UploadAhead::default(),
            batch_sizes: BatchSizes::default(),
            server_disk: ServerDisk::default(),
            whole: BTreeSet::new(),
            unsealed: BTreeMap::new(),
            pending: Pending::default(),
            space: FreeSpace::default(),
            storms: Storms::default(),
            keeping: Keeping::default(),
            announcing: Announcing::default(),
            sharing: SharingCounts::default(),
            different: BTreeMap::new(),
            calls: BTreeMap::new(),
            actions: VecDeque::new(),
            progress: 0,
            planted: None,
            covered: BTreeMap::new(),
            covered_all: BTreeSet::new(),
            writers: BTreeMap::new(),
            open: BTreeMap::new(),
            used: BTreeSet::new(),
            preserved: BTreeMap::new(),
            noted_last: NotedLast::default(),
            lost_stores: BTreeSet::new(),
            scrap: BTreeSet::new(),
            going: BTreeSet::new(),
            forgetting: BTreeSet::new(),
            next_container: 1,
            held: BTreeSet::new(),
            next_seq,
            seq_reserved: next_seq,
            turn: Turn::default(),
        }
    }

    /// Numbers below `through` may be used: they are durably reserved.
    pub fn reserve_seqs(&mut self, through: u64) {
        self.seq_reserved = self.seq_reserved.max(through);
    }

    /// How many numbers are left before more must be reserved.
    pub fn seqs_left(&self) -> u64 {
        self.seq_reserved - self.next_seq
    }

    /// All changes below this seq are settled. The server needs to keep no outcome of them once
    /// that is durable here. While a store is pending that may be outdated, the server keeps all
    /// outcomes: they tell whether a lost change of this host came later.
    pub fn acked_below(&self) -> u64 {
        if self.queue.may_have_outdated() {
            return 0;
        }
        self.queue.oldest_seq().unwrap_or(self.next_seq)
    }

    /// The seq that the next change gets.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// True if something is known of `ino`. A host whose cache was copied may have the number of an
    /// inode that the other copy made: it gives that to no inode of its own.
    pub fn is_known(&self, ino: Ino) -> bool {
        self.tree.peek(ino).is_some() || self.files.contains_key(&ino)
    }

    /// A handle of `ino` was opened.
    pub(in crate::host) fn opened(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
        self.used.insert(ino);
    }

    /// A handle of `ino` was closed; true if it was the last.
    pub(in crate::host) fn closed(&mut self, ino: Ino) -> bool {
        let Some(count) = self.open.get_mut(&ino) else { return false };
        *count -= 1;
        if *count == 0 {
            self.open.remove(&ino);
            self.used.insert(ino);
            if self.tree.is_orphan(ino) {
                self.drop_dirty(ino);
            }
            if self.tree.is_pending(ino) {
                // What was kept back while it was open is announced.
                self.tree.stir(ino);
            }
            return true;
        }
        false
    }

    /// True if the server may let go of `ino`: no name of it is left, nobody has it open here, and
    /// what is to be stored of it is queued.
    pub fn is_to_release(&self, ino: Ino) -> bool {
        let is_nameless = self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0);
        let is_dirty = self.files.get(&ino).is_some_and(FileData::has_dirty);
        is_nameless && !is_dirty && !self.is_open(ino)
    }

    /// True if somebody has `ino` open, which changed, and the server does not tell what becomes of
    /// it: it is to be asked for again. What is left of a removed file does not change.
    pub fn is_to_follow(&self, ino: Ino, now: Time) -> bool {
        self.is_open(ino) && !self.tree.is_promised(ino, now) && !self.is_removed_elsewhere(ino)
    }

    /// True if another host removed the last name of `ino`, as far as this host can tell.
    pub fn is_removed_elsewhere(&self, ino: Ino) -> bool {
        let is_nameless = self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0);
        let is_ours = self.tree.is_pending(ino) || self.tree.is_orphan(ino) || self.is_held(ino);
        is_nameless && !is_ours
    }

    /// Forgets `ino` if another host removed it and nobody has it open: its names mean something
    /// else by now. True if it did.
    pub(in crate::host) fn forget_removed(&mut self, ino: Ino, now: Time) -> bool {
        let is_to_go = self.is_removed_elsewhere(ino) && !self.is_open(ino);
        if is_to_go {
            self.tree.forget(ino, now);
        }
        is_to_go
    }

    /// Files that are open here and removed elsewhere, and of which the server has data that are
    /// not here: it keeps them for as long as it is asked. At most `limit`.
    pub(in crate::host) fn to_keep(&self, limit: usize) -> Vec<Ino> {
        let is_to_keep = |ino: &Ino| {
            let size = self.tree.peek(*ino).map_or(0, |attr| attr.size);
            let is_here = self.files.get(ino).is_some_and(|file| file.is_valid(0..size, size));
            !is_here && self.is_removed_elsewhere(*ino)
        };
        self.open.keys().copied().filter(is_to_keep).take(limit).collect()
    }

    /// True for a file that is only there because it is open here: what is written to it needs
    /// to go nowhere. One that is not open and is changed is changed by a name.
    ///
    /// Only the server can say that this host removed the last name. That it was the last one
    /// known here proves nothing: another host may have moved it, or made a further one, before
    /// the server hears of the removal. What is written until then is logged and stored.
    fn is_nameless(&self, ino: Ino) -> bool {
        self.is_open(ino) && self.tree.is_orphan(ino)
    }

    /// What was written to a file that nobody can reach any more goes nowhere.
    fn drop_dirty(&mut self, ino: Ino) {
        self.room.dropped(ino);
        self.writers.remove(&ino);
        if self.files.get_mut(&ino).is_some_and(FileData::drop_dirty) {
            self.tree.undo(&Touched { inodes: vec![ino], names: Vec::new() });
        }
    }

    /// True if some handle of `ino` is open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.open.contains_key(&ino)
    }

    /// True if the kernel may still ask about `ino`, which lost its last name here: what is
    /// known of it stays.
    pub fn is_held(&self, ino: Ino) -> bool {
        self.held.contains(&ino)
    }

    /// True if the last name of `ino` was removed here, as far as this host can tell.
    pub fn is_removed(&self, ino: Ino) -> bool {
        self.is_held(ino) && self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0)
    }

    /// True for a file that was removed here while nobody had it open: who opens it now looked
    /// its name up before.
    pub fn is_closed_for_good(&self, ino: Ino) -> bool {
        self.is_removed(ino) && !self.is_open(ino) && !self.tree.is_orphan(ino)
    }

    /// The kernel has let go of `ino`, or never knew it.
    pub fn let_go(&mut self, ino: Ino) -> bool {
        self.held.remove(&ino)
    }

    /// True if nobody can reach `ino` any more, so that what is here of it may go.
    pub fn is_gone(&self, ino: Ino) -> bool {
        self.is_out_of_reach(ino) && !self.is_held(ino) && !self.tree.is_pending(ino)
    }

    /// True if it has no name, as far as this host knows, and nobody has it open.
    fn is_out_of_reach(&self, ino: Ino) -> bool {
        let nameless = self.tree.peek(ino).is_some_and(|attr| attr.nlink == 0);
        nameless && !self.is_open(ino)
    }

    /// The data state of `ino`, made on first use from its attributes.
    pub(in crate::host) fn file(&mut self, ino: Ino) -> Option<&mut FileData> {
        if !self.files.contains_key(&ino) {
            let version = self.tree.peek(ino)?.data_version;
            let container = self.fresh_container();
            self.files.insert(ino, FileData::new(version, container));
        }
        self.files.get_mut(&ino)
    }

    /// How the set-id bits of `ino` go, if it has any; `opener` is in whose name it is stored.
    pub fn set_ids_after_write(&self, ino: Ino, opener: &Caller) -> Option<SetIds> {
        let mode = self.tree.peek(ino)?.mode;
        let after = mode_after_write(mode);
        let go = match opener.uid {
            0 => SetIds::GoByChmod(SetAttr { mode: Some(after), ..SetAttr::default() }),
            _ => SetIds::GoWithTheStore,
        };
        (after != mode).then_some(go)
    }

    /// The files that must be sealed before `record` is logged. One that loses a name, perhaps the
    /// last, and is not kept by the server: stored afterwards, what was changed would find no file
    /// and become a conflict copy of what was removed here on purpose. And one that gets a name:
    /// its contents come before that.
    pub fn seal_first(&self, record: &Record) -> Vec<Ino> {
        let gone = record.unnamed().filter(|_| !record.keeps_unnamed());
        let shown = match record {
            Record::Rename { ino, .. } | Record::Link { ino, .. } => Some(*ino),
            _ => None,
        };
        let has_dirty = |ino: &Ino| self.files.get(ino).is_some_and(FileData::has_dirty);
        gone.into_iter().chain(shown).filter(has_dirty).collect()
    }

    /// What lets the server copy as `asked`, if that is all of a file into one that is empty,
    /// neither has changes that the server lacks, and it is worth it.
    pub(in crate::host) fn clone_of(
        &mut self,
        from: Ino,
        ino: Ino,
        asked: Copied,
    ) -> Option<Record> {
        let (source, target) = (*self.tree.peek(from)?, *self.tree.peek(ino)?);
        let Attr { size, data_version: version, .. } = source;
        let is_all = asked.from == 0 && asked.to == 0 && size > 0 && asked.len >= size;
        let is_file = source.kind == Kind::File && target.kind == Kind::File;
        if !is_all || !is_file || from == ino || target.size > 0 || self.is_ahead(from) {
            return None;
        }
        let file = self.file(from)?;
        if file.is_mapped() {
            // A map may have written bytes that are in no log yet.
            return None;
        }
        let is_here = file.is_valid(0..size, size);
        let is_worth = size >= self.settings.clone_min || !is_here;
        let file = self.file(ino)?;
        let is_empty = !file.has_dirty() && !file.is_cloning();
        let record = Record::Clone { ino, base: file.base(), from, version };
        // A clone gets another container, and nothing of the one that the kernel reads may become
        // invalid.
        (is_empty && is_worth && !self.nodes.is_backed(ino)).then_some(record)
    }

    /// True while the server has not said whether `ino` got another file's data.
    pub fn is_cloning(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(FileData::is_cloning)
    }

    /// Makes the data state of `ino`, if there is none, from what the index has of it. False if the
    /// inode is not known.
    pub fn load(&mut self, ino: Ino, noted: Option<FileNote>) -> bool {
        if self.files.contains_key(&ino) {
            return true;
        }
        let Some(version) = self.tree.peek(ino).map(|attr| attr.data_version) else { return false };
        let file = match noted {
            Some(note) if note.version == version && !self.is_going(ino, note.container) => {
                FileData::restored(note)
            }
            other => {
                if let Some(note) = other {
                    self.abandon(ino, note.container);
                }
                FileData::new(version, self.fresh_container())
            }
        };
        self.files.insert(ino, file);
        true
    }

    /// Where the bytes of `ino` are.
    pub fn container(&mut self, ino: Ino) -> Option<ContainerId> {
        self.file(ino).map(|file| file.container())
    }

    /// True if this host has data of `ino` that the server lacks.
    pub fn is_ahead(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(FileData::is_ahead)
    }

    /// True if what stands in `range` of `ino` may be on no other host.
    pub fn is_only_here(&self, ino: Ino, range: &Range<u64>) -> bool {
        self.files
            .get(&ino)
            .is_some_and(|file| file.is_ahead() && file.valid().overlaps(range.clone()))
    }

    /// The size of `ino`, if all of it is here, the server has the same, and nothing of it waits
    /// to be sent.
    pub fn whole(&self, ino: Ino) -> Option<u64> {
        let size = self.tree.peek(ino)?.size;
        let file = self.files.get(&ino).filter(|file| file.is_valid(0..size, size))?;
        let waits = file.is_ahead() || self.is_queued(ino) || self.tree.is_pending(ino);
        (!waits && !file.is_cloning()).then_some(size)
    }

    /// True if the kernel is to read the container of `ino` by itself, which nobody has open.
    pub fn is_worth_backing(&self, ino: Ino) -> bool {
        self.whole(ino).is_some_and(|size| size >= self.settings.backed_min)
    }

    /// True if data of `ino` are in the queue. That is all that is known of those which an
    /// earlier life of the client left.
    fn is_queued(&self, ino: Ino) -> bool {
        self.queue.has_data(ino)
    }

    /// Bytes of file data that the server lacks.
    pub fn unsafe_bytes(&self) -> u64 {
        self.queue.bytes() + self.files.values().map(FileData::dirty_bytes).sum::<u64>()
    }

    /// True if some file has changes that are not sealed.
    pub fn has_unsealed(&self) -> bool {
        self.files.values().any(FileData::has_dirty)
    }

    /// Files with changes that are not sealed.
    pub fn unsealed(&self) -> Vec<Ino> {
        self.files.iter().filter(|(_, file)| file.has_dirty()).map(|(ino, _)| *ino).collect()
    }

    /// The server's data of `ino` are `version`; true if what was here of others is forgotten.
    ///
    /// Data follow only where the attributes did: a write made on the new data with the old
    /// size would cut off what another host wrote.
    pub(in crate::host) fn observe(&mut self, ino: Ino, version: Version) -> bool {
        let known = self.tree.peek(ino);
        if known.is_some_and(|attr| attr.data_version != version) {
            return false;
        }
        let epoch = known.map_or(version.epoch, |attr| attr.change.epoch);
        if !self.files.contains_key(&ino) || self.is_queued(ino) {
            return false;
        }
        let fresh = self.fresh_container();
        let Some(file) = self.files.get_mut(&ino) else { return false };
        let old = file.container();
        let is_new = file.observe(version, epoch, fresh);
        if is_new {
            self.abandon(ino, old);
        }
        is_new
    }

    /// Drops what is neither open, nor ahead of the server, nor worth its memory.
    pub fn shrink(&mut self, now: Time) {
        let (open, held, files) = (&self.open, &self.held, &self.files);
        self.tree.shrink(now, |ino| {
            open.contains_key(&ino)
                || held.contains(&ino)
                || files.get(&ino).is_some_and(FileData::is_ahead)
        });
    }
}

#[cfg(test)]
mod tests;
