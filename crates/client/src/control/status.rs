//! What a person may ask of a mount: how it is, what waits, where a file is.

use std::collections::BTreeSet;

use segue_core::host::Host;
use segue_core::host::cache::FileData;
use segue_core::host::call::{Seals, UnsentBelow};
use segue_core::host::log::{Queue, Stage};
use segue_core::nouns::{Attr, Class, Ino, Kind, Name, Role};
use segue_core::refusal::Refusal;
use segue_rpc::LinkState;
use segue_rpc::identity::short;

use super::link::link_report;
use super::why::awaited_files;
use crate::mount::{Mount, Shared};
use crate::options::Lm;
use crate::replies::{Below, LogRecord, LogReply, State, Status, WhereFile};
use crate::write_back::age;

/// Most records that `segue log` lists.
const LOG_MAX: usize = 10_000;

/// Why changes wait.
struct Waits {
    is_offline: bool,
    is_denied: bool,
    is_silent: bool,
    uploading: BTreeSet<u64>,
    hindered: Option<Refusal>,
}

impl Waits {
    /// What change `seq` of `queue` waits for, which follows `before`.
    fn words(&self, queue: &Queue, seq: u64, before: Option<u64>) -> String {
        match (queue.stage(seq), before, self.hindered) {
            _ if self.is_denied => "nothing: the server refuses this host".into(),
            _ if self.is_offline => "the server to be reachable".into(),
            (Some(Stage::Sent), ..) => "the server's answer".into(),
            _ if queue.is_held(seq) => "the next batch (log:T)".into(),
            _ if self.uploading.contains(&seq) => "its data, which are being sent".into(),
            (Some(Stage::Taken), ..) => "its batch, which is being prepared".into(),
            (_, Some(before), _) => format!("record {before}, which goes first"),
            (_, None, Some(refusal)) => format!("a retry after: {refusal}"),
            (_, None, None) if self.is_silent => "the server, which does not answer".into(),
            (_, None, None) => "free bandwidth".into(),
        }
    }
}

pub(crate) fn offline_reason(mount: &Mount) -> String {
    match mount.remote.link().state() {
        LinkState::Offline { why, .. }
        | LinkState::Refused { why }
        | LinkState::OtherVersion { why } => why,
        LinkState::Connecting => "connecting".into(),
        LinkState::Online { .. } if mount.remote.is_silent() => "the server does not answer".into(),
        LinkState::Online { .. } => String::new(),
    }
}

/// True if the server answers, and refuses this host.
pub(super) fn is_denied(mount: &Mount) -> bool {
    matches!(mount.remote.link().state(), LinkState::Refused { .. })
}

/// That nothing can be sent, and why.
pub(super) fn unreachable_words(mount: &Mount) -> String {
    let reason = offline_reason(mount);
    match is_denied(mount) {
        true => format!("the server refuses this host: {reason}"),
        false => format!("the server cannot be reached: {reason}"),
    }
}

/// How many changes the server has not committed, and how many bytes of their data it lacks.
pub(crate) fn pending(mount: &Mount) -> (u64, u64) {
    mount.shell.seal_all(Seals::Decided).ok();
    let core = mount.host.lock();
    (core.queue().len() as u64, to_send(mount, &core))
}

/// Bytes of changed data that the server lacks, also of those that are not logged yet.
fn to_send(_mount: &Mount, core: &Host) -> u64 {
    let dirty = |ino| core.data_of(ino).map_or(0, FileData::dirty_bytes);
    let unsealed: u64 = core.unsealed().into_iter().map(dirty).sum();
    (core.queue().bytes() + unsealed).saturating_sub(core.ahead().sent())
}

/// How the mount is.
pub(crate) fn status(mount: &Mount) -> Status {
    let online = !mount.remote.is_offline();
    let state =
        match (online, mount.volume.owner.role == Role::Reader || mount.volume.options.read_only) {
            (false, _) => State::Offline,
            (true, true) => State::Readonly,
            (true, false) => State::Online,
        };
    let link = link_report(mount);
    let log_bytes = mount.disk.log.lock().len();
    let (cache_bytes, cache_limit_bytes) =
        (mount.disk.containers.bytes(), mount.disk.cache_limit());
    let writers = mount.host.lock().writers().into();
    let waits = why_changes_wait(mount);
    let conflicts = mount.disk.for_user.conflicts.lock().len();
    let fetching = awaited_files(mount);
    let conflicts_beside = mount.disk.for_user.beside.copies().len() as u64;
    let core = mount.host.lock();
    let oldest = core.queue().oldest_seq();
    Status {
        mountpoint: mount.volume.mountpoint.display().to_string(),
        url: mount.volume.url.clone(),
        pid: std::process::id(),
        state,
        reason: offline_reason(mount),
        identity: short(mount.remote.link().identity()).to_owned(),
        role: format!("{:?}", mount.volume.owner.role).to_lowercase(),
        denied: is_denied(mount),
        bandwidth_up: link.bandwidth_up,
        bandwidth_down: link.bandwidth_down,
        rtt_seconds: link.rtt_seconds,
        log_records: core.queue().len() as u64,
        log_bytes,
        log_limit_bytes: mount.volume.options.log_max,
        writers,
        to_send_bytes: to_send(mount, &core),
        unsafe_bytes: core.unsafe_bytes(),
        unsafe_oldest_seconds: oldest_unsafe(mount, &core),
        waits_for: oldest.map_or_else(String::new, |seq| waits.words(core.queue(), seq, None)),
        cache_bytes,
        cache_is_counted: mount.disk.containers.are_counted(),
        cache_limit_bytes,
        cache_size_bytes: mount.volume.options.cache_size,
        promises: core.tree().promises(mount.host.now()) as u64,
        marks: core.tree().marked() as u64,
        pulls: core.sharing().pulls,
        waits: core.sharing().waits,
        conflicts,
        conflicts_beside,
        refused: mount.disk.for_user.refused.count(),
        fetching,
        link,
        bandwidth: mount.limiter.told(),
    }
}

