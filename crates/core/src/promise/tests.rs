//! Who hears of what, and when it is visible.

use proptest::prelude::*;

use super::*;

const VOLUME: VolumeId = VolumeId(1);

/// A session of another client than those before.
fn enter(promises: &mut Promises, volume: VolumeId) -> SessionId {
    let number = u8::try_from(promises.next_session).unwrap_or(u8::MAX);
    promises.enter(volume, ClientId([number; 16]))
}

fn take(promises: &mut Promises, id: SessionId) -> Vec<u64> {
    let taken = promises.take_breaks(id, usize::MAX).into_iter().map(|ino| ino.0).collect();
    promises.heard(id);
    taken
}

fn promise(promises: &mut Promises, id: SessionId, inodes: &[Ino]) {
    let ask = promises.ask();
    assert_eq!(promises.answered(ask, id, inodes), Promised::default());
}

/// Of which of `inodes` changes are not promised.
fn but(promises: &mut Promises, ask: Ask, id: SessionId, inodes: &[Ino]) -> Vec<u64> {
    promises.answered(ask, id, inodes).promising.but.iter().map(|ino| ino.0).collect()
}

/// Proves S6.8.
#[test]
fn others_hear_of_a_change_once_and_its_author_does_not() {
    let mut promises = Promises::new(100, 100, 0);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    for id in [a, b] {
        promise(&mut promises, id, &[Ino(7), Ino(8)]);
    }
    assert_eq!(promises.changed([(VOLUME, Ino(7))], Some(a)), BTreeSet::from([b]));
    assert_eq!(promises.changed([(VOLUME, Ino(7))], Some(a)), BTreeSet::new());
    assert_eq!(promises.changed([(VolumeId(2), Ino(8))], None), BTreeSet::new());
    assert_eq!((take(&mut promises, a), take(&mut promises, b)), (vec![], vec![7]));
    assert_eq!(take(&mut promises, b), []);
    assert_eq!(
        promises.changed([(VOLUME, Ino(7)), (VOLUME, Ino(8))], None),
        BTreeSet::from([a, b])
    );
    assert_eq!(promises.held(), 0);
}

/// Proves S6.2.
#[test]
fn a_change_is_visible_once_all_others_have_heard_of_it_or_are_gone() {
    let mut promises = Promises::new(100, 100, 0);
    let [a, b, c] = [(); 3].map(|()| enter(&mut promises, VOLUME));
    for id in [a, b, c] {
        promise(&mut promises, id, &[Ino(7), Ino(8)]);
    }
    promises.changed([(VOLUME, Ino(7))], Some(a));
    let first = promises.now();
    promises.changed([(VOLUME, Ino(8))], Some(b));
    let second = promises.now();
    let visible = |promises: &Promises, id| {
        [first, second].map(|moment| promises.is_visible(VOLUME, id, moment))
    };
    assert!(promises.is_visible(VolumeId(2), a, second));
    assert_eq!(promises.take_breaks(b, 1), [Ino(7)]);
    assert_eq!(promises.take_breaks(c, 1), [Ino(7)]);
    assert_eq!(promises.take_breaks(c, 1), [], "one at a time");
    assert_eq!(visible(&promises, a), [false, false]);
    promises.heard(b);
    promises.leave(c, Time::default());
    assert_eq!(visible(&promises, a), [true, true]);
    assert_eq!(visible(&promises, b), [true, false], "a has not heard of the second");
    assert_eq!(promises.take_breaks(a, 1), [Ino(8)]);
    promises.heard(a);
    assert_eq!(visible(&promises, b), [true, true]);
}

/// Who removed a file was promised to hear of it for as long as it was connected.
#[test]
fn of_what_is_gone_nothing_is_promised() {
    let mut promises = Promises::new(100, 100, 0);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    for id in [a, b] {
        promise(&mut promises, id, &[Ino(7), Ino(8)]);
    }
    let gone = [(VOLUME, Ino(7))];
    let change = Change { objects: vec![gone[0], (VOLUME, Ino(9))], gone: gone.into() };
    let given = promises.committed_by(Some(a), &change, &[Ino(7), Ino(9)]);
    assert_eq!(given, Promised::but([Ino(7)].into_iter().collect(), [b].into()));
    assert_eq!((promises.held(), take(&mut promises, b)), (3, vec![7]));
    let other = Change { objects: vec![(VOLUME, Ino(9))], ..Change::default() };
    assert_eq!(promises.committed_by(Some(b), &other, &[Ino(9)]).told, [a].into());
    assert_eq!(take(&mut promises, a), [9], "the author was promised what it made");
    promises.leave(a, Time::default());
    assert_eq!(promises.held(), 2);
    assert_eq!(promises.committed_by(None, &other, &[]).told, [b].into());
}

