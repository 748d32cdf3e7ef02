//! Several measurements at once, each on a bed of its own.
//!
//! What is measured waits for links that are slow, and hardly for the processor: so two beds beside
//! each other hardly disturb each other, and a run takes half the time.

use std::sync::Mutex;
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use segue_bed::Result;

/// What experiments with several beds are asked.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "side_by_side")]
#[command(next_help_heading = "Of mfs-table2, mfs-fig4 and mfs-fig5")]
pub struct Options {
    /// Beds at once, each with a link of its own. `mfs-table2` and `mfs-fig4` take 1 or 2: a grep
    /// takes a part of a second, and each further bed makes that longer. In `mfs-fig5` applications
    /// wait for their links for minutes, and more beds do little.
    #[arg(long, default_value_t = 2)]
    pub beds: usize,
    /// Tests to measure: GC, GW, RC, RW; of `mfs-fig5` traces: mostly-reads, mostly-writes,
    /// heavy-load. All if none is named; in `mfs-fig4` GW and RW.
    #[arg(long, value_delimiter = ',')]
    pub tests: Vec<String>,
    /// Configurations of Segue to measure, such as `close-uniform` or `async-priorities`; in
    /// `mfs-fig4` and `mfs-fig5` also file systems by name. All if none is named.
    #[arg(long, value_delimiter = ',')]
    pub configurations: Vec<String>,
}

/// Has `work` done for each of `items`, `at_once` of them at a time, and hands `sink` what came of
/// it, in the order in which it is done. An error of `sink` is the end, once what is under way is
/// done.
pub(crate) fn side_by_side<'a, I: Sync, T: Send>(
    items: &'a [I],
    at_once: usize,
    work: impl Fn(&I) -> T + Sync,
    mut sink: impl FnMut(&I, T) -> Result<()>,
) -> Result<()> {
    let next = Mutex::new(items.iter());
    let take = || -> Option<&'a I> { next.lock().ok()?.next() };
    let labour = |done: SyncSender<(&'a I, T)>| {
        while let Some(item) = take() {
            if done.send((item, work(item))).is_err() {
                return;
            }
        }
    };
    let labour = &labour;
    thread::scope(|scope| {
        let (done, results) = mpsc::sync_channel(0);
        for _ in 0..at_once {
            let done = done.clone();
            scope.spawn(move || labour(done));
        }
        drop(done);
        results.into_iter().try_for_each(|(item, result)| sink(item, result))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use segue_bed::Error;

    #[test]
    fn everything_is_done_once_and_two_at_a_time() {
        let (both, mut done) = (Barrier::new(2), Vec::new());
        let items = [1, 2, 3, 4];
        let work = |item: &i32| {
            both.wait();
            item * 10
        };
        side_by_side(&items, 2, work, |item, result| {
            done.push((*item, result));
            Ok(())
        })
        .unwrap();
        done.sort_unstable();
        assert_eq!(done, [(1, 10), (2, 20), (3, 30), (4, 40)]);
    }

    #[test]
    fn nothing_more_is_begun_when_results_have_no_place() {
        let full = |_: &i32, ()| Err(Error::Wrong("disk full".into()));
        let began = Mutex::new(0);
        let work = |_: &i32| *began.lock().unwrap() += 1;
        assert!(side_by_side(&[0; 100], 1, work, full).is_err());
        assert!(*began.lock().unwrap() < 100);
    }
}
