//! How many requests of each kind came, and what answering them took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The kernel's numbers of kinds of requests are below this.
const KINDS: usize = 64;

#[derive(Debug)]
pub(crate) struct Counts([[AtomicU64; 2]; KINDS]);

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts([const { [const { AtomicU64::new(0) }; 2] }; KINDS])
    }

    /// A request of kind `opcode` was answered in `time`.
    pub(crate) fn add(&self, opcode: u32, time: Duration) {
        if let Some([count, nanos]) = self.0.get(opcode as usize) {
            count.fetch_add(1, Ordering::Relaxed);
            let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            nanos.fetch_add(time, Ordering::Relaxed);
        }
    }

    /// Lines of opcode, count and microseconds for each.
    pub(crate) fn table(&self) -> String {
        let counted = self.0.iter().map(|pair| {
            let [count, nanos] = pair.each_ref().map(|value| value.load(Ordering::Relaxed));
            (count, nanos)
        });
        let seen = counted.enumerate().filter(|(_, (count, _))| *count > 0);
        seen.map(|(opcode, (count, nanos))| {
            format!("{opcode} {count} {:.2}\n", nanos as f64 / 1e3 / count as f64)
        })
        .collect()
    }
}
