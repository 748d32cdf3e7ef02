//! What several hosts saw of files, held against what SEMANTICS.md promises.
//!
//! Each file, and each name in a directory, has one host that changes it, and goes through states
//! 0, 1, 2.. in order. Everybody looks at it. Then each of these is a fault:
//!
//! * a state that nobody had begun to make;
//! * one that is older than what the host that makes them had made, whatever died in between;
//! * one that is older than what the same host had seen, unless its mount was killed in between;
//! * where the host was connected, one that is older than what was synced a second before it
//!   looked: for so long a host believes what nobody has promised. A host whose link was cut while
//!   it looked was not connected, also if it was before and afterwards.

use std::collections::BTreeMap;

/// Nanoseconds since the start of the history.
pub(super) type Moment = u64;

/// What a host did, from when to when.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) host: usize,
    pub(super) began: Moment,
    pub(super) ended: Moment,
    pub(super) did: Did,
}

/// What.
#[derive(Clone, Debug)]
pub(super) enum Did {
    /// It made `state` of `file`; not `surely` if the call failed.
    Made { file: String, state: u64, surely: bool },
    /// It saw `file` in one of these states; `connected` before and afterwards, without a break.
    Saw { file: String, states: Vec<u64>, connected: bool },
    /// What it had made is what others see.
    Synced,
    /// Its mount was killed, and is there again.
    Killed,
    /// Its link was down.
    Cut,
}

/// What is known of one file.
#[derive(Default)]
struct File {
    /// For each state when it was begun, and when it was surely made.
    made: Vec<(u64, Moment, Option<Moment>)>,
    /// When others saw which state at the latest.
    visible: Vec<(Moment, u64)>,
    /// When a host had seen which state.
    seen: BTreeMap<usize, Vec<(Moment, u64)>>,
}

impl File {
    fn newest_begun(&self, by: Moment) -> u64 {
        let begun = self.made.iter().filter(|(_, began, _)| *began <= by);
        begun.map(|(state, ..)| *state).max().unwrap_or(0)
    }

    fn newest_made(&self, by: Moment) -> u64 {
        let is_made = |made: &Option<Moment>| made.is_some_and(|made| made <= by);
        let made = self.made.iter().filter(|(.., made)| is_made(made));
        made.map(|(state, ..)| *state).max().unwrap_or(0)
    }
}

fn newest(moments: &[(Moment, u64)], by: Moment) -> u64 {
    let before = moments.iter().filter(|(moment, _)| *moment <= by);
    before.map(|(_, state)| *state).max().unwrap_or(0)
}

