//! What happens to a host, and what it asks its shell to do.
//!
//! The shell gives the host an [`Event`], and carries out the [`Action`]s that follow, in their
//! order. It reports the end of each action that names a call by [`Event::Done`]: the host then
//! decides what comes next. A call has at most one such action at a time.
//!
//! ```text
//!   Call ─▶ attempt ─▶ Preserve, Append, Write, Load, ..  ─▶ Done ─▶ attempt ─▶ .. ─▶ Reply
//! ```
//!
//! [`Action::Append`], [`Action::Write`] and [`Action::Undo`] change the update log. From the event
//! that leads to one of them until its end is reported, no other call may append.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::host::cache::{NodeNote, Promised, Sight};
use crate::host::call::{Answer, Backing, Call, Kept};
use crate::host::log::{Entry, Lane, Logged, Payload};
use crate::nouns::{ContainerId, Dentry, Ino, Name, Outcome, Record, Time, Timestamp, Version};
use crate::refusal::Refusal;
use crate::sharing::Dirty;
use crate::wire::{Compare, History, Looked, Node, Page, Resume, Resumed, Xattrs};

/// Number of a call, which the shell chooses. No two calls that are not answered have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// The moment of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// On the host's own clock, which never goes back.
    pub time: Time,
    /// The wall clock, for times of files.
    pub wall: Timestamp,
    /// The connection to the server.
    pub link: Reach,
}

/// How the server can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It answers.
    Online,
    /// There is a connection, and no answer came for a while.
    Silent,
    /// There is no connection.
    Offline,
}

/// What happens to a host.
#[derive(Clone, Debug)]
pub enum Event {
    /// A program, or the shell itself, calls.
    Call {
        /// Its number.
        id: CallId,
        /// What it asks for.
        call: Call,
    },
    /// Time has passed: a [deadline](crate::host::Host::next_deadline) has come.
    Time,
    /// The program waits no longer for the answer to a call. Only a call that asks can be ended.
    Cancel(CallId),
    /// The action that a call waited for has ended.
    Done {
        /// Whose action.
        id: CallId,
        /// How it ended.
        done: Result<Done, Undone>,
    },
}

/// The result of an action.
#[derive(Clone, PartialEq, Debug)]
pub enum Done {
    /// It is carried out.
    Carried,
    /// All numbers below this one are reserved.
    Reserved(u64),
    /// So many bytes are free on the cache's disk.
    Free(u64),
    /// Notes of the index.
    Noted(Noted),
    /// The server's answer to a question.
    Told(Box<Told>),
    /// The number of a new inode.
    Number(Ino),
    /// The server's outcomes.
    Delivered(Box<Delivered>),
    /// The server takes no chunks: a quota or its disk is full.
    NoChunks(Refusal),
    /// The session was told of all changes up to this commit.
    Renewed {
        /// Which one.
        session: u64,
        /// The last change of which it was told.
        commit: u64,
    },
    /// The promises that go on.
    Resumed(Resumed),
    /// The bytes are preserved; their checksums, by blocks of the file.
    Preserved(Vec<u32>),
}

/// Why an action was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undone {
    /// The error that the caller gets.
    pub refusal: Refusal,
    /// The entry of a [`Action::Write`] is in the log, and its container may have any part of it.
    pub is_logged: bool,
}

impl From<Refusal> for Undone {
    fn from(refusal: Refusal) -> Undone {
        Undone { refusal, is_logged: false }
    }
}