#[test]
fn a_session_has_heard_of_a_commit_with_the_answer_to_its_break() {
    let mut promises = Promises::new(100, 100, 40);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    assert_eq!(promises.hold(b, &[Ino(7), Ino(8)]), Promised::default());
    promises.changed([(VOLUME, Ino(7))], Some(a));
    assert_eq!(promises.heard_through(b), 40);
    promises.committed(41);
    assert_eq!((promises.heard_through(a), promises.heard_through(b)), (41, 40));
    assert_eq!(promises.take_breaks(b, 1), [Ino(7)]);
    assert_eq!(promises.heard_through(b), 40);
    promises.heard(b);
    assert_eq!(promises.heard_through(b), 41);
    promises.leave(b, Time::default());
    assert_eq!(promises.changed([(VOLUME, Ino(8))], Some(a)), BTreeSet::new());
    assert_eq!(promises.held(), 0);
}

/// What came while a session was told is told behind that.
#[test]
fn what_breaks_during_a_break_is_not_visible_with_it() {
    let mut promises = Promises::new(100, 100, 0);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    promise(&mut promises, b, &[Ino(7), Ino(8), Ino(9)]);
    promises.changed([(VOLUME, Ino(7)), (VOLUME, Ino(8))], Some(a));
    let first = promises.now();
    assert_eq!(promises.take_breaks(b, 1), [Ino(7)]);
    promises.changed([(VOLUME, Ino(9))], Some(a));
    let second = promises.now();
    promises.heard(b);
    assert!(!promises.is_visible(VOLUME, a, first), "8 is not heard");
    assert_eq!(take(&mut promises, b), [8, 9]);
    assert!(promises.is_visible(VOLUME, a, second));
}

/// The answer was read before the change, and got its promise behind it.
/// Proves S6.10.
#[test]
fn what_changed_while_it_was_read_is_not_promised() {
    let mut promises = Promises::new(100, 100, 0);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    let ask = promises.ask();
    promises.changed([(VOLUME, Ino(7))], Some(b));
    assert_eq!(but(&mut promises, ask, a, &[Ino(7), Ino(8)]), [7]);
    assert_eq!(promises.changed([(VOLUME, Ino(8))], Some(b)), BTreeSet::from([a]));
    let [first, second] = [promises.ask(), promises.ask()];
    promises.changed([(VOLUME, Ino(7))], Some(a));
    assert_eq!(but(&mut promises, first, a, &[Ino(7)]), [], "its own changes are no news to it");
    promises.changed([(VOLUME, Ino(8))], Some(b));
    promises.changed([(VOLUME, Ino(8))], Some(a));
    assert_eq!(but(&mut promises, second, a, &[Ino(8)]), [8]);
    assert!(promises.changed.is_empty());
}

/// A host that had looked at more than it may be promised was promised nothing any more.
#[test]
fn where_there_is_no_room_those_that_were_promised_before_are_broken() {
    let mut promises = Promises::new(4, 3, 0);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    promise(&mut promises, a, &[Ino(1), Ino(2), Ino(3)]);
    let given = promises.hold(a, &[Ino(9)]);
    assert_eq!((given.promising.but.len(), given.told), (0, BTreeSet::from([a])));
    let given = promises.hold(b, &[Ino(1), Ino(2)]);
    assert_eq!((given.promising.but.len(), given.told), (0, BTreeSet::from([a])), "a has most");
    assert_eq!((take(&mut promises, a), promises.held()), (vec![1, 2], 4));
    let ask = promises.ask();
    assert_eq!(but(&mut promises, ask, b, &[1, 2, 3, 4].map(Ino)), [1, 2, 3, 4]);
    promise(&mut promises, a, &[Ino(3), Ino(9)]);
    let given = promises.hold(a, &[Ino(1), Ino(2)]);
    assert_eq!((given.told, promises.held()), (BTreeSet::from([a, b]), 4), "both bounds");
    assert_eq!(promises.changed([(VOLUME, Ino(1))], None), BTreeSet::from([a]));
}

#[test]
fn promises_and_what_is_remembered_are_bounded() {
    let mut promises = Promises::new(3, 2, 0);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    promise(&mut promises, a, &[Ino(1), Ino(2)]);
    promises.leave(a, Time::default());
    assert_eq!(promises.held(), 0);
    let ask = promises.ask();
    promises.changed((10..14).map(|ino| (VOLUME, Ino(ino))), None);
    assert!(promises.changed.is_empty());
    assert_eq!(but(&mut promises, ask, b, &[Ino(99)]), [99], "it may have been among them");
    promise(&mut promises, b, &[Ino(10)]);
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize),
    Read(usize),
    Answer(usize),
    Change(Option<usize>, u64),
    Hear(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3usize).prop_map(Step::Ask),
        (0..8usize).prop_map(Step::Read),
        (0..8usize).prop_map(Step::Answer),
        (prop::option::of(0..3usize), 0..3u64).prop_map(|(by, ino)| Step::Change(by, ino)),
        (0..3usize).prop_map(Step::Hear),
    ]
}

/// A question under way, and what was read for it.
type Question = (Ask, usize, Option<[u64; 3]>, usize);

