//! Room: whether a quota has any left, as far as this host knows.
//!
//! What the server will surely refuse is refused before it is accepted. What is known is what
//! the server last said, less what was changed here and is pending. Of that only what is certain
//! counts: bytes beyond the end that a file had, not those that may stand in the place of
//! others. A host that errs accepts, and hears from the server: an answer is taken to have in it
//! all that is on its way when it comes, so that nothing is counted twice.
//!
//! The shell asks for what is [`Room::wanted`], as often as it likes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::host::log::Queue;
use crate::nouns::{Ino, Time};
use crate::wire::Space;

/// How old knowledge may be before the server is asked again.
const RENEWED: Duration = Duration::from_secs(2);
/// How old it may be and refuse anything, while the server can be asked: a few questions.
const TRUSTED: Duration = Duration::from_secs(10);

/// The directory whose quota it is; `None`: the volume's.
pub type Quota = Option<Ino>;

/// What is known of the room of a volume and its directories with quotas.
#[derive(Clone, Debug, Default)]
pub struct Room {
    /// At most as many as a volume has quotas, and itself.
    known: BTreeMap<Quota, Known>,
    wanted: BTreeSet<Quota>,
    /// What changes of the queue add.
    queued: BTreeMap<u64, Growths>,
    /// What was written to files since they were sealed.
    unsealed: BTreeMap<Ino, Growths>,
    /// All of both.
    pending: BTreeMap<Quota, Growth>,
    /// Those of them that went out.
    sent: BTreeSet<u64>,
}

/// What the server said.
#[derive(Clone, Copy, Debug)]
struct Known {
    bytes: u64,
    inodes: u64,
    at: Time,
}

/// What a change adds to a quota. It may take away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    /// Whose, beside the volume's.
    pub quota: Quota,
    /// Bytes.
    pub bytes: i64,
    /// Inodes.
    pub inodes: i64,
}

/// What a change adds to several quotas: its file had another one meanwhile.
#[derive(Clone, Debug, Default)]
struct Growths(Vec<Growth>);

impl Growths {
    fn plus(&mut self, more: Growth) {
        match self.0.iter_mut().find(|growth| growth.quota == more.quota) {
            Some(growth) => growth.plus(more),
            None => self.0.push(more),
        }
    }
}

impl Growth {
    fn plus(&mut self, other: Growth) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }

    fn negated(self) -> Growth {
        Growth { bytes: self.bytes.saturating_neg(), inodes: -self.inodes, ..self }
    }

    /// The quotas that it counts against.
    fn quotas(self) -> impl Iterator<Item = Quota> {
        [Some(None), self.quota.map(Some)].into_iter().flatten()
    }
}

impl Room {
    /// Whether the server would surely refuse `more`. What is not known well enough is wanted.
    pub fn refuses(&mut self, more: Growth, now: Time, is_offline: bool) -> bool {
        let mut refuses = false;
        for quota in more.quotas() {
            let known = self.known.get(&quota);
            if known.is_none_or(|known| now.since(known.at) >= RENEWED) {
                self.wanted.insert(quota);
            }
            let trusted = |known: &&Known| is_offline || now.since(known.at) < TRUSTED;
            let Some(known) = known.filter(trusted) else { continue };
            let mut all = self.pending.get(&quota).copied().unwrap_or_default();
            all.plus(more);
            refuses |= more.bytes > 0 && is_beyond(all.bytes, known.bytes);
            refuses |= more.inodes > 0 && is_beyond(all.inodes, known.inodes);
        }
        refuses
    }

