//! How much of a long test runs: a sample by `make test`, all of it by `make test-long`.

use segue_bed::Rng;

/// As many cases of a long test `make test` takes.
pub(crate) const SAMPLE: usize = 12;

/// Whether this run may take long: `make test-long`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SEGUE_TEST_LONG").is_some_and(|value| value == "1")
}

/// How often a test that takes its chances begins anew.
pub(crate) fn times() -> u64 {
    if is_long() { 10 } else { 1 }
}

/// The numbers of this run. They follow from `SEED`, or from the clock; the seed is printed, so
/// that a run can be repeated.
pub(crate) fn rng() -> Rng {
    let given = std::env::var("SEED").map(|seed| seed.parse().unwrap());
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed = given.unwrap_or_else(|_| clock());
    eprintln!("SEED={seed}");
    Rng::new(seed)
}

/// All of `cases` in a long run, else [`SAMPLE`] of them, in their order.
pub(crate) fn sample<T>(cases: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut cases: Vec<(usize, T)> = cases.into_iter().enumerate().collect();
    let mut rng = rng();
    while !is_long() && cases.len() > SAMPLE {
        cases.swap_remove(usize::try_from(rng.below(cases.len() as u64)).unwrap());
    }
    cases.sort_by_key(|(number, _)| *number);
    cases.into_iter().map(|(_, case)| case).collect()
}
