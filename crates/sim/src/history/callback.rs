//! What the level `callback` rules out, though not every read is of the latest save [MFS 5]:
//!
//! * a read of what was replaced, once the word of the later save had time for its trip;
//! * of what the same host had seen replaced;
//! * of what was replaced by a save that its host had made before another one, of any file, which
//!   the reader had seen.

use std::collections::BTreeMap;

use super::{Did, Event, Moment, Save, State, saves, unsaved, words};

/// The first fault, in words. `trip`: for so long other hosts may not have heard of a save.
pub fn fault(history: &[Event], trip: Moment) -> Option<String> {
    let mut files: BTreeMap<usize, BTreeMap<State, Save>> = BTreeMap::new();
    for event in history {
        files.entry(event.file).or_insert_with(|| saves(history, event.file));
    }
    let mut reads: Vec<(&Event, State)> = history
        .iter()
        .filter_map(|event| match event.did {
            Did::Read(state) => Some((event, state)),
            Did::Saved { .. } => None,
        })
        .collect();
    reads.sort_by_key(|(read, _)| read.began);
    reads.iter().enumerate().find_map(|(number, (read, state))| {
        let saves = &files[&read.file];
        let fault = unsaved(read, *state, saves);
        let seen = Seen { before: &reads[..number], files: &files, read };
        fault.or_else(|| {
            let found = saves.get(state)?;
            let (later, why) = seen.floors(trip).find(|(floor, _)| found.is_before(floor))?;
            let at = later.ended / 1_000_000;
            Some(format!("{}, and another save was over at {at} ms: {why}", words(read)))
        })
    })
}

/// A read, and what was read before it.
struct Seen<'a> {
    before: &'a [(&'a Event, State)],
    files: &'a BTreeMap<usize, BTreeMap<State, Save>>,
    read: &'a Event,
}

impl Seen<'_> {
    /// Saves of the file, none of which may have replaced what is read.
    fn floors(&self, trip: Moment) -> impl Iterator<Item = (Save, &'static str)> {
        let heard = self.read.began.checked_sub(trip);
        let heard = heard.and_then(|by| self.newest(|_| true, by)).map(|save| (save, "heard of"));
        let own = self.newest(|host| host == self.read.host, self.read.began);
        let own = own.map(|save| (save, "its own"));
        let seen = self.seen().filter(|(event, _)| event.file == self.read.file);
        let seen = seen.map(|(_, save)| (save, "it had read it"));
        let mut newest_of: BTreeMap<usize, Moment> = BTreeMap::new();
        for (host, began) in self.seen().filter_map(|(_, save)| Some((save.host?, save.began))) {
            let newest = newest_of.entry(host).or_default();
            *newest = began.max(*newest);
        }
        let inverted = newest_of.into_iter().filter_map(|(writer, began)| {
            let earlier = self.newest(|host| host == writer, began)?;
            Some((earlier, "it had read what was saved after it"))
        });
        heard.into_iter().chain(own).chain(seen).chain(inverted)
    }

    /// The saves that this host had read when it began to read.
    fn seen(&self) -> impl Iterator<Item = (&Event, Save)> {
        let own = self
            .before
            .iter()
            .filter(|(event, _)| event.host == self.read.host && event.ended <= self.read.began);
        own.filter_map(|(event, state)| Some((*event, *self.files[&event.file].get(state)?)))
    }

    /// The last save of the file by such a host that was surely over by then.
    fn newest(&self, by_whom: impl Fn(usize) -> bool, by: Moment) -> Option<Save> {
        let saves = self.files[&self.read.file].values();
        let over = saves.filter(|save| save.ended <= by && save.host.is_some_and(&by_whom));
        over.max_by_key(|save| save.began).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{other, perhaps, read, saved};
    use super::*;

    const TRIP: Moment = 10;

    fn is_faulty(history: &[Event]) -> bool {
        fault(history, TRIP).is_some()
    }

    #[test]
    fn a_save_is_read_after_the_trip_of_its_word() {
        let save = saved(0, (1, 3), 1);
        assert!(!is_faulty(&[save, read(1, (12, 15), 0)]));
        assert!(is_faulty(&[save, read(1, (13, 15), 0)]));
        assert!(!is_faulty(&[save, read(1, (13, 15), 1)]));
        assert!(is_faulty(&[save, read(0, (4, 5), 0)]), "its own save");
        assert!(!is_faulty(&[perhaps(save), read(1, (13, 15), 0)]));
        assert!(is_faulty(&[save, read(1, (1, 2), 9)]), "nobody saved that");
    }

    #[test]
    fn of_concurrent_saves_either_may_stay() {
        let both = [saved(0, (1, 3), 1), saved(1, (2, 4), 2)];
        for state in [1, 2] {
            assert!(!is_faulty(&[both[0], both[1], read(2, (20, 21), state)]));
        }
        assert!(is_faulty(&[both[0], both[1], read(2, (20, 21), 0)]));
    }

    #[test]
    fn nobody_goes_back() {
        let history = [saved(0, (1, 3), 1), read(1, (4, 5), 1), read(1, (6, 7), 0)];
        assert!(is_faulty(&history));
        let elsewhere = Event { host: 2, ..history[2] };
        assert!(!is_faulty(&[history[0], history[1], elsewhere]), "another host");
        let during = Event { began: 4, ..history[2] };
        assert!(!is_faulty(&[history[0], history[1], during]), "at the same time");
    }

    #[test]
    fn what_was_saved_before_is_seen_before() {
        let (first, then) = (saved(0, (1, 2), 1), other(saved(0, (3, 4), 1)));
        let seen = other(read(1, (5, 6), 1));
        assert!(is_faulty(&[first, then, seen, read(1, (7, 8), 0)]));
        assert!(!is_faulty(&[first, then, seen, read(1, (7, 8), 1)]));
        assert!(!is_faulty(&[first, then, seen, read(2, (7, 8), 0)]), "it has not seen that");
        let by_another = Event { host: 3, ..first };
        assert!(!is_faulty(&[by_another, then, seen, read(1, (7, 8), 0)]));
        let afterwards = saved(0, (5, 6), 1);
        assert!(!is_faulty(&[then, afterwards, seen, read(1, (7, 8), 0)]));
    }
}