    /// True if the shell should ask the server.
    pub fn is_wanting(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// What the shell should ask about.
    pub fn wanted(&mut self) -> BTreeSet<Quota> {
        std::mem::take(&mut self.wanted)
    }

    /// The server's answer.
    pub fn told(&mut self, quota: Quota, space: &Space, now: Time) {
        let (mut bytes, mut inodes) = (space.room_bytes, space.free_inodes);
        let sent = self.sent.iter().filter_map(|seq| self.queued.get(seq));
        for growth in sent.flat_map(|growths| &growths.0) {
            if growth.quotas().any(|other| other == quota) {
                bytes = bytes.saturating_add(positive(growth.bytes));
                inodes = inodes.saturating_add(positive(growth.inodes));
            }
        }
        self.known.insert(quota, Known { bytes, inodes, at: now });
    }

    /// Notes that change `seq` is being sent.
    pub fn mark_sending(&mut self, seq: u64) {
        self.sent.insert(seq);
    }

    /// A file grew by a write.
    pub(in crate::host) fn wrote(&mut self, ino: Ino, growth: Growth) {
        self.add(growth);
        self.unsealed.entry(ino).or_default().plus(growth);
    }

    /// What was written to a file is change `seq` now.
    pub(in crate::host) fn sealed(&mut self, seq: u64, ino: Ino) {
        if let Some(growths) = self.unsealed.remove(&ino) {
            let queued = self.queued.entry(seq).or_default();
            growths.0.into_iter().for_each(|growth| queued.plus(growth));
        }
    }

    /// What was change `seq` is written and not sealed.
    pub(in crate::host) fn unsealed(&mut self, seq: u64, ino: Ino) {
        self.sent.remove(&seq);
        if let Some(growths) = self.queued.remove(&seq) {
            let unsealed = self.unsealed.entry(ino).or_default();
            growths.0.into_iter().for_each(|growth| unsealed.plus(growth));
        }
    }

    /// What was written to a file goes nowhere.
    pub(in crate::host) fn dropped(&mut self, ino: Ino) {
        for growth in self.unsealed.remove(&ino).unwrap_or_default().0 {
            self.add(growth.negated());
        }
    }

    /// Change `seq` was made.
    pub(in crate::host) fn changed(&mut self, seq: u64, growth: Growth) {
        self.add(growth);
        self.queued.entry(seq).or_default().plus(growth);
    }

    /// Change `seq` is settled, and was `done` or refused.
    pub(in crate::host) fn settled(&mut self, seq: u64, done: bool) {
        self.sent.remove(&seq);
        for growth in self.queued.remove(&seq).unwrap_or_default().0 {
            self.add(growth.negated());
            for quota in growth.quotas().filter(|_| done) {
                let Some(known) = self.known.get_mut(&quota) else { continue };
                known.bytes = less(known.bytes, growth.bytes);
                known.inodes = less(known.inodes, growth.inodes);
            }
        }
    }

    /// Change `by` is what change `earlier` was, if there was one.
    pub(in crate::host) fn superseded(&mut self, earlier: Option<u64>, by: u64) {
        self.settled(by, false);
        let growths = earlier.and_then(|seq| self.queued.get(&seq)).cloned();
        growths.unwrap_or_default().0.into_iter().for_each(|growth| self.changed(by, growth));
    }

    /// Panics if changes count that are not in the queue.
    pub(in crate::host) fn check_in_turn(&self, queue: &Queue) {
        let is_queued = |seq: &u64| queue.stage(*seq).is_some();
        let first = self.queued.keys().next().filter(|seq| !is_queued(seq));
        assert!(first.is_none(), "change {first:?} counts against quotas, and is gone");
        let counts = !self.queued.is_empty() || !self.unsealed.is_empty();
        assert!(counts || self.pending.is_empty(), "nothing counts against quotas");
    }

    /// Panics if the sums are not those of the changes.
    pub(in crate::host) fn check_invariants(&self, queue: &Queue) {
        self.check_in_turn(queue);
        let mut sums: BTreeMap<Quota, Growth> = BTreeMap::new();
        let all = self.queued.values().chain(self.unsealed.values());
        for growth in all.flat_map(|growths| &growths.0) {
            growth.quotas().for_each(|quota| sums.entry(quota).or_default().plus(*growth));
        }
        let sums = sums.into_iter().filter(|(_, sum)| (sum.bytes, sum.inodes) != (0, 0));
        let plain = |(quota, sum): (Quota, Growth)| (quota, sum.bytes, sum.inodes);
        let pending = self.pending.iter().map(|(quota, sum)| (*quota, *sum));
        assert!(sums.map(plain).eq(pending.map(plain)), "quotas count other changes");
        let gone = |seq: &&u64| queue.stage(**seq).is_none();
        let [queued, sent] = [self.queued.keys().find(gone), self.sent.iter().find(gone)];
        assert!(queued.is_none(), "change {queued:?} counts against quotas, and is gone");
        assert!(sent.is_none(), "change {sent:?} was sent, and is gone");
    }

    fn add(&mut self, growth: Growth) {
        for quota in growth.quotas() {
            let all = self.pending.entry(quota).or_default();
            all.plus(growth);
            if (all.bytes, all.inodes) == (0, 0) {
                self.pending.remove(&quota);
            }
        }
    }
}

fn positive(growth: i64) -> u64 {
    u64::try_from(growth).unwrap_or(0)
}

/// What is left of `room`; without a limit all of it.
fn less(room: u64, growth: i64) -> u64 {
    match room {
        u64::MAX => room,
        _ => {
            room.saturating_sub(positive(growth)).saturating_add(positive(growth.saturating_neg()))
        }
    }
}

fn is_beyond(growth: i64, room: u64) -> bool {
    u64::try_from(growth).is_ok_and(|growth| growth > room)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(Duration::from_secs(100));
    const LATER: Time = Time(Duration::from_secs(111));

    fn bytes(bytes: i64) -> Growth {
        Growth { bytes, ..Growth::default() }
    }

    fn space(room_bytes: u64, free_inodes: u64) -> Space {
        Space { total_bytes: 0, free_bytes: 0, inodes: 0, free_inodes, room_bytes }
    }

    fn room(room_bytes: u64) -> Room {
        let mut room = Room::default();
        room.told(None, &space(room_bytes, 1), NOW);
        room
    }

    /// The host refused changes below a quota that had room, or accepted some below one that had
    /// none.
    #[test]
    fn a_file_that_has_another_quota_meanwhile_counts_against_both() {
        let mut room = Room::default();
        let below = |quota, bytes| Growth { quota: Some(Ino(quota)), bytes, inodes: 0 };
        room.wrote(Ino(5), below(7, 10));
        room.sealed(1, Ino(5));
        room.wrote(Ino(5), below(8, 20));
        room.sealed(1, Ino(5));
        let pending = |room: &Room, quota| room.pending.get(&quota).map_or(0, |sum| sum.bytes);
        let quotas = [None, Some(Ino(7)), Some(Ino(8))];
        assert_eq!(quotas.map(|quota| pending(&room, quota)), [30, 10, 20]);
        room.unsealed(1, Ino(5));
        room.dropped(Ino(5));
        assert!(room.pending.is_empty(), "{room:?}");
    }

    /// Proves S21.4, S21.5.
    #[test]
    fn what_is_surely_too_much_is_refused_and_nothing_else() {
        assert!(!Room::default().refuses(bytes(i64::MAX), NOW, true), "nothing is known");
        let mut room = room(100);
        assert!(!room.refuses(bytes(100), NOW, false) && room.refuses(bytes(101), NOW, false));
        room.wrote(Ino(5), bytes(60));
        room.wrote(Ino(6), bytes(30));
        room.sealed(1, Ino(6));
        assert!(!room.refuses(bytes(10), NOW, false) && room.refuses(bytes(11), NOW, false));
        assert!(!room.refuses(bytes(0), NOW, false), "what replaces needs no room");
        let one = Growth { inodes: 1, ..Growth::default() };
        assert!(!room.refuses(one, NOW, false));
        room.changed(2, one);
        assert!(room.refuses(one, NOW, false));
        room.changed(3, one.negated());
        assert!(!room.refuses(one, NOW, false));
        room.dropped(Ino(5));
        assert!(!room.refuses(bytes(70), NOW, false) && room.refuses(bytes(71), NOW, false));
    }

    /// Proves S21.4.
    #[test]
    fn old_knowledge_refuses_only_while_nobody_can_be_asked() {
        let mut room = room(100);
        assert!(room.refuses(bytes(101), NOW, false) && !room.is_wanting());
        assert!(!room.refuses(bytes(101), LATER, false) && room.refuses(bytes(101), LATER, true));
        assert_eq!(room.wanted(), [None].into());
        assert!(!room.is_wanting());
        room.told(None, &space(u64::MAX, u64::MAX), LATER);
        assert!(!room.refuses(bytes(i64::MAX), LATER, false));
    }

    #[test]
    fn what_is_on_its_way_is_not_counted_twice() {
        let mut room = room(100);
        room.wrote(Ino(5), bytes(90));
        room.sealed(1, Ino(5));
        room.wrote(Ino(6), bytes(5));
        room.sealed(2, Ino(6));
        room.mark_sending(1);
        // The server has it already, and this host does not know that.
        room.told(None, &space(10, 1), NOW);
        assert!(!room.refuses(bytes(5), NOW, false) && room.refuses(bytes(6), NOW, false));
        room.settled(1, true);
        assert!(!room.refuses(bytes(5), NOW, false) && room.refuses(bytes(6), NOW, false));
        room.settled(2, false);
        assert!(!room.refuses(bytes(10), NOW, false) && room.refuses(bytes(11), NOW, false));
    }

    #[test]
    fn what_goes_makes_room_at_once_in_every_quota_it_counts_against() {
        let mut room = room(100);
        let quota = Some(Ino(9));
        let below = |bytes| Growth { quota, bytes, inodes: 0 };
        assert!(!room.refuses(below(50), NOW, false));
        assert_eq!(room.wanted(), [quota].into());
        room.told(quota, &space(10, 1), NOW);
        assert!(room.refuses(below(11), NOW, false) && !room.refuses(bytes(100), NOW, false));
        room.changed(1, below(-20));
        assert!(!room.refuses(below(30), NOW, false) && room.refuses(below(31), NOW, false));
        room.settled(1, true);
        assert!(!room.refuses(below(30), NOW, false) && room.refuses(below(31), NOW, false));
        assert!(!room.refuses(bytes(120), NOW, false) && room.refuses(bytes(121), NOW, false));
    }
}