/// What the shell is to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Reserve numbers for changes from this one on, durably: [`Done::Reserved`].
    Reserve(CallId, u64),
    /// Look at the cache's disk: [`Done::Free`] or [`Done::Noted`].
    Load(CallId, Load),
    /// Remove clean data to make room on the cache's disk.
    Evict(CallId),
    /// Copy bytes of a container to the preserved bytes of a change: [`Done::Preserved`].
    Preserve(CallId, Preserve),
    /// Ask the server: [`Done::Told`].
    Query(CallId, Query),
    /// Take a number for a new inode: [`Done::Number`]. The server may have to grant more of them.
    Number(CallId),
    /// The server has other data of files than this host. Log the writes of memory maps to their
    /// containers, which are about to be others: with a call [`Mapped`](super::call::Call::Mapped)
    /// for each. Those of this file, or of all.
    LogMaps(CallId, Option<Ino>),
    /// Have the kernel read this container by itself. If it does not take it, the file is read
    /// through this host.
    Back(CallId, Backing),
    /// From now on a memory map may write to this container of a file, which the kernel reads: look
    /// from time to time whether one did.
    WatchMaps(CallId, Ino, ContainerId),
    /// The kernel reads no container of this file any more.
    EndBacking(Ino),
    /// Fetch bytes of a file into its container ([`Host::to_fill`](crate::host::Host::to_fill)).
    Fetch(CallId, Gap),
    /// Give the caller the bytes of a file in this state: those of its container, and those that
    /// are missing from the server.
    Pass(CallId, Sight),
    /// Wait until something is settled or fetched. It fails if that takes too long.
    Await(CallId, Await),
    /// A record of names or attributes is about to be logged.
    Made(Record),
    /// Append an entry to the update log.
    Append(CallId, Box<Entry>),
    /// The same of several entries, at one go.
    AppendAll(CallId, Vec<Entry>),
    /// Keep the fate of a change for the user, durably.
    Keep(CallId, Box<Kept>),
    /// Open the data of the change. The call whose outcome it is may stop waiting before that is
    /// logged: then its fate [is kept](Action::KeepHeld).
    Hold(CallId, Box<Kept>),
    /// Keep the fate of this change, which was [held](Action::Hold).
    KeepHeld(u64),
    /// Append the entry of a write, with its bytes, and then change the container.
    Write(CallId, Box<Edit>),
    /// Remove the entry that was appended last, append the other one, and cut the container.
    Undo(CallId, Box<Undo>),
    /// Keep a container open that the file is about to give up: its bytes may help to send the next
    /// version.
    KeepBasis(Ino, ContainerId, Version),
    /// Keep bytes of a container that are about to be overwritten, for the same purpose.
    KeepOverwritten(Ino, ContainerId, Version, Range<u64>),
    /// The file of which something is kept was emptied or written to, or could not be.
    BasisChanged(Ino, bool),
    /// Have the kernel drop pages and attributes.
    ForgetData(Ino),
    /// Have the kernel drop attributes.
    ForgetAttributes(Ino),
    /// Have the kernel drop its copy of a listing.
    ForgetListing(Ino),
    /// Have the kernel drop a name.
    ForgetName(Dentry),
    /// The same of a directory, unless it would keep a process that works there from knowing where.
    ForgetPlace(Dentry),
    /// Have the kernel forget the names of a file of which it reads a container that is not the
    /// file's any more: [`Nodes::node`](super::cache::Nodes::node) is another one now.
    Leave(Ino),
    /// Make the log durable, with all data of which it speaks.
    SyncDisk(CallId),
    /// Send a batch to the server: [`Done::Delivered`] or [`Done::NoChunks`]. Before its message
    /// goes, call [`Host::mark_sending`](crate::host::Host::mark_sending).
    Deliver(CallId, Deliver),
    /// Wait so long, with an unlocked log. No time at all lets calls in that wait for the log.
    Pause(CallId, Duration),
    /// Have the kernel forget attributes and names. The action ends when it uses none of them.
    TakeBack(CallId, Box<TakenBack>),
    /// Ask the server over the new connection which promises go on: [`Done::Resumed`].
    Resume(CallId, Box<Resume>),
    /// Ask the server up to where it has told this session of changes: [`Done::Renewed`].
    Renew(CallId),
    /// Tell the server which files have changed here, and which are as it has them.
    Announce(CallId, Box<Dirty>),
    /// Begin a call of its own.
    Start(Call),
    /// The numbers of these inodes are about to be released. Have the kernel write back and drop
    /// their pages.
    Release(CallId, Vec<Ino>),
    /// Forget notes of the index, durably, and remove containers that are of no use then.
    ForgetNotes(CallId, Box<LostNotes>),
    /// Wake a task.
    Wake(Task),
    /// Answer a call.
    Reply(CallId, Result<Answer, Refusal>),
}

