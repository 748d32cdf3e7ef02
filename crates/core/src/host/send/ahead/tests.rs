use proptest::prelude::*;

use super::*;
use crate::host::log::{Change, DataChange};
use crate::nouns::{
    Base, Caller, Class, ContainerId, Ino, Piece, PieceBytes, Record, SetAttr, Time, Timestamp,
    Version,
};

/// More than goes along with a record.
const LARGE: u64 = 300_000;

fn data(seq: u64, bytes: u64) -> DataChange {
    DataChange {
        ino: Ino(seq),
        container: ContainerId::default(),
        base: Base::Version(Version::default()),
        cut: None,
        size: bytes,
        ranges: vec![0..bytes],
        mtime: Timestamp::default(),
    }
}

fn push(queue: &mut Queue, seq: u64, bytes: u64) {
    queue.push(data(seq, bytes).logged(seq, Caller::default()), Time::default(), |_| false);
}

fn pick(ahead: &mut UploadAhead, queue: &Queue) -> Option<Picked> {
    ahead.pick(queue, LARGE * 2, &BTreeSet::new())
}

fn finish(ahead: &mut UploadAhead, queue: &Queue, picked: &Picked, refusal: Option<Refusal>) {
    let store = |logged: &Logged| {
        let len = logged.change.bytes();
        let hole = Piece { offset: 0, bytes: PieceBytes::Hole { len } };
        (logged.seq, data(logged.seq, len).store(vec![hole], None))
    };
    let made = picked.changes.iter().map(store).collect();
    ahead.uploaded(picked, refusal.map_or(Ok(made), Err), queue);
}

fn seqs(picked: &Picked) -> Vec<u64> {
    picked.changes.iter().map(|logged| logged.seq).collect()
}

/// A host slept while change 1 was being uploaded, and woke on another connection with a change
/// 2. Both were picked anew, and the first upload, which had gone on over the new connection, took
/// away from the second what that was about: change 2 was under way for ever.
#[test]
fn an_upload_of_an_earlier_connection_does_not_end_one_of_the_present() {
    let (mut ahead, mut queue) = (UploadAhead::default(), Queue::default());
    push(&mut queue, 1, LARGE);
    ahead.follow(Some([1; 32]));
    let early = pick(&mut ahead, &queue).unwrap();
    push(&mut queue, 2, LARGE);
    ahead.follow(Some([2; 32]));
    let late = pick(&mut ahead, &queue).unwrap();
    assert_eq!((seqs(&early), seqs(&late)), (vec![1], vec![1, 2]));
    finish(&mut ahead, &queue, &early, None);
    assert_eq!(ahead.passage(1, LARGE), Passage::Ahead, "the server has to be shown it again");
    finish(&mut ahead, &queue, &late, None);
    let ready = Passage::Ready(PIECE_BYTES);
    assert_eq!([1, 2].map(|seq| ahead.passage(seq, LARGE)), [ready, ready]);
}

#[test]
fn what_could_not_be_sent_is_picked_again_and_nothing_else() {
    let (mut ahead, mut queue) = (UploadAhead::default(), Queue::default());
    (1..=4).for_each(|seq| push(&mut queue, seq, LARGE));
    ahead.follow(Some([1; 32]));
    let [first, second] = [(); 2].map(|()| pick(&mut ahead, &queue).unwrap());
    assert_eq!((seqs(&first), seqs(&second)), (vec![1, 2], vec![3, 4]));
    finish(&mut ahead, &queue, &first, Some(Refusal::Unreachable));
    assert_eq!(pick(&mut ahead, &queue).map(|again| seqs(&again)), Some(vec![1, 2]));
    assert!(pick(&mut ahead, &queue).is_none());
}

/// The name of a new file goes before its data, and another one's data that are there.
#[test]
fn what_is_being_uploaded_holds_nothing_else_up() {
    let (mut ahead, mut queue) = (UploadAhead::default(), Queue::default());
    let set = |seq| {
        let set = Record::SetAttr { ino: Ino(seq + 1), set: SetAttr::default() };
        Logged { change: Change::Record(set), ..data(1, 0).logged(seq, Caller::default()) }
    };
    queue.push(set(1), Time::default(), |_| false);
    push(&mut queue, 2, LARGE);
    queue.push(set(3), Time::default(), |_| false);
    push(&mut queue, 5, LARGE);
    push(&mut queue, 6, LARGE);
    ahead.follow(Some([1; 32]));
    let picked = pick(&mut ahead, &queue).unwrap();
    assert_eq!(seqs(&picked), [2, 5]);
    assert_eq!(batch(&ahead, &queue, Lane::Metadata), [1, 3]);
    assert!(batch(&ahead, &queue, Lane::Data).is_empty());
    finish(&mut ahead, &queue, &picked, None);
    assert_eq!(batch(&ahead, &queue, Lane::Data), [5]);
    queue.settle(1);
    assert_eq!(batch(&ahead, &queue, Lane::Data), [2, 5]);
}

