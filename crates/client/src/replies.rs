//! What the control socket says: the JSON of the command line, field by field stable.

mod any_path;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use any_path::AnyPath;

/// `GET /v1/status`: one element of `status --json`'s `mounts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Where it is mounted.
    pub mountpoint: String,
    /// `segue://HOST[:PORT]/VOLUME`.
    pub url: String,
    /// Process id of the mount.
    pub pid: u32,
    /// Whether the server answers.
    pub state: State,
    /// Why it is offline, or that the server is silent, in words; else empty.
    pub reason: String,
    /// ID of this host's identity, as the server lists it.
    pub identity: String,
    /// Its role: `reader`, `writer` or `host`.
    pub role: String,
    /// The server answers, and refuses this host: its identity was revoked, for example.
    pub denied: bool,
    /// Bytes a second that reached the server when the link was busy last, 0 until measured.
    pub bandwidth_up: u64,
    /// The same from the server.
    pub bandwidth_down: u64,
    /// Round trip to the server.
    pub rtt_seconds: f64,
    /// Records that the server has not committed.
    pub log_records: u64,
    /// Size of the update log on disk.
    pub log_bytes: u64,
    /// Most bytes that may wait for the server (`log-max`): file data and the log.
    pub log_limit_bytes: u64,
    /// What that means for who writes now.
    pub writers: Writers,
    /// Bytes of file data that the server does not have.
    pub unsafe_bytes: u64,
    /// Those of them that the server lacks. The others are there, and not committed yet.
    pub to_send_bytes: u64,
    /// Age of the oldest change, of data or not, that it does not have.
    pub unsafe_oldest_seconds: f64,
    /// What the oldest record waits for, in words; empty if there is none.
    pub waits_for: String,
    /// Bytes of file data on this host's disk.
    pub cache_bytes: u64,
    /// `cache_bytes` is complete. It is not just after a start, while the cache is being counted.
    #[serde(default)]
    pub cache_is_counted: bool,
    /// Most that `cache_bytes` may be, without what the server lacks: `cache-size`, or less where
    /// the disk is short.
    pub cache_limit_bytes: u64,
    /// `cache-size`.
    pub cache_size_bytes: u64,
    /// Callback promises held.
    pub promises: u64,
    /// Files that other hosts have changed, as far as this host knows, and the server lacks.
    #[serde(default)]
    pub marks: u64,
    /// Times that another host waited for a file of this one, since the mount began.
    #[serde(default)]
    pub pulls: u64,
    /// Opens here that waited for another host.
    #[serde(default)]
    pub waits: u64,
    /// Conflict copies that this host's changes made and that were not removed or moved here.
    pub conflicts: u64,
    /// Conflict copies of other hosts' changes beside files whose data this host made.
    #[serde(default)]
    pub conflicts_beside: u64,
    /// Records that the server refused and that are kept here.
    pub refused: u64,
    /// Files whose data a program waits for now, the longest wait first; at most 100.
    #[serde(default)]
    pub fetching: Vec<AwaitedFile>,
    /// More of the connection. Mounts of earlier versions say nothing here.
    #[serde(default)]
    pub link: LinkReport,
    /// What of it may be taken, since when, and for how long.
    #[serde(default, flatten)]
    pub bandwidth: Bandwidth,
}

/// A file whose data a program waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AwaitedFile {
    /// Path in the volume, or `#INO`.
    pub path: String,
    /// Who waits.
    pub pid: u32,
    /// Its name; empty if it is not known.
    pub program: String,
    /// How long it has waited.
    pub seconds: f64,
    /// Bytes of the file on this host.
    pub here_bytes: u64,
    /// Its size.
    pub size: u64,
}

/// `GET /v1/link`; with `?every=MS` one a line each time that so many milliseconds have passed.
/// Counts begin anew with each connection; what was sent in a period is the difference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkReport {
    /// Since 1970.
    pub time_seconds: f64,
    /// Grows with each connection; 0 while there is none.
    pub connection: u64,
    /// Bytes a second that the path is taken to carry to the server, 0 until known: what the
    /// transport goes by.
    pub rate_up: u64,
    /// Bytes a second that reached the server when the link was busy last, 0 until measured.
    pub bandwidth_up: u64,
    /// The same from the server.
    pub bandwidth_down: u64,
    /// Round trip now, smoothed.
    pub rtt_seconds: f64,
    /// Round trip of the path without anything queued, as far as it is known.
    pub base_rtt_seconds: f64,
    /// `bwlimit` now, bytes a second to the server; null without one.
    pub limit_up: Option<u64>,
    /// The same from the server.
    pub limit_down: Option<u64>,
    /// UDP payload sent.
    pub sent_bytes: u64,
    /// UDP payload received.
    pub received_bytes: u64,
    /// What waits and went, by class, most urgent first.
    pub classes: Vec<ClassBytes>,
}