impl Action {
    /// Have the kernel drop a name, which may be a directory's.
    pub(in crate::host) fn forget_entry(at: Dentry, is_directory: bool) -> Action {
        if is_directory { Action::ForgetPlace(at) } else { Action::ForgetName(at) }
    }
}

/// Attributes and names that the kernel was told, and may not use any more.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakenBack {
    /// Attributes of all inodes that the kernel knows.
    pub everything: bool,
    /// Attributes of these.
    pub inodes: Vec<Ino>,
    /// Listings of these.
    pub listings: Vec<Ino>,
    /// These names.
    pub names: Vec<Dentry>,
    /// Names of directories. A process that works there may have to know where it is: the kernel
    /// looks them up again within their lifetime, if it cannot forget them otherwise.
    pub places: Vec<Dentry>,
    /// Names that are not known here any more are to be forgotten, too.
    pub all_names: bool,
}

/// A batch for the server.
#[derive(Clone, PartialEq, Debug)]
pub struct Deliver {
    /// Its lane.
    pub lane: Lane,
    /// Its changes.
    pub batch: Arc<Vec<Logged>>,
    /// The server takes no chunks of it, because of this: it goes with their names only.
    pub without: Option<Refusal>,
}

impl Done {
    /// The chunks of a batch are not at the server because of this. A quota or a full disk takes
    /// none, and the batch goes on without.
    pub fn without_chunks(refusal: Refusal) -> Result<Done, Refusal> {
        match refusal {
            Refusal::NoSpace | Refusal::Quota => Ok(Done::NoChunks(refusal)),
            refusal => Err(refusal),
        }
    }
}

/// The answer of the server to a batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivered {
    /// Of as much of it as the server took.
    pub outcomes: Vec<Outcome>,
    /// The promises in the answer.
    pub promised: Option<Promised>,
    /// The server had told the session of all up to this commit.
    pub heard: u64,
    /// When the batch was sent.
    pub asked: Time,
    /// The time that the answer took.
    pub took: Duration,
    /// The link's round trip, which is a part of that.
    pub round_trip: Duration,
}

/// A thing to read on the cache's disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Load {
    /// How much is free: [`Done::Free`].
    FreeSpace,
    /// The note of an inode: [`Done::Noted`].
    Node(Ino),
    /// The notes of a name, of its directory and of its inode.
    Name(Dentry),
    /// The note of a file's data, for [`Host::load`](crate::host::Host::load): [`Done::Carried`].
    Data(Ino),
    /// The note of a directory. If all its names are noted, these with their inodes.
    Listing(Ino),
}

/// Notes of the index.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Noted {
    /// Inodes.
    pub nodes: Vec<NodeNote>,
    /// Names of one directory. `None`: the name surely meant nothing.
    pub names: Vec<(Name, Option<Ino>)>,
}

/// Notes of the index that are lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostNotes {
    /// They are of none of these versions.
    pub history: History,
    /// Files whose data stay: they are ahead of the server.
    pub kept: BTreeSet<Ino>,
}

/// A question to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// The question.
    pub ask: Ask,
    /// An answer is known that was true once. The server is waited for only as long as a newer one
    /// is worth it.
    pub is_known: bool,
}