/// Pending records, oldest first, and then what is written and not sealed yet.
pub(super) fn log_listing(mount: &Mount) -> LogReply {
    let (now, wall) = (mount.host.now(), mount.host.wall());
    let waits = why_changes_wait(mount);
    let core = mount.host.lock();
    let last = core.queue().iter().nth(LOG_MAX).map_or(u64::MAX, |(logged, _)| logged.seq);
    let follows = core.queue().follows(last);
    let records = core.queue().iter().take(LOG_MAX).map(|(logged, at)| LogRecord {
        seq: logged.seq,
        kind: logged.change.kind().into(),
        path: core.tree().path(logged.change.ino()),
        class: core.queue().class_of(logged).name().into(),
        bytes: logged.change.bytes(),
        age_seconds: age(logged, at, now, wall),
        waits_for: waits.words(core.queue(), logged.seq, follows.get(&logged.seq).copied()),
    });
    let mut records: Vec<LogRecord> = records.collect();
    let unsealed = core.unsealed().into_iter().take(LOG_MAX - records.len());
    records.extend(unsealed.map(|ino| LogRecord {
        seq: 0,
        kind: "write".into(),
        path: core.tree().path(ino),
        class: Class::StoreData.name().into(),
        bytes: core.data_of(ino).map_or(0, FileData::dirty_bytes),
        age_seconds: core.unsealed_since(ino).map_or(0.0, |since| now.since(since).as_secs_f64()),
        waits_for: match core.lm(ino) {
            lm @ Lm::Delay(_) => format!("its time ({lm}), an fsync, or a rename"),
            _ => "its close, or a few seconds while it stays open".into(),
        },
    }));
    LogReply { records }
}

/// What is known of why changes wait.
fn why_changes_wait(mount: &Mount) -> Waits {
    Waits {
        is_offline: mount.remote.is_offline(),
        is_denied: is_denied(mount),
        is_silent: mount.remote.is_silent(),
        uploading: mount.write_back.uploading(),
        hindered: mount.wakes.lanes.hindered(),
    }
}

/// Age of the oldest change that the server lacks, sealed or not.
fn oldest_unsafe(mount: &Mount, core: &Host) -> f64 {
    let (now, wall) = (mount.host.now(), mount.host.wall());
    let oldest = core.queue().iter().next().map(|(logged, at)| age(logged, at, now, wall));
    let unsealed = core.unsealed().into_iter().filter_map(|ino| core.unsealed_since(ino));
    let unsealed = unsealed.map(|since| now.since(since).as_secs_f64());
    unsealed.chain(oldest).fold(0.0, f64::max)
}

/// Where the file at `path` below the mount point is.
pub(super) async fn locate(mount: &Shared, path: &[u8], alone: bool) -> WhereFile {
    match locate_inner(mount, path, alone).await {
        Ok(found) => found,
        Err(refusal) => WhereFile {
            path: String::from_utf8_lossy(path).into_owned(),
            error: refusal.to_string(),
            ..WhereFile::default()
        },
    }
}

/// What is at `path` below the mount point.
pub(crate) async fn find(mount: &Mount, path: &[u8]) -> Result<Attr, Refusal> {
    let mut ino = Ino::ROOT;
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let name = Name::new(part)?;
        ino = mount.lookup(ino, &name).await?.ok_or(Refusal::NotFound)?.ino;
    }
    mount.getattr(ino).await
}

async fn locate_inner(mount: &Shared, path: &[u8], alone: bool) -> Result<WhereFile, Refusal> {
    let attr = find(mount, path).await?;
    let ino = attr.ino;
    let kept = mount.disk.index.file(ino).ok().flatten();
    let core = mount.host.lock();
    let below = match attr.kind == Kind::Directory && !alone {
        true => core.unsent_below(ino, path),
        false => UnsentBelow::default(),
    };
    let cached_bytes = match (core.data_of(ino), kept) {
        (Some(file), _) => file.valid().bytes(),
        (None, Some(note)) if note.version == attr.data_version => note.valid.bytes(),
        _ => 0,
    };
    let is_written = core.data_of(ino).is_some_and(FileData::is_ahead);
    let dirty = is_written || core.tree().is_pending(ino) || core.queue().newest_of(ino).is_some();
    let level = match dirty || below.files > 0 {
        true => "host",
        false if core.tree().is_marked(ino) => "other",
        false => "server",
    };
    let from = core.tree().lm(ino).map(|(_, from)| core.tree().path(from));
    let from = from.map(|path| if path.is_empty() { ".".into() } else { path });
    Ok(WhereFile {
        path: String::from_utf8_lossy(path).into_owned(),
        ino: ino.0,
        level: level.into(),
        below: Below { files: below.files, bytes: below.bytes },
        cached_bytes,
        size: if attr.kind == Kind::Directory { 0 } else { attr.size },
        dirty,
        shared: false,
        version: attr.data_version.to_string(),
        lm: core.lm(ino).to_string(),
        lm_from: from.unwrap_or_default(),
        error: String::new(),
    })
}
