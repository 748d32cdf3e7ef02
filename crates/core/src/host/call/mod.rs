//! Calls of programs: what each means, when it is refused, and what it waits for.
//!
//! A call is attempted from its beginning. An attempt ends with the answer, or at an action that
//! has to be carried out first. When that is done, the call is attempted again, and finds that part
//! done. So no attempt depends on what was true before the action.

mod answers;
mod below;
mod change;
mod edit;
mod facts;
mod fetch;
mod forget;
mod handle;
mod handles;
mod look;
mod merge;
mod name;
mod open;
mod outcome;
mod owner;
mod paging;
mod promises;
mod room;
mod run;
mod seal;
mod seals;
mod send;
mod settle;
mod sharing;
mod space;
mod sync;

use std::ops::Range;
use std::sync::Arc;

use self::change::GivesWay;
use self::facts::Facts;
pub(in crate::host) use self::facts::{Halt, Known};
use self::merge::Merging;
pub use below::{UnsentBelow, is_below};
use fetch::Fetching;
pub use fetch::{FetchCall, Here};
use forget::Forgetting;
use handle::Handling;
pub use handle::{Backing, NewHandle, OpenHandle};
pub use handles::{Handles, OpenFile};
use look::Looking;
pub use look::{Look, Seen};
pub use name::{NameCall, RenameFlag};
pub use open::OpenCall;
use open::Opening;
pub use owner::Owner;
pub use promises::Ended;
pub(in crate::host) use promises::Keeping;
pub use room::{Growth, Quota, Room};
use seals::SealingAll;
pub use seals::Seals;
use send::Sending;
use settle::Settling;
pub use settle::{Kept, KeptAs, Settle};
pub(in crate::host) use sharing::Announcing;
use sharing::Pulling;
pub use sharing::SharingCounts;
pub use space::DISK_RESERVE;
pub(in crate::host) use space::FreeSpace;
use sync::Syncing;

use crate::host::Copied;
use crate::host::action::{Edit, Gap, Load, Preserve};
use crate::host::cache::Sight;
use crate::host::conflict::Duplicate;
use crate::host::log::{Entry, Lane};
use crate::host::send::{Claim, WaiterId};
use crate::nouns::{Caller, ContainerId, Ino, Outcome, Record, Time, Version};
use crate::promise::Inodes;
use crate::refusal::Refusal;
use crate::wire::History;