/// What is raised is no business of those that upload ahead, unless they have it already.
#[test]
fn what_is_raised_goes_by_itself() {
    let (mut ahead, mut queue) = (UploadAhead::default(), Queue::default());
    (1..=4).for_each(|seq| push(&mut queue, seq, LARGE));
    ahead.follow(Some([1; 32]));
    queue.raise(&BTreeSet::from([3]), ahead.uploading());
    let picked = pick(&mut ahead, &queue).unwrap();
    assert_eq!(seqs(&picked), [1, 2]);
    assert_eq!(batch(&ahead, &queue, Lane::Fast), [3]);
    assert!(batch(&ahead, &queue, Lane::Data).is_empty());
    let class = |queue: &Queue, seq| {
        let mut all = queue.iter().map(|(logged, _)| logged);
        queue.class_of(all.find(|logged| logged.seq == seq).unwrap())
    };
    assert_eq!([3, 4].map(|seq| class(&queue, seq)), [Class::StoreFast, Class::StoreData]);
    queue.raise(&BTreeSet::from([1]), ahead.uploading());
    assert_eq!(queue.raised_late(&[1]), Some(Class::StoreFast));
    assert_eq!(batch(&ahead, &queue, Lane::Fast), [3], "the other one is on its way");
    finish(&mut ahead, &queue, &picked, None);
    assert_eq!(batch(&ahead, &queue, Lane::Fast), [1]);
    queue.take(1);
    assert_eq!(batch(&ahead, &queue, Lane::Fast), [3]);
    queue.pull(&BTreeSet::from([3]), ahead.uploading());
    assert_eq!(batch(&ahead, &queue, Lane::Pulled), [3], "another host waits for it");
    assert_eq!(batch(&ahead, &queue, Lane::Fast), [0; 0]);
    queue.settle(3);
    assert_eq!(queue.raised().iter().copied().collect::<Vec<_>>(), [1]);
    let next = pick(&mut ahead, &queue);
    assert!(next.is_none_or(|next| seqs(&next) == [4]));
}

fn batch(ahead: &UploadAhead, queue: &Queue, lane: Lane) -> Vec<u64> {
    let batch = ahead.batch(queue, (lane, 1 << 20), &BTreeSet::new(), None);
    batch.iter().map(|logged| logged.seq).collect()
}

/// The chunks of change 1 took the place of those of change 2, which fits, and of change 3.
#[test]
fn what_the_server_takes_no_chunks_of_goes_alone() {
    let (mut ahead, mut queue) = (UploadAhead::default(), Queue::default());
    (1..=4).for_each(|seq| push(&mut queue, seq, LARGE));
    ahead.follow(Some([1; 32]));
    let [first, second] = [(); 2].map(|()| ahead.pick(&queue, LARGE, &BTreeSet::new()).unwrap());
    finish(&mut ahead, &queue, &second, Some(Refusal::Quota));
    assert!(batch(&ahead, &queue, Lane::Data).is_empty(), "change 1 is being uploaded");
    assert!(pick(&mut ahead, &queue).is_none(), "nothing overtakes change 2");
    queue.raise(&BTreeSet::from([3]), ahead.uploading());
    assert_eq!(batch(&ahead, &queue, Lane::Fast), [3]);
    queue.take(3);
    assert!(ahead.refused_chunks(&queue, 3), "it met the quota as well");
    finish(&mut ahead, &queue, &first, Some(Refusal::Quota));
    assert!(batch(&ahead, &queue, Lane::Data).is_empty(), "change 3 is being sent");
    queue.put_back(3);
    assert!(batch(&ahead, &queue, Lane::Fast).is_empty(), "change 1 is older");
    for seq in [1, 2] {
        assert_eq!(batch(&ahead, &queue, Lane::Data), [seq]);
        queue.take(seq);
        assert!(!ahead.refused_chunks(&queue, seq));
        ahead.settled(&queue.settle(seq).unwrap());
    }
    assert_eq!(batch(&ahead, &queue, Lane::Fast), [3]);
}

