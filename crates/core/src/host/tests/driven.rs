//! A host whose actions a test looks at one call after the other.

use super::*;
use crate::host::action::{Action, CallId, Done, Event, Now, Undone};
use crate::host::call::Call;

pub(super) fn actions(host: &mut Host) -> Vec<Action> {
    std::iter::from_fn(|| host.poll_action()).collect()
}

pub(super) fn call(host: &mut Host, id: u64, call: Call, now: Now) -> Vec<Action> {
    host.handle(Event::Call { id: CallId(id), call }, now);
    actions(host)
}

pub(super) fn done(host: &mut Host, id: u64, done: Result<Done, Refusal>, now: Now) -> Vec<Action> {
    let mut event = Event::Done { id: CallId(id), done: done.map_err(Undone::from) };
    loop {
        host.handle(event, now);
        let actions = actions(host);
        match actions[..] {
            // There are no data.
            [Action::LogMaps(id, _)] => event = Event::Done { id, done: Ok(Done::Carried) },
            _ => return actions,
        }
    }
}
