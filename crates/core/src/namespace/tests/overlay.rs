//! An overlay is the transaction it will become.

use proptest::prelude::*;

use super::super::overlay::Overlay;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, u8),
    Remove(Vec<u8>),
    Range(Vec<u8>, Vec<u8>, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop::collection::vec(0u8..3, 0..3);
    prop_oneof![
        (key(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        key().prop_map(Step::Remove),
        (key(), key(), 0usize..5).prop_map(|(from, to, limit)| {
            let (from, to) = if from <= to { (from, to) } else { (to, from) };
            Step::Range(from, to, limit)
        }),
    ]
}

proptest! {
    #[test]
    fn reads_see_what_will_be_there(
        below in prop::collection::btree_map(
            prop::collection::vec(0u8..3, 0..3),
            any::<u8>(),
            0..8,
        ),
        steps in prop::collection::vec(step(), 0..20),
    ) {
        let mut below = MapTxn(below.into_iter().map(|(key, value)| (key, vec![value])).collect());
        let before = below.clone();
        let mut expected = below.clone();
        let mut overlay = Overlay::new(&mut below);
        for step in steps {
            match step {
                Step::Put(key, value) => {
                    overlay.put(&key, &[value]).unwrap();
                    expected.put(&key, &[value]).unwrap();
                    prop_assert_eq!(overlay.get(&key), expected.get(&key));
                }
                Step::Remove(key) => {
                    overlay.remove(&key).unwrap();
                    expected.remove(&key).unwrap();
                    prop_assert_eq!(overlay.get(&key), expected.get(&key));
                }
                Step::Range(from, to, limit) => {
                    let found = overlay.range(&from, &to, limit);
                    prop_assert_eq!(found, expected.range(&from, &to, limit));
                }
            }
        }
        prop_assert_eq!(&*overlay.flush().unwrap(), &expected);
        let mut dropped = before.clone();
        Overlay::new(&mut dropped).put(b"x", b"y").unwrap();
        prop_assert_eq!(dropped, before);
    }
}
