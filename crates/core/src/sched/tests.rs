use proptest::prelude::*;

use super::*;

const QUANTUM: usize = 10;

fn opened(messages: &[(u64, Class, usize)]) -> Scheduler {
    let mut scheduler = Scheduler::new(Discipline::Priorities, 16);
    for (id, class, bytes) in messages {
        scheduler.open(MessageId(*id), *class).unwrap();
        scheduler.offer(MessageId(*id), *bytes);
        scheduler.close(MessageId(*id));
    }
    scheduler
}

fn drain(scheduler: &mut Scheduler) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(next) = scheduler.next(QUANTUM) {
        order.push(next.id.0);
        assert_eq!(scheduler.sent(next.id, next.bytes), next.last);
    }
    order
}

#[test]
fn urgent_overtakes_between_two_quanta() {
    let mut scheduler = opened(&[(1, Class::StoreData, 30)]);
    let first = scheduler.next(QUANTUM).unwrap();
    assert_eq!(first, Quantum { id: MessageId(1), bytes: 10, last: false });
    scheduler.sent(first.id, first.bytes);
    scheduler.open(MessageId(2), Class::Validate).unwrap();
    scheduler.offer(MessageId(2), 5);
    scheduler.close(MessageId(2));
    assert_eq!(drain(&mut scheduler), [2, 1, 1]);
}

#[test]
fn first_in_first_out_within_a_class() {
    let mut scheduler = opened(&[(1, Class::Fetch, 20), (2, Class::Fetch, 10)]);
    assert_eq!(drain(&mut scheduler), [1, 1, 2]);
}

#[test]
fn message_without_bytes_does_not_block_its_class() {
    let mut scheduler = Scheduler::new(Discipline::Priorities, 16);
    scheduler.open(MessageId(1), Class::Fetch).unwrap();
    scheduler.open(MessageId(2), Class::Fetch).unwrap();
    scheduler.offer(MessageId(2), 5);
    assert_eq!(scheduler.next(QUANTUM).unwrap().id, MessageId(2));
    scheduler.offer(MessageId(1), 5);
    assert_eq!(scheduler.next(QUANTUM).unwrap().id, MessageId(1));
}

#[test]
fn held_message_lets_others_pass() {
    let mut scheduler = opened(&[(1, Class::Validate, 5), (2, Class::Prefetch, 5)]);
    scheduler.hold(MessageId(1));
    assert_eq!(scheduler.next(QUANTUM).unwrap().id, MessageId(2));
    scheduler.resume(MessageId(1));
    assert_eq!(drain(&mut scheduler), [1, 2]);
}

#[test]
fn raised_message_joins_behind_its_new_class() {
    let mut scheduler =
        opened(&[(1, Class::Prefetch, 5), (2, Class::StoreData, 5), (3, Class::Fetch, 5)]);
    scheduler.raise(MessageId(1), Class::Fetch);
    assert_eq!(scheduler.queued()[Class::Fetch as usize], 10);
    assert_eq!(drain(&mut scheduler), [3, 1, 2]);
}

#[test]
fn what_is_as_urgent_already_keeps_its_place() {
    let mut scheduler = opened(&[(1, Class::Fetch, 20), (2, Class::Fetch, 10)]);
    scheduler.raise(MessageId(1), Class::Fetch);
    scheduler.raise(MessageId(1), Class::StoreData);
    assert_eq!(drain(&mut scheduler), [1, 1, 2]);
}

#[test]
fn under_uniform_only_the_order_of_arrival_counts() {
    let mut scheduler = Scheduler::new(Discipline::Uniform, 16);
    for (id, class) in [(1, Class::Prefetch), (2, Class::Validate), (3, Class::StoreData)] {
        scheduler.open(MessageId(id), class).unwrap();
        scheduler.offer(MessageId(id), 5);
        scheduler.close(MessageId(id));
    }
    scheduler.raise(MessageId(3), Class::Validate);
    assert_eq!(drain(&mut scheduler), [1, 2, 3]);
}

#[test]
fn a_mode_sends_its_classes_and_no_others() {
    let modes = Modes::new([(100, Class::Fetch), (200, Class::StoreData)], Class::Validate);
    let mut scheduler = Scheduler::new(Discipline::Modal(modes), 16);
    for (id, class) in [(1, Class::Prefetch), (2, Class::StoreData), (3, Class::Fetch)] {
        scheduler.open(MessageId(id), class).unwrap();
        scheduler.offer(MessageId(id), 5);
        scheduler.close(MessageId(id));
    }
    let next = |scheduler: &mut Scheduler, rate| {
        scheduler.handle_rate(rate);
        scheduler.next(QUANTUM).map(|next| next.id.0)
    };
    assert_eq!(next(&mut scheduler, 99), None);
    assert_eq!(next(&mut scheduler, 100), Some(3));
    scheduler.cancel(MessageId(3));
    assert_eq!(next(&mut scheduler, 199), None);
    assert_eq!(next(&mut scheduler, 200), Some(2));
    scheduler.cancel(MessageId(2));
    assert_eq!(next(&mut scheduler, 1_000), None);
    // Of a link of which nothing is known nothing is held back.
    assert_eq!(next(&mut scheduler, 0), Some(1));
}

