//! Links that change by the second, as the files in `crates/bench/traces` have them.
//!
//! A line says what the link is like from a second on, until the next line; the last one says
//! when it is over:
//!
//! ```text
//!   # second  KB/s  round trip in ms  lost of 100
//!   0         400   40                0
//!   30        0     40                            an outage: whatever is on the link is lost
//!   300 end
//! ```

use std::time::Duration;

use super::wrong;
use segue_bed::{LinkSpec, Result};

/// Longer traces are a mistake.
const SECONDS_MAX: usize = 3600;

/// A link for one second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Moment {
    /// In each direction; 0: nothing gets through.
    pub(super) rate_kb_per_s: f64,
    /// What it adds to a round trip.
    pub(super) rtt_ms: u64,
    /// Packets of a hundred that are lost.
    pub(super) loss_percent: f64,
}

impl Moment {
    /// Whether nothing gets through.
    pub(super) fn is_outage(&self) -> bool {
        self.rate_kb_per_s == 0.0
    }

    /// What the link can carry in this second, in each direction.
    pub(super) fn bytes(&self) -> u64 {
        // A rate is positive and far below 2^53.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = (self.rate_kb_per_s * 1024.0).round() as u64;
        bytes
    }

    /// The link itself, before which so many bytes may wait.
    pub(super) fn link(&self, queue_bytes: u64) -> LinkSpec {
        let (rate, queue) = (Some(self.bytes()), Some(queue_bytes));
        let loss = self.loss_percent / 100.0;
        LinkSpec { rate, queue, loss, ..LinkSpec::default() }
            .with_rtt(Duration::from_millis(self.rtt_ms))
    }
}

/// A link for as long as it is looked at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trace {
    /// One for each second.
    pub(super) moments: Vec<Moment>,
}

impl Trace {
    /// What the link is like when it begins.
    pub(super) fn first(&self) -> Result<&Moment> {
        self.moments.first().ok_or_else(|| wrong("a trace has no first second"))
    }

    /// Reads a file's text.
    pub(super) fn parse(text: &str) -> Result<Trace> {
        let mut moments: Vec<Moment> = Vec::new();
        let mut present = None;
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let bad = || wrong(format!("a trace has the line {line:?}"));
            let mut words = line.split_whitespace();
            let second: usize = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
            let is_later = second > moments.len() || present.is_none() && second == 0;
            if !is_later || second > SECONDS_MAX {
                return Err(bad());
            }
            if let Some(present) = present {
                moments.resize(second, present);
            }
            let words: Vec<&str> = words.collect();
            if words == ["end"] {
                return Ok(Trace { moments });
            }
            present = Some(moment(&words).ok_or_else(bad)?);
        }
        Err(wrong("a trace has no end"))
    }

    /// The first part of it, some seconds at least.
    pub(super) fn scaled(&self, scale: f64) -> Trace {
        let seconds = u32::try_from(self.moments.len()).unwrap_or(u32::MAX);
        let seconds = crate::workload::scaled(seconds, scale).max(4) as usize;
        Trace { moments: self.moments.iter().copied().take(seconds).collect() }
    }

    /// How long it is.
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs(self.moments.len() as u64)
    }

    /// What the link can carry in each second.
    pub(super) fn capacity(&self) -> Vec<u64> {
        self.moments.iter().map(Moment::bytes).collect()
    }
}

fn moment(words: &[&str]) -> Option<Moment> {
    let (rate, rtt, loss) = match *words {
        [rate, rtt] => (rate, rtt, "0"),
        [rate, rtt, loss] => (rate, rtt, loss),
        _ => return None,
    };
    let rate_kb_per_s = rate.parse().ok().filter(|rate| (0.0..1e6).contains(rate))?;
    let loss_percent = loss.parse().ok().filter(|loss| (0.0..100.0).contains(loss))?;
    let rtt_ms = rtt.parse().ok().filter(|rtt| (1..10_000).contains(rtt))?;
    Some(Moment { rate_kb_per_s, rtt_ms, loss_percent })
}

/// Which share of the link was used, second by second, where it is open, and in all.
pub(super) fn utilization(carried: &[u64], capacity: &[u64]) -> (Vec<Option<f64>>, f64) {
    let share = |(carried, capacity): (&u64, &u64)| {
        (*capacity > 0).then(|| *carried as f64 / *capacity as f64)
    };
    let seconds = carried.iter().zip(capacity).map(share).collect();
    let (carried, capacity) = (carried.iter().sum::<u64>(), capacity.iter().sum::<u64>());
    (seconds, carried as f64 / capacity.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_holds_until_the_next() {
        let trace = Trace::parse("# words\n0 100 40\n2 0 40\n3 1.5 200 3\n4 end\n").unwrap();
        let at =
            |rate_kb_per_s, rtt_ms, loss_percent| Moment { rate_kb_per_s, rtt_ms, loss_percent };
        let expected =
            [at(100.0, 40, 0.0), at(100.0, 40, 0.0), at(0.0, 40, 0.0), at(1.5, 200, 3.0)];
        assert_eq!(trace.moments, expected);
        assert_eq!(trace.capacity(), [102_400, 102_400, 0, 1536]);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for line in ["x 1 1", "0 1", "0 -1 1", "0 1 0", "0 1 1 100", "0 1 1 1 1", "99999 1 1"] {
            let error = Trace::parse(&format!("{line}\n9 end\n")).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
        let backwards = Trace::parse("0 1 1\n5 2 1\n5 3 1\n9 end\n");
        assert!(backwards.unwrap_err().to_string().contains("5 3 1"));
        assert!(Trace::parse("0 1 1\n").unwrap_err().to_string().contains("no end"));
    }

    #[test]
    fn what_an_outage_does_not_carry_does_not_count() {
        let (seconds, all) = utilization(&[90, 10, 50], &[100, 0, 100]);
        assert_eq!(seconds, [Some(0.9), None, Some(0.5)]);
        assert_eq!(all, 0.75);
    }
}