proptest! {
    /// Whatever a session believes under a promise is so, or it has a break to hear.
    #[test]
    fn what_is_promised_is_so(steps in prop::collection::vec(step(), 0..80), limit in 3..10usize) {
        let mut promises = Promises::new(limit, 3, 0);
        let ids = [(); 3].map(|()| enter(&mut promises, VOLUME));
        let mut truth = [0u64; 3];
        let mut believed = [[None::<u64>; 3]; 3];
        let mut open: Vec<Question> = Vec::new();
        // When sessions last heard that inodes had changed.
        let mut heard = [[0; 3]; 3];
        for (now, step) in steps.into_iter().enumerate() {
            match step {
                Step::Ask(who) => open.push((promises.ask(), who, None, now)),
                Step::Read(at) if at < open.len() => open[at].2 = Some(truth),
                Step::Answer(at) if at < open.len() => {
                    let (ask, who, read, asked) = open.remove(at);
                    let read = read.unwrap_or(truth);
                    let all = [0, 1, 2].map(Ino);
                    let but = but(&mut promises, ask, ids[who], &all);
                    // To a question from before a break an answer is worth nothing.
                    let is_new = |ino: &usize| heard[who][*ino] <= asked;
                    for ino in (0..3).filter(|ino| !but.contains(&(*ino as u64))).filter(is_new) {
                        // What it changed itself meanwhile it knows better.
                        let known = believed[who][ino].unwrap_or(0);
                        believed[who][ino] = Some(read[ino].max(known));
                    }
                }
                Step::Change(by, ino) => {
                    truth[ino as usize] += 1;
                    promises.changed([(VOLUME, Ino(ino))], by.map(|by| ids[by]));
                    if let Some(by) = by {
                        believed[by][ino as usize] = Some(truth[ino as usize]);
                    }
                }
                Step::Hear(who) => {
                    for ino in take(&mut promises, ids[who]) {
                        believed[who][ino as usize] = None;
                        heard[who][ino as usize] = now;
                    }
                }
                _ => {}
            }
            for (who, id) in ids.iter().enumerate() {
                let session = &promises.sessions[id];
                for ino in 0..3u64 {
                    let holds = session.promised.contains(&Ino(ino));
                    // A break may come behind the answer to a later question: then the
                    // session does not believe what it was promised.
                    if let Some(believed) = believed[who][ino as usize]
                        && holds
                        && !session.broken.contains(&Ino(ino))
                    {
                        prop_assert_eq!(believed, truth[ino as usize]);
                    }
                }
            }
        }
    }
}

#[test]
fn sessions_that_were_promised_an_inode_are_its_likely_holders() {
    let mut promises = Promises::new(9, 9, 0);
    let [one, two, three] = [1, 1, 2].map(|volume| enter(&mut promises, VolumeId(volume)));
    let likely = |promises: &Promises| promises.likely_holders((VolumeId(1), Ino(7)));
    assert_eq!(likely(&promises), [one, two]);
    let _ = promises.hold(two, &[Ino(7)]);
    assert_eq!(likely(&promises), [two, one]);
    promises.leave(two, Time::default());
    assert_eq!(likely(&promises), [one]);
    assert_eq!(promises.likely_holders((VolumeId(2), Ino(7))), [three]);
}

/// A host that has changed a file says so at once, and others ask before they open it.
#[test]
fn who_relies_on_a_marked_file_hears_of_it_and_is_told_that_it_is() {
    let mut promises = Promises::new(100, 100, 0);
    let [a, b] = [(); 2].map(|()| enter(&mut promises, VOLUME));
    for id in [a, b] {
        promise(&mut promises, id, &[Ino(7), Ino(8)]);
    }
    let inodes = |numbers: &[u64]| numbers.iter().copied().map(Ino).collect::<Inodes>();
    let changed = Marked::from([(Ino(7), Mark::default())]);
    let dirty = Dirty { changed: changed.clone(), ..Dirty::default() };
    assert_eq!(promises.dirty(a, &dirty), BTreeSet::from([b]));
    assert_eq!((take(&mut promises, b), take(&mut promises, a)), (vec![7], vec![]));
    let marked = |promises: &mut Promises, id| {
        let ask = promises.ask();
        promises.answered(ask, id, &[Ino(7), Ino(8)]).promising
    };
    let expected = Promising { but: Inodes::default(), marked: changed };
    assert_eq!(marked(&mut promises, b), expected);
    assert_eq!(marked(&mut promises, a), Promising::default(), "not to who wrote it");
    assert_eq!(promises.writers(b, Ino(7), Time::default()).0.len(), 1);
    promises.leave(a, Time::default());
    assert_eq!(promises.writers(b, Ino(7), Time::default()).0.len(), 1, "its host is away");
    let again = promises.enter(VOLUME, ClientId([0; 16]));
    promises.dirty(again, &Dirty { clean: inodes(&[7]), ..Dirty::default() });
    assert_eq!((marked(&mut promises, b), promises.marks()), (Promising::default(), 0));
}