/// What is called.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    /// A change of data.
    Edit(EditCall),
    /// Make what was written to a file a change for the server.
    Seal {
        /// The file.
        ino: Ino,
        /// In whose name.
        caller: Caller,
        /// The call waits for the outcome of the newest data of the file.
        waits: bool,
    },
    /// The same at a close. Data whose level gives them time stay as they are.
    SealAtClose {
        /// The file.
        ino: Ino,
        /// Who closes it.
        caller: Caller,
    },
    /// The same of several files. The answer says which were [left](Answer::left).
    SealAll(Seals),
    /// What was changed at or below these paths goes before other changes, with all that it
    /// follows: [`Answer::pushed`].
    Push(Vec<Vec<u8>>),
    /// A change of names or attributes.
    Change {
        /// The change.
        record: Record,
        /// Who makes it.
        caller: Caller,
        /// The call waits for its outcome, with this claim to it.
        claim: Option<Claim>,
        /// The change is made only if nobody uses the file and its data have this version here.
        /// Otherwise the call is refused with [`Refusal::Changed`].
        expects: Option<Version>,
    },
    /// The same, as a program asks for it.
    Name(NameCall, Caller),
    /// A look at names or attributes.
    Look(Look),
    /// An open of a file. Refused with [`Refusal::Stale`] if the kernel is to look its name up
    /// again.
    Open(OpenCall),
    /// A handle of a file that may be opened: [`Answer::handle`]. Refused with [`Refusal::Stale`]
    /// if the kernel is to look its name up again.
    OpenHandle(OpenHandle),
    /// The last reference to this handle is gone.
    Close(u64),
    /// A process closes a descriptor of this handle, which others may have, too.
    Flush(u64),
    /// The file of this handle is to be durable, here and at the server as
    /// [the user wants](crate::host::Settings::syncs_to_server). Later changes of the process
    /// session follow those so far.
    Sync(u64),
    /// The same of the names in a directory.
    SyncDirectory {
        /// The directory.
        ino: Ino,
        /// The session.
        session: u32,
    },
    /// The same of everything, on this host.
    SyncAll {
        /// The session.
        session: u32,
    },
    /// Data of a file that are to be here.
    Fetch(FetchCall),
    /// A merge of a duplicate with the other one, [as far as it may](crate::host::conflict).
    /// Refused with [`Refusal::NotEmpty`] or [`Refusal::Changed`] if more of it may be merged
    /// later.
    Merge(Duplicate),
    /// The next batch of a lane goes to the server. The answer says whether there was one.
    Send(Lane),
    /// Changes of any lane go to the server, before the mount ends: nothing is uploaded ahead any
    /// more.
    SendLast,
    /// Changes of which the outcomes are waited for. Refused if one of them is.
    Committed(Vec<u64>),
    /// Final outcomes of changes.
    Settle(Arc<Settle>),
    /// The server was put back from a copy and has these versions: names, attributes and data of
    /// others are asked for again. Nothing may be noted in the index meanwhile.
    Forget(History),
    /// Promises of the server have ended. The call is over when neither this host nor its kernel
    /// uses the promised attributes and names.
    TakeBack(Ended),
    /// A file that is open here has changed: its attributes are asked for until they are promised.
    Follow(Ino),
    /// There is another connection, which begins with `commit` of `epoch`. The promises made over
    /// the last one is to count over it.
    Resume {
        /// Of the volume.
        epoch: u32,
        /// The number of its last change.
        commit: u64,
    },
    /// The server is to keep its promises. The host [starts](crate::host::action::Action::Start)
    /// this call itself, and the next one.
    Renew,
    /// The server is to know which files have changed here. The host
    /// [starts](crate::host::action::Action::Start) this call itself.
    Announce,
    /// Another host opens this file, which has changed here: that goes to the server before all
    /// that nobody waits for. The call waits for the outcomes: [`Answer::is_settled`] says whether
    /// they came.
    Pull(Ino),
    /// The server is to keep these files, which other hosts removed, for as long as they are open
    /// here.
    KeepRemoved(Vec<Ino>),
    /// A copy of all data of one file to an empty one, by the server. It waits for the outcome.
    Clone {
        /// The one.
        from: Ino,
        /// The empty one.
        to: Ino,
        /// The bytes.
        bytes: Copied,
        /// Who copies.
        caller: Caller,
    },
    /// A memory map may have written anything into a container, durably. Refused with
    /// [`Refusal::Changed`] if the file has another one by now.
    Mapped {
        /// The file.
        ino: Ino,
        /// The container.
        container: ContainerId,
    },
}

impl Call {
    /// True if it changes files, as a host that only reads may not.
    fn changes_files(&self) -> bool {
        matches!(
            self,
            Call::Edit(_)
                | Call::Change { .. }
                | Call::Name(..)
                | Call::Merge(_)
                | Call::Clone { .. }
                | Call::Mapped { .. }
        )
    }

    /// True if it may append to the update log.
    pub fn may_append(&self) -> bool {
        !matches!(
            self,
            Call::Look(_)
                | Call::Fetch(_)
                | Call::Open(_)
                | Call::OpenHandle(_)
                | Call::TakeBack(_)
                | Call::Follow(_)
                | Call::Resume { .. }
                | Call::Renew
                | Call::Announce
                | Call::KeepRemoved(_)
        )
    }
}

/// A change of data.
#[derive(Clone, PartialEq, Debug)]
pub struct EditCall {
    /// The file.
    pub ino: Ino,
    /// Who changes it.
    pub by: By,
    /// What is changed.
    pub what: What,
    /// The caller may not keep set-id bits.
    pub kills_set_ids: bool,
}

/// How the caller has the file.
#[derive(Clone, PartialEq, Debug)]
pub enum By {
    /// It has it open.
    Handle(u64),
    /// It is opening it. A close follows.
    Open(Caller),
    /// It has it by its name. No close follows.
    Name(Caller),
    /// It has it open, and changes its size by the inode. A close follows.
    Inode(Caller),
}

/// What is changed of a file's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Bytes at an offset.
    Write {
        /// Where.
        offset: u64,
        /// How many.
        len: u64,
        /// At the end instead. The kernel's offset is the size that it last heard of, and another
        /// host may have appended since.
        append: bool,
    },
    /// Zeros that need no room.
    Zeros(Range<u64>),
    /// The size.
    Resize {
        /// In bytes.
        size: u64,
    },
}