/// What the server has all chunks of may make room when it replaces what its file held.
#[test]
fn what_can_go_goes_before_what_the_server_takes_no_chunks_of() {
    let (mut ahead, mut queue) = (UploadAhead::default(), Queue::default());
    [1, 2].iter().for_each(|seq| push(&mut queue, *seq, LARGE));
    ahead.follow(Some([1; 32]));
    let [first, second] = [(); 2].map(|()| ahead.pick(&queue, LARGE, &BTreeSet::new()).unwrap());
    finish(&mut ahead, &queue, &second, None);
    finish(&mut ahead, &queue, &first, Some(Refusal::Quota));
    assert_eq!(batch(&ahead, &queue, Lane::Data), [2]);
    ahead.settled(&queue.settle(2).unwrap());
    assert_eq!(batch(&ahead, &queue, Lane::Data), [1]);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64),
    Connect(Option<u8>),
    Pick,
    /// One of the uploads under way.
    Finish(usize, Option<Refusal>),
    /// What became of the oldest change.
    Leave,
    Settle,
    /// A batch begins, or is over without an answer.
    Take,
    Back,
}

fn step() -> impl Strategy<Value = Step> {
    let refusals = [None, None, Some(Refusal::Unreachable), Some(Refusal::Quota)];
    let sizes = [100, 20_000, LARGE, LARGE];
    prop_oneof![
        prop::sample::select(sizes.to_vec()).prop_map(Step::Write),
        prop::option::of(0..3u8).prop_map(Step::Connect),
        Just(Step::Pick),
        (0..2usize, prop::sample::select(refusals.to_vec())).prop_map(|(n, r)| Step::Finish(n, r)),
        Just(Step::Leave),
        Just(Step::Settle),
        Just(Step::Take),
        Just(Step::Back),
    ]
}

proptest! {
    /// Whatever happens to connections and uploads: once all of these have ended and nothing is
    /// left to pick, the drain waits for none.
    #[test]
    fn nothing_is_waited_for_that_nobody_sends(steps in prop::collection::vec(step(), 0..60)) {
        let (mut ahead, mut queue) = (UploadAhead::default(), Queue::default());
        let mut uploads = Vec::new();
        let mut batch = Vec::new();
        for (step, seq) in steps.into_iter().zip(1..) {
            let oldest = queue.iter().next().map(|(logged, _)| logged.clone());
            match (step, oldest) {
                (Step::Write(bytes), _) => push(&mut queue, seq, bytes),
                (Step::Connect(nonce), _) => ahead.follow(nonce.map(|byte| [byte; 32])),
                (Step::Pick, _) => uploads.extend(pick(&mut ahead, &queue)),
                (Step::Finish(at, refusal), _) if at < uploads.len() => {
                    finish(&mut ahead, &queue, &uploads.remove(at), refusal);
                }
                (Step::Leave, Some(oldest)) => ahead.leave(oldest.seq),
                (Step::Settle, Some(oldest)) => {
                    queue.settle(oldest.seq);
                    ahead.settled(&oldest);
                }
                (Step::Take, _) if batch.is_empty() => {
                    batch = ahead.batch(&queue, (Lane::Data, 1 << 20), &BTreeSet::new(), None);
                    batch.iter().for_each(|logged| queue.take(logged.seq));
                }
                (Step::Back, _) => {
                    queue.put_all_back();
                    batch.drain(..).for_each(|logged| ahead.put_back(logged.seq));
                }
                _ => {}
            }
        }
        if ahead.nonce.is_none() {
            ahead.follow(Some([9; 32]));
        }
        queue.put_all_back();
        batch.iter().for_each(|logged| ahead.put_back(logged.seq));
        // Those that could not be sent are picked once more.
        while let Some(picked) = pick(&mut ahead, &queue) {
            uploads.push(picked);
        }
        for picked in uploads {
            finish(&mut ahead, &queue, &picked, None);
        }
        while !queue.is_empty() {
            while let Some(picked) = pick(&mut ahead, &queue) {
                finish(&mut ahead, &queue, &picked, None);
            }
            let batch = ahead.batch(&queue, (Lane::Data, 1 << 20), &BTreeSet::new(), None);
            let batch = match batch.is_empty() {
                true => ahead.batch(&queue, (Lane::Metadata, 1 << 20), &BTreeSet::new(), None),
                false => batch,
            };
            prop_assert!(!batch.is_empty(), "{:?}", ahead);
            for logged in batch {
                queue.settle(logged.seq);
                ahead.settled(&logged);
            }
        }
        prop_assert_eq!((ahead.pieces, ahead.stores.len()), (0, 0));
    }
}
