//! Modal adaptation: an application that chooses one of four modes by the bandwidth it sees.
//!
//! In a mode it produces at the mode's own rate, and only what that mode sends. It is what
//! modeless adaptation is compared with [MFS 2.2, figure 2].
//!
//! ```text
//!               as long as `patience` without a queue
//!      mode ───────────────────────────────────────────▶ next mode, tried
//!       ▲                                                   │
//!       └── a queue, and less bandwidth than the mode has ──┘  or several modes down
//! ```
//!
//! It sees no more bandwidth than it uses while it sends less than the link takes: so it has to try
//! the next mode. A mode whose trial failed is tried again after twice the time, up to eight times.

use std::collections::VecDeque;
use std::time::Duration;

use super::trace::Trace;

/// How many modes, and classes, there are.
pub(super) const MODES: usize = 4;
/// How often the application looks at the bandwidth.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// Over which time bandwidth is taken: so many looks.
pub(super) const LOOKS: usize = 4;
/// It produces no more while it is so far behind: it is of no use any more.
pub(super) const BEHIND_MAX: Duration = Duration::from_millis(250);
/// What takes longer than this to send is a queue.
const QUEUE: Duration = Duration::from_millis(100);
/// A trial that failed is not put off for longer, in patiences.
const PUT_OFF_MAX: u32 = 8;
/// Of the link's bytes those that are messages: the rest are headers and acknowledgements.
const GOODPUT: f64 = 0.955;

/// How an application chooses.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(super) struct Rule {
    /// What each mode sends, in KB/s of messages, rising.
    pub(super) rates_kb: [u32; MODES],
    /// A mode fits if the bandwidth is so many times its rate.
    pub(super) margin: f64,
    /// Seconds without a queue after which the next mode is tried.
    pub(super) patience_s: u32,
}

/// What the application sees of the link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Bytes a second that it could send in the last second.
    pub(super) rate: f64,
    /// Bytes that wait to be sent.
    pub(super) queued: f64,
}

/// An application's mode.
#[derive(Debug, Clone)]
pub(super) struct Modal {
    rule: Rule,
    mode: usize,
    /// Since when there is no queue in this mode.
    clear_since: Duration,
    /// The present mode was entered to try it.
    is_trial: bool,
    patience: Duration,
}

impl Rule {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_s.into())
    }

    /// Bytes a second of a mode.
    pub(super) fn rate(&self, mode: usize) -> f64 {
        self.rates_kb.get(mode).map_or(0.0, |rate| f64::from(*rate) * 1024.0)
    }

    /// The best mode for this bandwidth.
    fn fit(&self, rate: f64) -> usize {
        let fits = |mode: &usize| self.rate(*mode) * self.margin <= rate;
        (0..MODES).rev().find(fits).unwrap_or(0)
    }
}

impl Modal {
    /// In the lowest mode.
    pub(super) fn new(rule: Rule, now: Duration) -> Modal {
        Modal { rule, mode: 0, clear_since: now, is_trial: false, patience: rule.patience() }
    }

    /// Chooses the mode after a look at the link.
    pub(super) fn handle(&mut self, now: Duration, seen: Seen) -> usize {
        let clear = now.saturating_sub(self.clear_since);
        if seen.queued > QUEUE.as_secs_f64() * self.rule.rate(self.mode) {
            self.clear_since = now;
            let fit = self.rule.fit(seen.rate);
            if fit < self.mode && std::mem::take(&mut self.is_trial) {
                self.patience = (2 * self.patience).min(PUT_OFF_MAX * self.rule.patience());
            }
            self.mode = fit;
        } else if clear >= self.patience {
            self.patience = self.rule.patience();
            if self.mode + 1 < MODES {
                self.is_trial = true;
                self.mode += 1;
                self.clear_since = now;
            }
        } else if self.is_trial && clear >= self.rule.patience() {
            self.is_trial = false;
            self.patience = self.rule.patience();
        }
        self.mode
    }
}

/// Bytes of messages that would be sent under `trace`, if the link were a pipe and the bandwidth
/// known at once: no transport does better by the same rule.
pub(super) fn forecast(rule: &Rule, trace: &Trace) -> f64 {
    const STEPS: u32 = 5;
    let step = LOOK.as_secs_f64() / f64::from(STEPS);
    let mut modal = Modal::new(*rule, Duration::ZERO);
    let (mut mode, mut queued, mut all) = (0, 0.0, 0.0);
    let mut looks = VecDeque::from([0.0; LOOKS]);
    let mut now = Duration::ZERO;
    let looks_each_second = Duration::from_secs(1).as_millis() / LOOK.as_millis();
    let each =
        trace.capacity().into_iter().flat_map(|second| (0..looks_each_second).map(move |_| second));
    for capacity in each {
        let mut sent_now = 0.0;
        for _ in 0..STEPS {
            if queued < BEHIND_MAX.as_secs_f64() * rule.rate(mode) {
                queued += rule.rate(mode) * step;
            }
            let sent = f64::min(queued, capacity as f64 * GOODPUT * step);
            queued -= sent;
            sent_now += sent;
        }
        all += sent_now;
        looks.pop_front();
        looks.push_back(sent_now);
        now += LOOK;
        let rate = looks.iter().sum::<f64>() / (LOOK.as_secs_f64() * LOOKS as f64);
        mode = modal.handle(now, Seen { rate, queued });
    }
    all
}

