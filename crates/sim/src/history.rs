//! What several hosts saw of files that all of them save, held against what a level of consistency
//! promises. The same checks serve simulated hosts and real mounts.
//!
//! Each save has contents that no other save has: its state. State 0 is what was there at first.
//! One event is before another if it ended when the other had not begun; events of which neither is
//! before the other are concurrent.

pub mod callback;
pub mod linear;

use std::collections::BTreeMap;

/// Nanoseconds since the start.
pub type Moment = u64;
/// Which save made the contents of a file.
pub type State = u64;

/// What a host did with a file, from when to when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Which host.
    pub host: usize,
    /// Which file.
    pub file: usize,
    /// The call began.
    pub began: Moment,
    /// It returned.
    pub ended: Moment,
    /// What.
    pub did: Did,
}

/// What a host did with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// It gave the file the contents of this state, or may have: not `surely` if the call failed,
    /// or if the contents became a conflict copy.
    Saved {
        /// The new one.
        state: State,
        /// The file surely had it.
        surely: bool,
    },
    /// It opened the file, read all of it, and found this state.
    Read(State),
}

impl Did {
    fn state(self) -> State {
        match self {
            Did::Saved { state, .. } | Did::Read(state) => state,
        }
    }
}

/// A save, as a check needs it.
#[derive(Clone, Copy, Debug)]
struct Save {
    host: Option<usize>,
    began: Moment,
    /// [`Moment::MAX`] if it may take effect at any time.
    ended: Moment,
}

impl Save {
    /// What was there at first.
    const FIRST: Save = Save { host: None, began: 0, ended: 0 };

    fn is_before(&self, other: &Save) -> bool {
        self.ended < other.began
    }
}

/// The saves of one file.
fn saves(history: &[Event], file: usize) -> BTreeMap<State, Save> {
    let of_file = history.iter().filter(|event| event.file == file);
    let saves = of_file.filter_map(|event| match event.did {
        Did::Saved { state, surely } => {
            let ended = if surely { event.ended } else { Moment::MAX };
            Some((state, Save { host: Some(event.host), began: event.began, ended }))
        }
        Did::Read(_) => None,
    });
    std::iter::once((0, Save::FIRST)).chain(saves).collect()
}

/// A read of what nobody had begun to save, in words.
fn unsaved(read: &Event, state: State, saves: &BTreeMap<State, Save>) -> Option<String> {
    let is_begun = saves.get(&state).is_some_and(|save| save.began <= read.ended);
    (!is_begun).then(|| format!("{}, which nobody had saved", words(read)))
}

fn words(event: &Event) -> String {
    let Event { host, file, began, ended, did } = event;
    let [began, ended] = [began, ended].map(|at| at / 1_000_000);
    let what = match did {
        Did::Saved { surely: true, .. } => "saved",
        Did::Saved { surely: false, .. } => "may have saved",
        Did::Read(_) => "read",
    };
    format!("file {file}: host {host} {what} {} from {began} to {ended} ms", did.state())
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) fn saved(host: usize, (began, ended): (Moment, Moment), state: State) -> Event {
        Event { host, file: 0, began, ended, did: Did::Saved { state, surely: true } }
    }

    pub(crate) fn read(host: usize, (began, ended): (Moment, Moment), state: State) -> Event {
        Event { host, file: 0, began, ended, did: Did::Read(state) }
    }

    /// The same of another file.
    pub(crate) fn other(event: Event) -> Event {
        Event { file: 1, ..event }
    }

    /// The save may have happened, or not.
    pub(crate) fn perhaps(event: Event) -> Event {
        match event.did {
            Did::Saved { state, .. } => Event { did: Did::Saved { state, surely: false }, ..event },
            Did::Read(_) => event,
        }
    }
}
