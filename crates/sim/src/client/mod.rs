//! A client: core's `Host` in a process that can die, above a disk that does not.
//!
//! It mirrors `segue-client`: first the log, then containers, then the core; what is not in the
//! log did not happen. What is cached is noted on the disk now and then, and comes back from
//! there. A call to the server suspends what asked: [`Stop::Ask`] carries the request, and the
//! operation starts over when the reply has been taken in.

mod calls;
mod change;
mod chores;
mod chunks;
mod copied;
mod data;
mod drain;
mod merges;
mod outcomes;
mod promises;
mod shell;
mod torn;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use segue_core::host::Host;
use segue_core::host::call::Call;
use segue_core::nouns::{Caller, ClientId, Ino, Record, Time, Timestamp};
use segue_core::refusal::Refusal;
use segue_core::wire::Request;

use crate::Violation;
use crate::check::acknowledged::Acknowledged;
use crate::disk::{HostDisk, Kept};
use crate::plan::Bug;
use crate::server::Server;
use crate::work::{Answered, Op};
pub(crate) use calls::{Ended, Purpose};
use chores::Chores;
use chunks::Chunks;
use merges::Merging;
use outcomes::Hearing;
use promises::SimSession;
use shell::{Asking, Ran};

/// Where the server promises nothing its answers are believed for so long.
pub(crate) const POLL: Duration = Duration::from_secs(1);
/// Low, so that the core's limit is reached.
pub(crate) const NODE_LIMIT: usize = 12;
/// Low, as files are small.
const CLONE_MIN: u64 = 8;
/// Low, so that a run has more batches.
const BATCH_MAX: u64 = 1000;
/// One change in so many goes before others.
const RAISED_EVERY: u64 = 11;
/// 2026-11-21, when virtual time begins.
pub(crate) const EPOCH_SECS: i64 = 1_795_219_200;

/// Why an operation does not go on.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Stop {
    /// It failed.
    Refused(Refusal),
    /// The server must answer this first.
    Ask(Box<Asking>),
    /// A violation.
    Broken(Violation),
    /// It must wait for an outcome that is on its way.
    Later,
}

/// The result of what a disk may refuse, inside of what must never happen.
type Tried<R> = Result<Result<R, Refusal>, Violation>;

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

/// An application's thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    op: Option<Op>,
    tries: u32,
    waits: bool,
    /// The file that it has opened.
    opened: Option<Ino>,
    /// Its last call is under way.
    changing: Option<Changing>,
    /// The answer to that.
    answered: Option<Result<Answered, Refusal>>,
    /// Its operation is over as far as others see it, and these calls of it wait for outcomes.
    hearing: Vec<Hearing>,
}

/// A thread's change of names that is under way.
#[derive(Clone, Copy, Debug)]
struct Changing {
    /// The inode that it is about if it changes nothing.
    ino: Option<Ino>,
    /// How many entries the log had when it began. The model does one operation after another: one
    /// that others came in between begins anew.
    since: u64,
}

/// A running client.
pub(crate) struct Mount {
    pub(crate) id: ClientId,
    pub(crate) core: Host,
    pub(crate) disk: HostDisk,
    pub(crate) now: Time,
    pub(crate) is_offline: bool,
    pub(crate) threads: Vec<Thread>,
    /// Calls that are not answered.
    calls: BTreeMap<u64, Purpose>,
    next_call: u64,
    /// Calls of the host.
    host_calls: u64,
    /// There may be quotas, and it is to be asked what they have left.
    pub(crate) has_limits: bool,
    wants_room: bool,
    pub(crate) merging: Merging,
    chores: Chores,
    /// Calls of the operation under way that wait for outcomes.
    heard: Vec<Hearing>,
    /// Requests to be sent, with the number of their call and what comes behind them.
    pub(crate) outbox: Vec<(u64, Request, Vec<u8>)>,
    /// Open files.
    pub(crate) handles: Vec<Ino>,
    /// Stores that the server wants whole, and whose base cannot be had.
    baseless: BTreeSet<u64>,
    bug: Option<Bug>,
    pub(crate) refused: u64,
    said_hello: bool,
    pub(crate) session: SimSession,
    /// It heard an outcome that it could not log.
    unsettled: bool,
    pub(crate) chunks: Chunks,
    /// It fetches what is missing of files that are looked at or changed.
    pub(crate) reads_ahead: bool,
    /// What was changed is sent a while later.
    pub(crate) lingers: bool,
    /// Its threads are process groups and sessions of their own, and sync files.
    pub(crate) has_sessions: bool,
    /// Whose doing this is.
    caller: Caller,
    /// What of its numbers the next hello says.
    said: copied::Said,
    pub(crate) copied: copied::Copied,
    /// What the wall clock is ahead, in seconds.
    pub(crate) ahead: i64,
}

impl Mount {
    /// Starts a process on what an earlier one left; calls are numbered from `next_call`.
    pub(crate) fn start(
        (kept, acknowledged): (Kept, Acknowledged),
        (threads, next_call): (usize, u64),
        bug: Option<Bug>,
        now: Time,
    ) -> Result<Mount, Violation> {
        let mut mount = Mount::new((kept, acknowledged), (threads, next_call), bug, now);
        mount.disk.recover(&mut mount.core, u32::MAX, now)?;
        mount.say_hello();
        Ok(mount)
    }

