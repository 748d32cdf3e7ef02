//! Data that a call waits for: missing bytes of a file come from the server.
//!
//! ```text
//!   missing ─▶ room on the disk ─▶ Fetch ─▶ here
//!                                    └─▶ the server has another version ─▶ catch up ─▶ again
//! ```
//!
//! Gaps are fetched one by one. The call waits for bytes that another call fetches, or the shell
//! reads ahead.

use std::ops::Range;
use std::time::Duration;

use super::{Answer, Call, Look, Next, Running, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Gap, Load, Now, Patience, Task, Undone};
use crate::host::cache::Sight;
use crate::nouns::{ContainerId, Ino, Time, Version};
use crate::refusal::Refusal;

/// So often the same data of the same version are tried to be fetched: each time the server had
/// another version, or data that were fetched are missing again.
const ATTEMPTS: u32 = 16;
/// A wait for the outcome of the file's own store ends if nothing is settled for this long..
const TURN: Duration = Duration::from_secs(1);
/// ..and after this long in any case: the store itself may be what waits.
const TURNS: Duration = Duration::from_secs(10);

/// Data that are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchCall {
    /// The file.
    pub ino: Ino,
    /// Which bytes, as far as they are before its end.
    pub range: Range<u64>,
    /// They go to the caller and not into the cache, which has no room for them.
    pub passes: bool,
}

/// Bytes of a file as a reader finds them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Here {
    /// Where they all are, if they are all here.
    pub container: Option<ContainerId>,
    /// The file's size.
    pub size: u64,
    /// What to fetch ahead of the reader.
    pub ahead: Option<Range<u64>>,
}

/// How far a fetch came.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    attempts: u32,
    /// The version that was tried last, and how many of its bytes were missing.
    tried: Option<(Version, u64)>,
    /// The server has another version than this one.
    changed: Option<Version>,
    /// The call waits since then for the outcome of the file's own store.
    waits_since: Option<Time>,
    /// The caller has the bytes of the file in this state.
    passed: Option<Sight>,
}

impl Host {
    /// Tells a reader where `range` of `ino` is, and which bytes to fetch before they are read:
    /// `window` at most.
    pub fn here(&mut self, ino: Ino, range: &Range<u64>, window: u64) -> Result<Here, Refusal> {
        let size = self.tree.peek(ino).ok_or(Refusal::Stale)?.size;
        let file = self.file(ino).ok_or(Refusal::Stale)?;
        let ahead = file.read_ahead(range.clone(), size, window);
        let container = file.is_valid(range.clone(), size).then(|| file.container());
        Ok(Here { container, size, ahead })
    }

    /// Which parts of `range`, fetched of `version`, go into `container` of `ino`: nothing newer is
    /// there.
    pub fn to_fill(
        &mut self,
        (ino, container): (Ino, ContainerId),
        range: Range<u64>,
        version: Version,
    ) -> Result<Vec<Range<u64>>, Refusal> {
        let file = self.file(ino).ok_or(Refusal::Stale)?;
        let is_it = file.container() == container;
        Ok(if is_it { file.fillable(range, version) } else { Vec::new() })
    }

    /// These parts are in the container, unless the file has another one or other data by now.
    pub fn filled(
        &mut self,
        (ino, container): (Ino, ContainerId),
        parts: Vec<Range<u64>>,
        version: Version,
    ) {
        let file = self.files.get_mut(&ino);
        let file = file.filter(|file| file.container() == container && file.version() == version);
        if let Some(file) = file {
            parts.into_iter().for_each(|part| file.filled(part));
        }
    }

    /// Marks `range` of `ino` as being fetched, for whom may want it. Returns the version.
    pub fn fetch_began(&mut self, ino: Ino, range: Range<u64>) -> Option<Version> {
        let file = self.file(ino)?;
        file.fetch_began(range);
        Some(file.version())
    }