/// The first fault, in words.
pub(super) fn fault(history: &[Event], maker: impl Fn(&str) -> usize) -> Option<String> {
    let mut files: BTreeMap<&str, File> = BTreeMap::new();
    let mut killed: BTreeMap<usize, Vec<(Moment, Moment)>> = BTreeMap::new();
    for event in history {
        match &event.did {
            Did::Made { file, state, surely } => {
                let made = surely.then_some(event.ended);
                files.entry(file).or_default().made.push((*state, event.began, made));
            }
            Did::Killed => {
                killed.entry(event.host).or_default().push((event.began, event.ended));
            }
            Did::Saw { .. } | Did::Synced | Did::Cut => {}
        }
    }
    for event in history.iter().filter(|event| matches!(event.did, Did::Synced)) {
        for (name, file) in &mut files {
            if maker(name) == event.host {
                let state = file.newest_made(event.began);
                file.visible.push((event.ended, state));
            }
        }
    }
    let cuts: Vec<&Event> = history.iter().filter(|event| matches!(event.did, Did::Cut)).collect();
    let mut looks: Vec<&Event> = history.iter().collect();
    looks.sort_by_key(|event| event.ended);
    for event in looks {
        let Did::Saw { file: name, states, connected } = &event.did else { continue };
        let Event { host, began, ended, .. } = *event;
        let file = files.entry(name).or_default();
        let is_cut = |cut: &Event| cut.host == host && cut.began <= ended && began <= cut.ended;
        let is_connected = *connected && !cuts.iter().copied().any(is_cut);
        let killed = killed.get(&host).into_iter().flatten();
        let killed = killed.filter(|(killed, _)| *killed <= ended);
        let since = killed.map(|(_, is_back)| *is_back).max().unwrap_or(0);
        let seen = file.seen.entry(host).or_default();
        let seen: Vec<_> = seen.iter().copied().filter(|(moment, _)| *moment >= since).collect();
        let floors = [
            ("it had made", if maker(name) == host { file.newest_made(began) } else { 0 }),
            ("it had seen", newest(&seen, began)),
            ("was synced", if is_connected { newest(&file.visible, began) } else { 0 }),
        ];
        let (why, floor) = floors.into_iter().max_by_key(|(_, floor)| *floor)?;
        let begun = file.newest_begun(ended);
        let Some(state) = states.iter().copied().filter(|state| *state >= floor).min() else {
            let synced = file.visible.iter().find(|(_, state)| *state >= floor);
            let [began, ended] = [began, ended].map(|at| at / 1_000_000);
            let synced = synced.map_or(0, |(at, _)| at / 1_000_000);
            return Some(format!(
                "{name}: host {host} saw {states:?} from {began} to {ended} ms, {floor} {why}; \
                 it was synced at {synced} ms"
            ));
        };
        if state > begun {
            return Some(format!("{name}: host {host} saw {state}, and {begun} was begun"));
        }
        file.seen.entry(host).or_default().push((ended, state));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "file";

    fn event(host: usize, (began, ended): (Moment, Moment), did: Did) -> Event {
        Event { host, began, ended, did }
    }

    fn made(at: (Moment, Moment), state: u64, surely: bool) -> Event {
        event(0, at, Did::Made { file: FILE.into(), state, surely })
    }

    fn saw(host: usize, at: (Moment, Moment), state: u64, connected: bool) -> Event {
        event(host, at, Did::Saw { file: FILE.into(), states: vec![state], connected })
    }

    fn is_faulty(history: &[Event]) -> bool {
        fault(history, |_| 0).is_some()
    }

    #[test]
    fn what_was_not_begun_is_a_fault() {
        assert!(!is_faulty(&[made((1, 9), 1, true), saw(1, (2, 3), 1, true)]));
        assert!(is_faulty(&[made((5, 9), 1, true), saw(1, (2, 3), 1, true)]));
        assert!(is_faulty(&[made((1, 9), 1, true), saw(1, (12, 13), 2, true)]));
        assert!(!is_faulty(&[made((1, 9), 1, false), saw(1, (12, 13), 1, true)]), "it may be made");
    }

    #[test]
    fn what_a_host_has_made_stays_made() {
        let history = |state| {
            let killed = event(0, (3, 4), Did::Killed);
            [made((1, 2), 1, true), killed, saw(0, (5, 6), state, false)]
        };
        assert!(!is_faulty(&history(1)));
        assert!(is_faulty(&history(0)));
        assert!(!is_faulty(&[made((1, 2), 1, false), saw(0, (5, 6), 0, true)]), "it failed");
        assert!(!is_faulty(&[made((1, 2), 1, true), saw(1, (5, 6), 0, true)]), "not synced");
    }

    #[test]
    fn nobody_sees_what_was_before_unless_killed() {
        let back = [made((1, 2), 1, true), saw(1, (3, 4), 1, false), saw(1, (5, 6), 0, false)];
        assert!(is_faulty(&back));
        let mut killed = back.to_vec();
        killed.push(event(1, (4, 5), Did::Killed));
        assert!(!is_faulty(&killed));
        let together = [made((1, 2), 1, true), saw(1, (3, 6), 1, false), saw(1, (5, 7), 0, false)];
        assert!(!is_faulty(&together), "the first was not over when the second began");
    }

    #[test]
    fn what_was_synced_is_seen_by_who_is_connected() {
        let history = |state, connected| {
            let (synced, later) = (event(0, (3, 4), Did::Synced), 5);
            [made((1, 2), 1, true), synced, saw(1, (later, later + 1), state, connected)]
        };
        assert!(is_faulty(&history(0, true)));
        assert!(!is_faulty(&history(0, false)) && !is_faulty(&history(1, true)));
        let cut = |host, at| [&history(0, true)[..], &[event(host, at, Did::Cut)]].concat();
        assert!(!is_faulty(&cut(1, (4, 5))) && !is_faulty(&cut(1, (6, 9))));
        assert!(is_faulty(&cut(1, (3, 4))) && is_faulty(&cut(0, (5, 6))), "others, and earlier");
        let early = [made((1, 4), 1, true), event(0, (3, 5), Did::Synced), saw(1, (6, 7), 0, true)];
        assert!(!is_faulty(&early), "it was made while that synced");
    }

    /// A name that is not there may not have been made yet, or be removed.
    #[test]
    fn what_is_absent_is_in_the_state_that_fits() {
        let absent = |at| {
            let did = Did::Saw { file: FILE.into(), states: vec![0, 2], connected: true };
            event(1, at, did)
        };
        let (make, remove) = (made((3, 4), 1, true), made((7, 8), 2, true));
        let both = [make.clone(), absent((1, 2)), saw(1, (5, 6), 1, true), absent((9, 10)), remove];
        assert!(!is_faulty(&both));
        assert!(is_faulty(&[make, saw(1, (5, 6), 1, true), absent((9, 10))]));
    }
}