/// What the lowest mode sends, in KB/s: as much as the link takes when it is slowest. One that asks
/// for more than there is fills the link by losing most of what it produces, which is no mode.
const LOWEST_KB: u32 = 90;
/// Of these each three are tried as the other modes: what plateaus of 140 to 700 KB/s carry, and
/// what is between them.
const RATES_KB: [u32; 11] = [115, 140, 190, 235, 280, 330, 380, 470, 520, 570, 660];
const MARGINS: [f64; 4] = [1.0, 1.05, 1.1, 1.25];
const PATIENCES_S: [u32; 5] = [1, 2, 3, 5, 10];

/// Each rule with what it would send, the best first.
pub(super) fn sweep(trace: &Trace) -> Vec<(Rule, f64)> {
    let mut tried = Vec::new();
    for rates_kb in fours() {
        for margin in MARGINS {
            for patience_s in PATIENCES_S {
                let rule = Rule { rates_kb, margin, patience_s };
                tried.push((rule, forecast(&rule, trace)));
            }
        }
    }
    tried.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    tried
}

/// The lowest rate and each three of the others, rising.
fn fours() -> Vec<[u32; MODES]> {
    let mut all = vec![vec![LOWEST_KB]];
    for rate in RATES_KB {
        let longer: Vec<Vec<u32>> = all.iter().map(|some| [&some[..], &[rate]].concat()).collect();
        all.extend(longer.into_iter().filter(|some| some.len() <= MODES));
    }
    all.into_iter().filter_map(|some| some.try_into().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { rates_kb: [100, 200, 300, 400], margin: 1.1, patience_s: 2 };
    const FREE: Seen = Seen { rate: 100.0 * 1024.0, queued: 0.0 };

    /// The mode after each look.
    fn modes(modal: &mut Modal, from: Duration, looks: u32, seen: Seen) -> Vec<usize> {
        (1..=looks).map(|look| modal.handle(from + look * LOOK, seen)).collect()
    }

    #[test]
    fn the_next_mode_is_tried_after_some_time_without_a_queue() {
        let mut modal = Modal::new(RULE, Duration::ZERO);
        assert_eq!(modes(&mut modal, Duration::ZERO, 9, FREE), [0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_queue_without_bandwidth_ends_a_mode_and_puts_the_next_trial_off() {
        let mut modal = Modal::new(RULE, Duration::ZERO);
        modes(&mut modal, Duration::ZERO, 8, FREE);
        let full = Seen { rate: 150.0 * 1024.0, queued: 50.0 * 1024.0 };
        let second = Duration::from_secs(2);
        assert_eq!(modal.handle(second + LOOK, full), 0);
        let again = modes(&mut modal, second + LOOK, 16, FREE);
        assert_eq!(again.iter().position(|mode| *mode == 1), Some(15), "{again:?}");
    }

    #[test]
    fn a_mode_that_has_its_bandwidth_stays_under_a_queue() {
        let mut modal = Modal::new(RULE, Duration::ZERO);
        modes(&mut modal, Duration::ZERO, 8, FREE);
        let full = Seen { rate: 230.0 * 1024.0, queued: 50.0 * 1024.0 };
        assert_eq!(modal.handle(Duration::from_secs(3), full), 1);
        let fast = Seen { rate: 450.0 * 1024.0, ..full };
        assert_eq!(modal.handle(Duration::from_secs(4), fast), 3);
    }

    #[test]
    fn modes_leave_a_part_of_the_link_and_the_best_ones_least() {
        let trace = Trace::parse("0 400 40\n30 250 40\n60 end\n").unwrap();
        let capacity: u64 = trace.capacity().iter().sum();
        let share = |(_, sent): &(Rule, f64)| sent / capacity as f64;
        let tried = sweep(&trace);
        assert_eq!(tried.len(), 165 * MARGINS.len() * PATIENCES_S.len());
        assert!(tried.iter().all(|(rule, _)| rule.rates_kb[0] == LOWEST_KB));
        assert!(share(&tried[0]) > 0.8 && share(&tried[0]) < GOODPUT, "{:?}", tried[0]);
        assert!(share(&tried[tried.len() - 1]) < 0.75, "{:?}", tried[tried.len() - 1]);
    }
}