/// A question, without its worth.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Attributes: [`Fact::Attr`].
    Attr(Ino),
    /// Attributes of a file that is opened, once other hosts that have changed it have sent what
    /// they had: [`Fact::Opened`].
    Open(Ino),
    /// The inode of a name: [`Fact::Name`].
    Name(Dentry),
    /// A page of a listing: [`Fact::Page`].
    Page {
        /// The directory.
        directory: Ino,
        /// Names behind this one.
        after: Option<Name>,
        /// Only changes since this commit are needed.
        since: Option<u64>,
        /// So many at most.
        limit: u32,
    },
    /// Extended attributes: [`Fact::Xattrs`].
    Xattrs(Ino),
    /// Whether two files have the same bytes: [`Fact::Same`].
    Same(Compare),
}

/// An answer of the server, with its age.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// The answer.
    pub fact: Fact,
    /// The promises in it.
    pub promised: Option<Promised>,
    /// When it was asked for.
    pub asked: Time,
}

/// An answer of the server.
#[derive(Clone, PartialEq, Debug)]
pub enum Fact {
    /// The inode.
    Attr(Node),
    /// The inode, and whether it has changes of a host that is away or sends nothing.
    Opened(Node, bool),
    /// The inode of the name.
    Name(Looked),
    /// The page.
    Page(Page),
    /// Extended attributes.
    Xattrs(Xattrs),
    /// The files have the same bytes.
    Same(bool),
}

/// A task of the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// Sends batches of changes.
    Drain,
    /// Tells the host of time: [its deadline](crate::host::Host::next_deadline) may be earlier.
    Time,
    /// Uploads large data before their turn.
    Upload,
    /// Sends something: it may be what is to go first from now on.
    Pushed,
    /// Waits until changes are settled or go nowhere.
    Settled,
    /// Waits until data are fetched.
    Fetched,
    /// Asks the server how much quotas have left.
    Quotas,
    /// Merges directories and files that two hosts made.
    Merge,
}

/// Bytes to fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The file.
    pub ino: Ino,
    /// The version that has them.
    pub version: Version,
    /// Their place.
    pub range: Range<u64>,
}

/// What a call waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Await {
    /// That [`Host::progress`](crate::host::Host::progress) is another number than this.
    pub since: u64,
    /// For so long.
    pub patience: Patience,
    /// Bytes of a file that others fetch.
    pub data: Option<(Ino, Range<u64>)>,
}

/// How long a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Until it happens.
    Ever,
    /// This long.
    AtMost(Duration),
    /// As long as the server can be reached, and so long after the connection was lost.
    Grace,
}

/// Bytes to preserve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preserve {
    /// The change that needs them.
    pub seq: u64,
    /// The file.
    pub ino: Ino,
    /// The container that has them.
    pub container: ContainerId,
    /// Their place.
    pub range: Range<u64>,
}

/// A change of a container.
#[derive(Clone, PartialEq, Debug)]
pub struct Edit {
    /// The file.
    pub ino: Ino,
    /// Its container.
    pub container: ContainerId,
    /// What is done to the container.
    pub change: Change,
    /// The log must have the bytes of a write themselves. Otherwise checksums are enough.
    pub logs_bytes: bool,
    /// The entry. That of a write has [`Payload::Durable`] in place of the bytes.
    pub(in crate::host) entry: Entry,
}

/// What is done to a container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The call's bytes are written at this offset.
    Bytes(u64),
    /// These bytes become zeros that take no room.
    Zeros(Range<u64>),
    /// It becomes so long.
    Size(u64),
    /// Nothing: the file gets an empty container.
    Nothing,
}

impl Edit {
    /// The entry for the log. `data` makes the payload of a write: the bytes or their checksums.
    pub fn entry(&self, data: impl FnOnce() -> Payload) -> Entry {
        match self.change {
            Change::Bytes(_) => self.entry.clone().with_payload(data()),
            _ => self.entry.clone(),
        }
    }
}

/// What is left of a write that failed.
#[derive(Clone, PartialEq, Debug)]
pub struct Undo {
    /// Says so in the log.
    pub entry: Entry,
    /// The file.
    pub ino: Ino,
    /// Its container.
    pub container: ContainerId,
    /// The container has nothing behind this.
    pub size: u64,
}