    /// That fetch ended, with or without result.
    pub fn fetch_ended(&mut self, ino: Ino, range: Range<u64>) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.fetch_ended(range);
        }
        self.progress += 1;
    }

    pub(super) fn attempt_fetch(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Fetch(FetchCall { ino, range, passes }) = &call.call else {
            return Err(Refusal::Invalid);
        };
        let (ino, range, passes) = (*ino, range.clone(), *passes);
        self.go_on_inner(id, call, now)?;
        if call.inner.is_some() || self.loads(id, call, ino) {
            return Ok(Next::Step);
        }
        let is_late = std::mem::take(&mut call.so_far.is_late);
        if self.waits_for_clone(id, call, ino, is_late)? {
            return Ok(Next::Step);
        }
        if let Some(version) = call.so_far.fetching.changed
            && self.catches_up(id, call, (ino, version), is_late, now)?
        {
            return Ok(Next::Step);
        }
        let sight = self.sight(ino, &range).ok_or(Refusal::Stale)?;
        let is_here = if passes {
            call.so_far.fetching.passed.as_ref() == Some(&sight)
        } else {
            sight.missing.is_empty()
        };
        if is_here {
            return Ok(Next::Reply(Answer::default()));
        }
        let missing = sight.missing.iter().map(|gap| gap.end - gap.start).sum();
        if passes {
            call.so_far.fetching.tries(sight.version, missing)?;
            call.step = Some(Step::Pass(sight.clone()));
            self.act(Action::Pass(id, sight));
        } else if call.so_far.has_room || !self.makes_cache_room(id, call, missing, now)? {
            self.fetches_gap(id, call, sight, missing)?;
        }
        Ok(Next::Step)
    }

    /// Loads what is noted of the data of `ino`, unless that is in memory. It leaves memory once it
    /// is noted and nobody has the file open. True if that is under way.
    pub(super) fn loads(&mut self, id: CallId, call: &mut Running, ino: Ino) -> bool {
        let is_unknown = !self.files.contains_key(&ino);
        if is_unknown {
            call.step = Some(Step::Load(Load::Data(ino)));
            self.act(Action::Load(id, Load::Data(ino)));
        }
        is_unknown
    }

    /// Fetches the first gap that nobody is fetching, or waits for those who are.
    fn fetches_gap(
        &mut self,
        id: CallId,
        call: &mut Running,
        Sight { ino, range, version, .. }: Sight,
        missing: u64,
    ) -> Result<(), Refusal> {
        let file = self.file(ino).ok_or(Refusal::Stale)?;
        let gap = file.to_fetch(range.clone(), range.end).into_iter().next();
        let Some(range) = gap else {
            // However often some fetch ends meanwhile, nothing was tried here.
            self.awaits(id, call, Patience::Ever, Some((ino, range)));
            return Ok(());
        };
        call.so_far.fetching.tries(version, missing)?;
        file.fetch_began(range.clone());
        let gap = Gap { ino, version, range };
        call.step = Some(Step::Fetch(gap.clone()));
        self.act(Action::Fetch(id, gap));
        Ok(())
    }

    /// Waits until it is known whether `ino` got another file's data, if that is asked for. True if
    /// that is under way.
    fn waits_for_clone(
        &mut self,
        id: CallId,
        call: &mut Running,
        ino: Ino,
        is_late: bool,
    ) -> Result<bool, Refusal> {
        if !self.is_cloning(ino) {
            return Ok(false);
        }
        if is_late {
            return Err(Refusal::Unreachable);
        }
        self.awaits(id, call, Patience::AtMost(self.settings.grace), None);
        Ok(true)
    }

    /// The server has another version than `version`, which was being fetched: finds out which.
    /// True if that is under way.
    fn catches_up(
        &mut self,
        id: CallId,
        call: &mut Running,
        (ino, version): (Ino, Version),
        is_late: bool,
        now: Now,
    ) -> Result<bool, Refusal> {
        // Our own store made that version, and its outcome is on the way; or another host did, and
        // the rest of our base is gone: the store will become a conflict copy.
        let file = self.files.get(&ino).filter(|file| file.is_ahead());
        let waits = file.is_some_and(|file| file.version() == version);
        let fetching = &mut call.so_far.fetching;
        if waits {
            // As long as other changes are settled, this file's turn comes.
            let is_over = |since: Time| is_late || now.time.since(since) >= TURNS;
            if fetching.waits_since.is_some_and(is_over) {
                return Err(Refusal::Stale);
            }
            fetching.waits_since.get_or_insert(now.time);
            self.awaits(id, call, Patience::AtMost(TURN), None);
            return Ok(true);
        }
        fetching.changed = None;
        let has_waited = fetching.waits_since.take().is_some();
        if has_waited || file.is_some() {
            return Ok(false);
        }
        let anew = Call::Look(Look::AttrAnew(ino));
        Ok(self.begin_inner(id, call, anew, now)?.is_none())
    }

    /// Finds room for `more` bytes in the cache, perhaps where others were. True if that is under
    /// way.
    fn makes_cache_room(
        &mut self,
        id: CallId,
        call: &mut Running,
        more: u64,
        now: Now,
    ) -> Result<bool, Refusal> {
        match self.reserve_space(more, now.time) {
            Some(true) => {
                call.so_far.has_room = true;
                return Ok(false);
            }
            Some(false) if call.so_far.has_evicted => return Err(Refusal::NoSpace),
            Some(false) => {
                call.step = Some(Step::Evict);
                self.act(Action::Evict(id));
            }
            None => {
                call.step = Some(Step::Load(Load::FreeSpace));
                self.act(Action::Load(id, Load::FreeSpace));
            }
        }
        Ok(true)
    }

    /// Takes in the end of a fetch.
    pub(super) fn fetched(
        &mut self,
        call: &mut Running,
        gap: Gap,
        done: Result<(), Undone>,
    ) -> Result<(), Refusal> {
        self.fetch_ended(gap.ino, gap.range);
        self.wake(Task::Fetched);
        call.so_far.fetching.took(gap.version, done)
    }

    /// The caller has got the bytes of a file in this state, or has not.
    pub(super) fn passed(
        call: &mut Running,
        sight: Sight,
        done: Result<(), Undone>,
    ) -> Result<(), Refusal> {
        let fetching = &mut call.so_far.fetching;
        fetching.took(sight.version, done)?;
        fetching.passed = Some(sight);
        Ok(())
    }

    /// Changes whenever something was settled or fetched.
    pub fn progress(&self) -> u64 {
        self.progress
    }
}

impl Fetching {
    /// One more attempt. Data of another version, or fewer that are missing, are another matter.
    fn tries(&mut self, version: Version, missing: u64) -> Result<(), Refusal> {
        let is_same = self.tried.replace((version, missing)) == Some((version, missing));
        self.attempts = if is_same { self.attempts + 1 } else { 1 };
        if self.attempts > ATTEMPTS { Err(Refusal::Io) } else { Ok(()) }
    }

    fn took(&mut self, version: Version, done: Result<(), Undone>) -> Result<(), Refusal> {
        match done {
            Err(undone) if undone.refusal == Refusal::Changed => self.changed = Some(version),
            done => done.map_err(|undone| undone.refusal)?,
        }
        Ok(())
    }
}