/// `GET /v1/bwlimit`, and the answer to [`BandwidthRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bandwidth {
    /// As it was set: a limit, a timetable, or `off`.
    pub bwlimit: String,
    /// Most bytes a second to the server now; null without limit.
    pub limit_up: Option<u64>,
    /// The same from the server.
    pub limit_down: Option<u64>,
    /// For how long that holds; null: for ever.
    pub limit_seconds: Option<f64>,
    /// All other traffic on the link goes first: `link=background`.
    pub background: bool,
}

/// `POST /v1/bwlimit`: other limits until the mount ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BandwidthRequest {
    /// As the mount option.
    pub bwlimit: String,
}

/// How who writes fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Writers {
    /// Nobody waits.
    #[default]
    Free,
    /// As much waits for the server that each change waits a little.
    Slowed,
    /// As much waits as may, and nothing goes: changes fail with ENOSPC.
    Refused,
}

impl From<segue_core::host::log::Writers> for Writers {
    fn from(writers: segue_core::host::log::Writers) -> Writers {
        use segue_core::host::log::Writers as Core;
        match writers {
            Core::Free => Writers::Free,
            Core::Slowed => Writers::Slowed,
            Core::Refused => Writers::Refused,
        }
    }
}

/// Bytes of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassBytes {
    /// Name of the class.
    pub class: String,
    /// Bytes queued now.
    pub queued_bytes: u64,
    /// Bytes sent since the connection began.
    pub sent_bytes: u64,
    /// Calls and replies sent since then, each when all of it was.
    #[serde(default)]
    pub sent_messages: u64,
}

/// State of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The server answers.
    Online,
    /// It does not.
    #[default]
    Offline,
    /// It answers, and nothing may be changed here.
    Readonly,
}

/// `GET /v1/log`: pending records, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogReply {
    /// At most 10,000 of them.
    pub records: Vec<LogRecord>,
}

/// One pending record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogRecord {
    /// Place in the log; 0 for what is written and not closed (kind `write`).
    pub seq: u64,
    /// create, store, rename, ..
    pub kind: String,
    /// The path as far as it is known here, else `#INO`.
    pub path: String,
    /// Priority class at which it goes.
    pub class: String,
    /// Bytes of data.
    pub bytes: u64,
    /// Since the change was made.
    pub age_seconds: f64,
    /// What it waits for, in words.
    pub waits_for: String,
}

/// `POST /v1/where`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhereRequest {
    /// Paths of the files.
    pub paths: Vec<AnyPath>,
    /// Asks about directories alone, not about files below them.
    #[serde(default)]
    pub alone: bool,
}

/// Answer to [`WhereRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhereReply {
    /// One for each path, in order.
    pub files: Vec<WhereFile>,
}

/// Where a file's bytes are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhereFile {
    /// As asked.
    pub path: String,
    /// 0 if there is no such file: then `error` says why.
    pub ino: u64,
    /// `server` if everything is committed; `host` if some is on this host only; `other` if some is
    /// on another one only. Of a directory, everything below it.
    pub level: String,
    /// Of a directory: what only this host has below it.
    #[serde(default)]
    pub below: Below,
    /// Bytes of it on this host's disk.
    pub cached_bytes: u64,
    /// Its size.
    pub size: u64,
    /// Some of it is not committed.
    pub dirty: bool,
    /// Another client used it lately.
    pub shared: bool,
    /// Data version.
    pub version: String,
    /// How soon changes of it must be with the server.
    pub lm: String,
    /// Which path below the mount point says so: `.` for that itself, empty for the mount option.
    pub lm_from: String,
    /// Empty, or why there is no answer.
    pub error: String,
}

/// What only this host has below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Below {
    /// Files and directories with changes that the server lacks.
    pub files: u64,
    /// Bytes of their data that the server lacks.
    pub bytes: u64,
}

/// `POST /v1/sync`: the answer is JSON lines of [`SyncReply`], the last with `done`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncRequest {
    /// Paths to sync; an empty list means the whole mount.
    pub paths: Vec<AnyPath>,
    /// `host` or `server`.
    pub level: String,
    /// Give up after this; 0: never.
    pub timeout_ms: u64,
    /// Also wait for a server that cannot be reached.
    pub waits_offline: bool,
}

/// Progress or result of a sync.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncReply {
    /// Everything asked for is where it should be.
    pub ok: bool,
    /// This is the last line.
    pub done: bool,
    /// Records still to go.
    pub pending_records: u64,
    /// Bytes still to go.
    pub pending_bytes: u64,
    /// The server cannot be reached.
    pub offline: bool,
    /// The server answers, and refuses this host.
    pub denied: bool,
    /// Changes that the server refused earlier or meanwhile, and that are kept on this host.
    #[serde(default)]
    pub refused: u64,
    /// Why it is not ok, in words.
    pub error: String,
}