#[test]
fn bare_end_is_sent_too() {
    let mut scheduler = Scheduler::new(Discipline::Priorities, 16);
    scheduler.open(MessageId(1), Class::Fetch).unwrap();
    assert_eq!(scheduler.next(QUANTUM), None);
    scheduler.close(MessageId(1));
    assert_eq!(scheduler.next(QUANTUM), Some(Quantum { id: MessageId(1), bytes: 0, last: true }));
    assert!(scheduler.sent(MessageId(1), 0));
    assert!(scheduler.is_empty());
}

#[test]
fn limit_is_a_value() {
    let mut scheduler = Scheduler::new(Discipline::Priorities, 1);
    scheduler.open(MessageId(1), Class::Fetch).unwrap();
    assert_eq!(scheduler.open(MessageId(2), Class::Validate), Err(Full));
    scheduler.cancel(MessageId(1));
    scheduler.open(MessageId(2), Class::Validate).unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Open(Class),
    Offer(usize, usize),
    Close(usize),
    Hold(usize),
    Resume(usize),
    Raise(usize, Class),
    Cancel(usize),
    Send(usize, usize),
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let message = 0..12usize;
    prop_oneof![
        class().prop_map(Step::Open),
        (message.clone(), 0..50usize).prop_map(|(id, bytes)| Step::Offer(id, bytes)),
        message.clone().prop_map(Step::Close),
        message.clone().prop_map(Step::Hold),
        message.clone().prop_map(Step::Resume),
        (message.clone(), class()).prop_map(|(id, class)| Step::Raise(id, class)),
        message.prop_map(Step::Cancel),
        (1..30usize, 0..30usize).prop_map(|(quantum, taken)| Step::Send(quantum, taken)),
    ]
}

/// What the scheduler is compared with: a list, searched in full.
#[derive(Debug)]
struct Listed {
    id: u64,
    class: Class,
    arrived: usize,
    unsent: usize,
    held: bool,
    closed: bool,
}

fn most_urgent(listed: &[Listed]) -> Option<&Listed> {
    listed
        .iter()
        .filter(|message| !message.held && (message.unsent > 0 || message.closed))
        .min_by_key(|message| (message.class, message.arrived))
}

proptest! {
    #[test]
    fn order_rule_holds_and_no_byte_is_lost(steps in prop::collection::vec(step(), 1..200)) {
        let mut scheduler = Scheduler::new(Discipline::Priorities, 8);
        let mut listed: Vec<Listed> = Vec::new();
        for (now, step) in steps.into_iter().enumerate() {
            match step {
                Step::Open(class) => {
                    let id = now as u64;
                    let opened = scheduler.open(MessageId(id), class);
                    prop_assert_eq!(opened.is_err(), listed.len() == 8);
                    if opened.is_ok() {
                        let (arrived, unsent, held, closed) = (now, 0, false, false);
                        listed.push(Listed { id, class, arrived, unsent, held, closed });
                    }
                }
                Step::Offer(index, bytes) => {
                    if let Some(message) = listed.get_mut(index).filter(|m| !m.closed) {
                        scheduler.offer(MessageId(message.id), bytes);
                        message.unsent += bytes;
                    }
                }
                Step::Close(index) => {
                    if let Some(message) = listed.get_mut(index) {
                        scheduler.close(MessageId(message.id));
                        message.closed = true;
                    }
                }
                Step::Hold(index) => {
                    if let Some(message) = listed.get_mut(index) {
                        scheduler.hold(MessageId(message.id));
                        message.held = true;
                    }
                }
                Step::Resume(index) => {
                    if let Some(message) = listed.get_mut(index) {
                        scheduler.resume(MessageId(message.id));
                        message.held = false;
                    }
                }
                Step::Raise(index, class) => {
                    if let Some(message) = listed.get_mut(index) {
                        scheduler.raise(MessageId(message.id), class);
                        if class < message.class {
                            message.class = class;
                            message.arrived = now;
                        }
                    }
                }
                Step::Cancel(index) => {
                    if index < listed.len() {
                        scheduler.cancel(MessageId(listed.remove(index).id));
                    }
                }
                Step::Send(quantum, taken) => {
                    let next = scheduler.next(quantum);
                    let urgent = most_urgent(&listed).map(|message| message.id);
                    prop_assert_eq!(next.map(|next| next.id.0), urgent);
                    if let Some(next) = next {
                        let at = listed.iter().position(|m| m.id == next.id.0).unwrap();
                        prop_assert_eq!(next.bytes, listed[at].unsent.min(quantum));
                        let bytes = taken.min(next.bytes);
                        listed[at].unsent -= bytes;
                        let complete = listed[at].closed && listed[at].unsent == 0;
                        prop_assert_eq!(scheduler.sent(next.id, bytes), complete);
                        if complete {
                            listed.remove(at);
                        }
                    }
                }
            }
            for class in Class::ALL {
                let unsent: usize =
                    listed.iter().filter(|m| m.class == class).map(|m| m.unsent).sum();
                prop_assert_eq!(scheduler.queued()[class as usize], unsent as u64);
            }
            prop_assert_eq!(scheduler.len(), listed.len());
        }
    }
}
