//! Links drawn by chance, and whether the law's promises hold on them.
//!
//! ```text
//!   a question waits for:  the round trip
//!                          in each full direction a packet under way, one of ours, and 10 ms
//!                          10 ms of the hosts
//!   the link carries:      0.92 of its rate as messages, in each full direction
//! ```

use std::fmt;
use std::time::Duration;

use super::{Control, Flow, LaneSpec, Outcome, PACKET, Scenario};
use crate::rng::Rng;

/// What a question may wait in a full direction, besides two packets; and for the hosts.
const BOUND: Duration = Duration::from_millis(10);
/// Goodput of a link, per mille.
const GOODPUT: u64 = 920;
/// Bytes that one run carries each way at most, so that fast links take no hours.
const BYTES: u64 = 20 << 20;

/// A link, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct DrawnLink {
    /// Bytes a second, headers included.
    pub rate: u64,
    /// The round trip of the empty path.
    pub trip: Duration,
    /// What may wait before it.
    pub queue: Duration,
    /// Packets of a thousand that are lost by chance.
    pub loss: u64,
    /// Whether bulk goes both ways, or up only.
    pub both: bool,
}

/// What the law made of a link.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The link.
    pub link: DrawnLink,
    /// What 99 of 100 questions took at most that lost no packet.
    pub waited: Duration,
    /// What they may take.
    pub limit: Duration,
    /// The part of the link that messages used, per mille: up and, if full, down.
    pub used: Vec<u64>,
}

impl DrawnLink {
    /// Draws the link of a seed: 16 KB/s to 10 MB/s, in one of twelve cases to 100 MB/s; to 300 ms,
    /// queues of 50 ms to 2 s, losses to 2 %, in one of two cases none.
    pub fn draw(seed: u64, both: bool) -> DrawnLink {
        let mut rng = Rng::new(seed);
        let fast = rng.chance(83);
        let doublings = rng.below(if fast { 12_640 } else { 9_300 });
        let millis = |millis: f64| Duration::from_secs_f64(millis / 1000.0);
        let of_trip = rng.below(1001) as f64 / 1000.0;
        let of_queue = rng.below(1001) as f64 / 1000.0;
        let lossy = rng.below(21);
        DrawnLink {
            rate: (16 << (doublings / 1000)) * 1024 * (1000 + doublings % 1000) / 1000,
            trip: millis(300.0 * of_trip * of_trip),
            queue: millis(50.0 * 40f64.powf(of_queue)),
            loss: if rng.chance(500) { 0 } else { lossy },
            both,
        }
    }

    fn lane(self) -> LaneSpec {
        let queue = u128::from(self.rate) * self.queue.as_micros() / 1_000_000;
        LaneSpec {
            rates: vec![(Duration::ZERO, self.rate)],
            delays: vec![(Duration::ZERO, self.trip / 2)],
            queue: u64::try_from(queue).unwrap_or(u64::MAX).max(4 * PACKET),
            loss: self.loss,
            jitter: Duration::ZERO,
        }
    }

    /// Our share of what arrives beside another sender, who begins before us or after us.
    pub fn share_beside(
        self,
        seed: u64,
        other: Control,
        is_first: bool,
    ) -> Result<f64, Box<dyn std::error::Error>> {
        let flow = |control, is_first| {
            let begin = Duration::from_secs(if is_first { 1 } else { 7 });
            Flow { control, up: Some(begin), down: None, until: None }
        };
        let time = Duration::from_secs((4 * BYTES / self.rate).clamp(40, 130));
        let scenario = Scenario {
            up: self.lane(),
            down: self.lane(),
            flows: vec![flow(Control::Segue, is_first), flow(other, !is_first)],
            time,
            from: Duration::from_secs(15),
            pauses: None,
        };
        let outcome = super::run(&scenario, seed)?;
        Ok(outcome.up[0] as f64 / outcome.up.iter().sum::<u64>().max(1) as f64)
    }

    /// Sends over it for a while, and judges.
    pub fn judge(self, seed: u64) -> Result<Verdict, Box<dyn std::error::Error>> {
        let lane = self.lane();
        let begin = Duration::from_millis(1000);
        let flow = Flow {
            control: Control::Segue,
            up: Some(begin),
            down: self.both.then_some(begin),
            until: None,
        };
        let time = Duration::from_secs((BYTES / self.rate).clamp(24, 60));
        let scenario = Scenario {
            up: lane.clone(),
            down: lane,
            flows: vec![flow],
            time,
            from: (time / 3).max(Duration::from_secs(10)),
            pauses: None,
        };
        Ok(self.verdict(&super::run(&scenario, seed)?))
    }

    fn limit(self) -> Duration {
        let packet = Duration::from_micros(PACKET * 1_000_000 / self.rate);
        let full = if self.both { 2 } else { 1 };
        self.trip + full * (2 * packet + BOUND) + BOUND
    }

    fn verdict(self, outcome: &Outcome) -> Verdict {
        let share = |bytes: &[u64], way: usize| bytes[0] * 1000 / outcome.capacity[way].max(1);
        let mut used = vec![share(&outcome.up, 0)];
        if self.both {
            used.push(share(&outcome.down, 1));
        }
        // One of a hundred, and those that lost a packet there or back: as chance has it.
        let late = outcome.trips.len() * (10 + 2 * usize::try_from(self.loss).unwrap_or(0)) / 1000;
        let late = if self.loss > 0 { late + 2 * late.isqrt() } else { late };
        let index = outcome.trips.len().saturating_sub(1 + late);
        let waited = outcome.trips.get(index).copied().unwrap_or_default();
        Verdict { link: self, waited, limit: self.limit(), used }
    }
}

impl Verdict {
    /// Whether questions were as quick as promised.
    pub fn is_quick(&self) -> bool {
        self.waited <= self.limit
    }

    /// Whether the link was full.
    pub fn is_full(&self) -> bool {
        let least = GOODPUT * (1000 - self.link.loss) / 1000;
        self.used.iter().all(|used| *used >= least)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let DrawnLink { rate, trip, queue, loss, both } = self.link;
        write!(
            to,
            "| {:>8.1} | {:>4.0} | {:>5.0} | {:>4.1} | {:<4} | {:>6.1} | {:>6.1} | {:<3} |",
            rate as f64 / 1024.0,
            millis(trip),
            millis(queue),
            loss as f64 / 10.0,
            if both { "both" } else { "up" },
            millis(self.waited),
            millis(self.limit),
            if self.is_quick() { "yes" } else { "no" },
        )?;
        for used in &self.used {
            write!(to, " {:.2}", *used as f64 / 1000.0)?;
        }
        write!(to, " | {:<3} |", if self.is_full() { "yes" } else { "no" })
    }
}