/// `POST /v1/umount`: the answer is JSON lines of [`SyncReply`], the last with `done`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UmountRequest {
    /// Unmount at once and keep the log for the next mount.
    pub now: bool,
}

/// `POST /v1/why`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhyRequest {
    /// Path of the file or directory whose calls are listed.
    pub path: AnyPath,
}

/// Answer to [`WhyRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhyReply {
    /// Newest first. What was answered at once is not among them.
    pub operations: Vec<WhyOperation>,
    /// Empty, or why there is no answer.
    pub error: String,
}

/// An operation that had to wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WhyOperation {
    /// As the kernel asks: open, read, lookup, ..
    pub operation: String,
    /// Who asked; 0 if that was the kernel itself.
    pub pid: u32,
    /// It goes on: `seconds` is the time so far.
    #[serde(default)]
    pub under_way: bool,
    /// Since it ended.
    pub age_seconds: f64,
    /// How long it took.
    pub seconds: f64,
    /// In the order in which the waits ended, and those that go on; several may at once.
    pub waited_for: Vec<WaitedFor>,
}

/// Something that an operation waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// In words.
    pub what: String,
    /// How long.
    pub seconds: f64,
}

/// `POST /v1/push`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PushRequest {
    /// Paths to send first; an empty path means the whole mount.
    pub paths: Vec<AnyPath>,
}

/// Answer to [`PushRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushReply {
    /// Changes that go first now, with those that they follow.
    pub records: u64,
    /// Bytes of data of these.
    pub bytes: u64,
    /// The server cannot be reached: they go first when it is back.
    pub offline: bool,
    /// The server answers, and refuses this host.
    #[serde(default)]
    pub denied: bool,
}

/// `GET /v1/conflicts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConflictsReply {
    /// Copies, oldest first, then what was refused.
    pub conflicts: Vec<Conflict>,
}

/// What the user has to deal with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConflictKind {
    /// Two hosts changed the same: a change of this host stands beside what it was meant for.
    #[default]
    Copy,
    /// The server refused a change of this host after its call had returned.
    Refused,
    /// A change of another host stands beside one of this host, which stays.
    Beside,
}

/// A conflict copy that a change of this host became, or a change that was refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conflict {
    /// Which of both.
    pub kind: ConflictKind,
    /// The copy, relative to the mount point; of a refused change what it was to change. Empty if
    /// that is not known.
    pub path: String,
    /// What a copy stands beside, as it was called then.
    pub of: String,
    /// A refused change by what it is kept as, or a copy of which nothing else is known; empty for
    /// others.
    pub id: String,
    /// What a refused change was: create, store, rename, ..
    pub change: String,
    /// Why it was refused, or why no more is known of it.
    pub why: String,
    /// Bytes of the copy, or of the refused data.
    pub bytes: u64,
    /// When the change was made, since 1970; 0 if that is not known.
    pub time_seconds: f64,
    /// The file on this host with the data that were refused, each byte where it was in the file;
    /// empty if there are none.
    pub data: String,
    /// Which of its bytes were written.
    pub ranges: Vec<Range<u64>>,
    /// How long they made the file.
    pub size: u64,
    /// The file on this host that tells of a copy, if it cannot be read.
    pub note: String,
}

/// `POST /v1/resolve`: one of them is dealt with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResolveRequest {
    /// A copy that stays, relative to the mount point.
    pub copy: String,
    /// A refused change that is dropped with its data, by its id.
    pub refused: String,
    /// A copy of which only its id is known, and which its user has dealt with.
    pub unreadable: String,
}

/// Answer to [`ResolveRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResolveReply {
    /// It was known, and is no more.
    pub found: bool,
    /// Empty, or why not.
    pub error: String,
}

/// `POST /v1/watch`: a line of [`WatchLine`] for each change below a directory, until the caller
/// goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRequest {
    /// The directory.
    pub path: AnyPath,
}

/// What a watcher is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchLine {
    /// What happened.
    pub event: WatchEvent,
    /// Where: an absolute path on this host.
    pub path: String,
    /// `file`, `directory`, `symlink` or another kind of what is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its inode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Of a conflict copy that was made: the file beside which it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_of: Option<String>,
    /// Why, where that is not plain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Kinds of what a watcher is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchEvent {
    /// From here on all is told.
    #[default]
    Watching,
    /// The name was given: to something new, renamed, or linked.
    Named,
    /// Contents or attributes are others.
    Changed,
    /// The name means nothing any more.
    Gone,
    /// Anything may have changed below the path, and is not known one by one any more.
    Unknown,
    /// The server cannot be reached: what changes is told when it can be.
    Offline,
    /// It can be reached again.
    Online,
    /// Nothing more is told, for that reason.
    Ended,
}