    /// Starts a process that dies after so many steps of its recovery, if there are so many.
    pub(crate) fn die_recovering(
        left: (Kept, Acknowledged),
        bug: Option<Bug>,
        now: Time,
        steps: u32,
    ) -> Result<(Kept, Acknowledged), Violation> {
        let mut mount = Mount::new(left, (0, 0), bug, now);
        mount.disk.recover(&mut mount.core, steps, now)?;
        Ok((mount.disk.kept, mount.disk.acknowledged))
    }

    fn new(
        (kept, acknowledged): (Kept, Acknowledged),
        (threads, next_call): (usize, u64),
        bug: Option<Bug>,
        now: Time,
    ) -> Mount {
        let mut core = Host::new(NODE_LIMIT, kept.seq_reserved.max(1));
        core.settings.clone_min = CLONE_MIN;
        core.settings.batch_max = BATCH_MAX;
        bug.and_then(Bug::fault).into_iter().for_each(|fault| core.plant(fault));
        Mount {
            id: kept.client(),
            said: copied::Said::of(&kept),
            copied: copied::Copied::default(),
            core,
            disk: HostDisk::new(kept, acknowledged, bug),
            now,
            is_offline: true,
            threads: vec![Thread::default(); threads],
            calls: BTreeMap::new(),
            next_call,
            host_calls: 0,
            heard: Vec::new(),
            merging: Merging::default(),
            chores: Chores::default(),
            has_limits: false,
            wants_room: true,
            outbox: Vec::new(),
            handles: Vec::new(),
            baseless: BTreeSet::new(),
            bug,
            refused: 0,
            said_hello: false,
            session: SimSession::start(next_call),
            unsettled: false,
            chunks: Chunks::default(),
            reads_ahead: false,
            lingers: false,
            has_sessions: false,
            caller: Caller::default(),
            ahead: 0,
        }
    }

    /// The process dies: what it leaves, and the number of its next call.
    pub(crate) fn die(self) -> (Kept, Acknowledged, u64) {
        (self.disk.kept, self.disk.acknowledged, self.next_call)
    }

    fn log_record(&mut self, record: Record) -> Tried<()> {
        let caller = self.caller.clone();
        let call = Call::Change { record, caller, claim: None, expects: None };
        let logged = self.host_call(call)?.map(drop);
        self.raise_newest();
        Ok(logged)
    }

    /// Asks what quotas have left, at first and when something was changed since.
    fn ask_for_room(&mut self) {
        if self.is_offline || !self.has_limits || !std::mem::take(&mut self.wants_room) {
            return;
        }
        let mut quotas = self.core.room.wanted();
        quotas.insert(None);
        for quota in quotas {
            let request = Request::Statfs(quota.unwrap_or(Ino::ROOT));
            self.call(request, Purpose::Room(quota));
        }
    }

    fn wall(&self) -> Timestamp {
        let secs = i64::try_from(self.now.0.as_secs()).unwrap_or(0);
        Timestamp { secs: EPOCH_SECS + secs + self.ahead, nanos: self.now.0.subsec_nanos() }
    }

    /// The chores that the real client does every few seconds.
    pub(crate) fn tick(&mut self) -> Result<(), Violation> {
        for ino in self.core.due_to_seal(self.now) {
            self.seal_early(ino)?;
        }
        self.core.shrink(self.now);
        self.time_comes()?;
        self.disk.sync(&self.core);
        self.disk.note(&mut self.core, self.now);
        self.disk.sweep(&mut self.core);
        self.disk.clean_cache(&mut self.core);
        self.disk.kept.lost_power &= self.core.is_in_doubt();
        self.ask_for_room();
        self.merge()
    }

    /// Closes every file that is open, and has everything sent.
    pub(crate) fn close_all(&mut self) -> Result<(), Violation> {
        while !self.handles.is_empty() {
            self.close(0, false)?;
        }
        for ino in self.core.to_seal_at_end().0 {
            self.seal_early(ino)?;
        }
        self.core.queue.release_all();
        self.tick()
    }

    /// Does `op` with a server that answers at once.
    pub(crate) fn at_once<R>(
        &mut self,
        server: &mut Server,
        op: impl Fn(&mut Mount) -> Result<R, Stop>,
    ) -> Result<Result<R, Refusal>, Violation> {
        self.core.tree.set_poll(POLL);
        let mut asked = None;
        for _ in 0..64 {
            let mut asking = match op(self) {
                Ok(result) => return Ok(Ok(result)),
                Err(Stop::Refused(refusal)) => return Ok(Err(refusal)),
                Err(Stop::Ask(asking)) => asking,
                Err(Stop::Broken(violation)) => return Err(violation),
                Err(Stop::Later) => return Err(Violation("waits for nothing".into())),
            };
            loop {
                let answer = server.answer(self.id, &asking.request, &[])?;
                match self.tell(asking.call, answer, &asking.request, self.now)? {
                    Ran::Answered(Err(refusal)) => return Ok(Err(refusal)),
                    Ran::Answered(Ok(_))
                    | Ran::Later
                    | Ran::Hears(_)
                    | Ran::Delivers(_)
                    | Ran::Keeps(_) => break,
                    Ran::Waits(next) => asking = next,
                }
            }
            asked = Some(asking.request);
        }
        Err(Violation(format!("asks again for ever: {asked:?}")))
    }
}
