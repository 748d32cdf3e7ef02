//! Opens: whether the file is the one that its name means, and whose data will be read.
//!
//! Between hosts the data of the last close before an open are read. So the server is asked if it
//! has not promised to tell of them, unless this host is ahead of it or nobody waits for closes.
//! Data that are not here are asked for at once: whether another host removed the file since its
//! name was looked up can be told from an open, with which the kernel begins anew, but not from a
//! read.

use super::{Answer, Call, FetchCall, Look, Next, Running};
use crate::host::Host;
use crate::host::action::{CallId, Now, Reach};
use crate::host::cache::Known;
use crate::nouns::Ino;
use crate::refusal::Refusal;

/// A file up to this size is fetched when it is opened: one question, as for its attributes alone.
const SMALL: u64 = 64 << 10;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenCall {
    /// The file.
    pub ino: Ino,
    /// To be written.
    pub writable: bool,
    /// To be emptied: its data are not read.
    pub truncates: bool,
    /// The kernel opens it once more after it was told that the open is stale. Then the file is
    /// taken as it is.
    pub is_second: bool,
}

/// How far an open came.
#[derive(Debug, Default)]
pub(super) struct Opening {
    /// The size that the kernel knew before anything was asked.
    known: Option<Option<u64>>,
    part: Part,
}

/// The part of an open that is next, or under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Part {
    #[default]
    Look,
    Ask,
    LookAnew,
    Data,
    Fetch,
    Nothing,
}

impl Host {
    pub(super) fn attempt_open(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Result<Next, Refusal> {
        let Call::Open(open) = call.call else { return Err(Refusal::Invalid) };
        if open.writable && self.settings.is_read_only {
            return Err(Refusal::ReadOnly);
        }
        if call.so_far.opening.known.is_none() {
            let known = self.tree.peek(open.ino).map(|attr| self.shown(*attr, now).size);
            call.so_far.opening.known = Some(known);
            if self.tree.peek(open.ino).is_some() {
                call.so_far.opening.part = Part::Ask;
            }
        }
        let was_inside = call.has_inner();
        if was_inside {
            let ended = self.go_on_inner(id, call, now);
            if call.inner.is_some() {
                return Ok(Next::Step);
            }
            call.so_far.opening.ended(ended.map(drop))?;
        }
        loop {
            let part = call.so_far.opening.part;
            let part = match part {
                Part::Look => Call::Look(Look::Attr(open.ino)),
                Part::Ask if self.asks_before_open(open.ino, now) => {
                    self.sharing.waits += u64::from(self.tree.is_marked(open.ino));
                    Call::Look(Look::AttrToOpen(open.ino))
                }
                Part::Ask if now.link == Reach::Offline && self.tree.lacks_contents(open.ino) => {
                    return Err(Refusal::Hidden);
                }
                Part::Ask => {
                    call.so_far.opening.part = Part::Data;
                    continue;
                }
                Part::LookAnew => Call::Look(Look::AttrAnew(open.ino)),
                Part::Data if self.loads(id, call, open.ino) => return Ok(Next::Step),
                Part::Data => {
                    call.so_far.opening.part = self.part_for_data(&open, now)?;
                    continue;
                }
                Part::Fetch => {
                    let range = 0..self.tree.peek(open.ino).ok_or(Refusal::Stale)?.size;
                    Call::Fetch(FetchCall { ino: open.ino, range, passes: false })
                }
                Part::Nothing => return self.end_open(&open, call.so_far.opening.known, now),
            };
            match self.begin_inner(id, call, part, now) {
                Ok(None) => return Ok(Next::Step),
                ended => call.so_far.opening.ended(ended.map(drop))?,
            }
        }
    }

    /// True if a close of another host may have changed `ino`, and this host does not have that: it
    /// has not heard of it, or has heard that the server waits for it.
    fn asks_before_open(&self, ino: Ino, now: Now) -> bool {
        let is_fresh = matches!(self.tree.attr(ino, now.time), Known::Fresh(_));
        let is_old = !is_fresh || self.tree.is_marked(ino);
        let is_unheard = self.lm(ino).closes() && !self.tree.is_promised(ino, now.time);
        let asks = match now.link {
            Reach::Offline => false,
            Reach::Silent => is_unheard,
            Reach::Online => is_unheard || is_old,
        };
        asks && !self.tree.is_pending(ino)
    }

    /// What follows from what is here of the data.
    fn part_for_data(&mut self, open: &OpenCall, now: Now) -> Result<Part, Refusal> {
        let size = self.tree.peek(open.ino).ok_or(Refusal::Stale)?.size;
        let is_read = !open.truncates && now.link == Reach::Online;
        let is_here = self.file(open.ino).is_some_and(|file| file.is_valid(0..size, size));
        Ok(match size > SMALL {
            _ if !is_read || is_here || self.tree.is_pending(open.ino) => Part::Nothing,
            true => Part::LookAnew,
            false => Part::Fetch,
        })
    }

    /// Answers an open of a file that is still there, and as long as the kernel knows: it ends
    /// reads at the size that it knows, and fills its last page with zeros where a file became
    /// shorter. An open that is stale it begins anew with the name, of which the answer has the
    /// size. A second time it would tell the program.
    fn end_open(
        &mut self,
        open: &OpenCall,
        known: Option<Option<u64>>,
        now: Now,
    ) -> Result<Next, Refusal> {
        let size = self.tree.peek(open.ino).ok_or(Refusal::Stale)?.size;
        let is_new = known.flatten().is_some_and(|known| known != size);
        let is_stale = !open.is_second
            && (self.is_removed_elsewhere(open.ino)
                || is_new && self.handles.opens_anew(open.ino, now.time));
        if is_stale {
            return Err(Refusal::Stale);
        }
        Ok(Next::Reply(Answer { ino: Some(open.ino), ..Answer::default() }))
    }
}

impl Opening {
    /// The part that was under way is over.
    fn ended(&mut self, result: Result<(), Refusal>) -> Result<(), Refusal> {
        self.part = match (self.part, result) {
            (Part::Look, Ok(())) => Part::Ask,
            (Part::Ask, Ok(())) => Part::Data,
            (Part::Fetch, Err(Refusal::Stale)) => Part::LookAnew,
            // A read tells of anything else.
            (Part::Fetch, _) => Part::Nothing,
            (_, result) => result.map(|()| Part::Nothing)?,
        };
        Ok(())
    }
}