/// The answer to a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// The result of a look.
    pub seen: Option<Box<Seen>>,
    /// Nothing was asked of the server.
    pub is_cached: bool,
    /// A batch was sent.
    pub has_sent: bool,
    /// The inode that a change of names is about.
    pub ino: Option<Ino>,
    /// The change in the log, if the call made one.
    pub seq: Option<u64>,
    /// The outcome of the change, if the call waited for that.
    pub outcome: Option<Box<Outcome>>,
    /// The call waited until the server had the change. Other hosts may not have heard of it.
    pub is_settled: bool,
    /// The waiter for that outcome, if the call is a part of another one that waits.
    pub(in crate::host) waiter: Option<(u64, WaiterId)>,
    /// The update log is nearly full, and the caller waits for so many bytes that it added.
    pub slowed_by: Option<u64>,
    /// The handle that was opened.
    pub handle: Option<NewHandle>,
    /// Written files that nobody may need once the server has spoken, and that are not sealed.
    pub left: Vec<Ino>,
    /// Changes that were pushed, and the bytes of their data.
    pub pushed: (u64, u64),
}

/// A call that is not answered.
#[derive(Debug)]
pub(in crate::host) struct Running {
    call: Call,
    /// The action that is under way.
    step: Option<Step>,
    /// A call that is a part of this one. Then that has the action.
    inner: Option<Box<Running>>,
    so_far: SoFar,
}

impl Running {
    fn new(call: Call) -> Running {
        Running { call, step: None, inner: None, so_far: SoFar::default() }
    }

    /// True if a part of it is under way, or has failed and it does not know of that.
    fn has_inner(&self) -> bool {
        self.inner.is_some() || self.so_far.inner_failed.is_some()
    }

    /// True if an action is under way.
    fn is_stepping(&self) -> bool {
        self.step.is_some() || self.inner.as_ref().is_some_and(|inner| inner.is_stepping())
    }
}

/// What a call has done.
#[derive(Debug, Default)]
struct SoFar {
    facts: Facts,
    /// Looks that are not over. Each needs the one behind it.
    looks: Vec<Looking>,
    /// The server was asked.
    has_asked: bool,
    /// Others may have changed names since facts were looked for.
    has_waited: bool,
    /// The inode that it is about.
    ino: Option<Ino>,
    /// There is room for what it adds.
    has_room: bool,
    has_evicted: bool,
    is_edited: bool,
    /// What it overwrites is kept.
    keeps_basis: bool,
    /// Data were unsealed that were on their way.
    is_unsealed: bool,
    /// It is a part of another call.
    is_inner: bool,
    /// A program made the change by its names.
    is_named: bool,
    /// Its change gave way to another host's.
    gives_way: Option<GivesWay>,
    /// The outcomes that it waits for.
    hearing: Vec<(u64, WaiterId)>,
    /// Its last wait ended without progress.
    is_late: bool,
    /// What it sealed last.
    sealed: Option<u64>,
    /// A seal failed that may. The data are sealed later.
    is_seal_put_off: bool,
    /// The change that it made.
    logged: Option<u64>,
    /// Bytes that it added to those that wait for the server.
    added: u64,
    /// It was looked whether changes cancel out.
    is_cancelled: bool,
    /// Times of directories to change.
    times: Vec<Record>,
    /// Why a part of it failed.
    inner_failed: Option<Refusal>,
    /// The action that it is for was carried out.
    is_carried: bool,
    /// It takes back all that the kernel was told.
    takes_all: bool,
    settling: Settling,
    sending: Sending,
    merging: Merging,
    fetching: Fetching,
    opening: Opening,
    sealing_all: SealingAll,
    pulling: Pulling,
    handling: Handling,
    syncing: Syncing,
}

/// An action that is under way.
#[derive(Debug)]
enum Step {
    Reserve,
    Load(Load),
    Evict,
    Query,
    Number,
    LogMaps,
    CloseMaps,
    SyncMaps,
    Back,
    WatchMaps,
    Follow,
    Keep,
    Fetch(Gap),
    Pass(Sight),
    Await,
    Settle(Arc<Settle>),
    Forget(Forgetting),
    SyncDisk,
    Deliver,
    Release,
    Pause,
    TakeBack,
    Resume(Inodes),
    /// When it was asked for.
    Renew(Time),
    Announce,
    Preserve(Preserve),
    Append(Box<Entry>, Sealing),
    Write(Box<Edit>),
    Undo(Box<Entry>, Refusal),
}

/// What a call makes of a seal that cannot be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sealing {
    /// It fails.
    Must,
    /// It succeeds, and the data are sealed later: what the program asked for is done.
    May,
}

/// How an attempt ended.
enum Next {
    /// An action is under way.
    Step,
    /// The call is answered.
    Reply(Answer),
}
