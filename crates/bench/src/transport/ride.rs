//! A ride: a host's link goes through a trace, and is looked at each second.

use std::thread;
use std::time::{Duration, Instant};

use super::trace::Trace;
use super::wrong;
use segue_bed::{Host, Result};

/// The link at the beginning of a second, or at the end of the last one.
#[derive(Debug, Clone)]
struct Mark<T> {
    carried: [u64; 2],
    seen: T,
}

/// What one second brought.
#[derive(Debug, Clone)]
pub(super) struct Second<T> {
    /// Bytes that the link carried from the host and to it.
    pub(super) carried: [u64; 2],
    /// What was seen when it began, and when it was over.
    pub(super) seen: [T; 2],
}

/// Changes the host's link as `trace` says, from `start` on, and looks at each change. Its link
/// must be the first of the trace already.
pub(super) fn ride<T: Clone>(
    host: &Host,
    trace: &Trace,
    queue_bytes: u64,
    start: Instant,
    mut look: impl FnMut() -> T,
) -> Result<Vec<Second<T>>> {
    let mut mark = || -> Result<Mark<T>> {
        let carried = host.carried().ok_or_else(|| wrong("the link has no relay"))?;
        Ok(Mark { carried, seen: look() })
    };
    let mut marks = Vec::new();
    let mut is_down = false;
    for (second, moment) in (0..).zip(&trace.moments) {
        sleep_until(start + Duration::from_secs(second));
        marks.push(mark()?);
        host.set_link(moment.link(queue_bytes))?;
        if std::mem::replace(&mut is_down, moment.is_outage()) != moment.is_outage() {
            if moment.is_outage() { host.link_down() } else { host.link_up() }?;
        }
    }
    sleep_until(start + trace.time());
    marks.push(mark()?);
    let second = |marks: &[Mark<T>]| match marks {
        [before, after] => Some(Second {
            carried: [0, 1].map(|way: usize| after.carried[way] - before.carried[way]),
            seen: [before.seen.clone(), after.seen.clone()],
        }),
        _ => None,
    };
    Ok(marks.windows(2).filter_map(second).collect())
}

fn sleep_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}
