//! The traffic of a connection per second, from samples of its counters.

use std::time::{Duration, Instant};

use segue_client::quantity;
use segue_client::replies::{ClassBytes, LinkReport};

use crate::output;

/// A rate over a shorter time means nothing.
const SHORTEST: Duration = Duration::from_millis(200);

/// The last sample.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    before: Option<(Instant, LinkReport)>,
}

/// The traffic between two samples.
struct Moved<'a> {
    before: &'a LinkReport,
    now: &'a LinkReport,
    time: Duration,
}

impl Rates {
    /// Takes a sample and describes the traffic since the last one: in total, then by class. Empty
    /// for the first sample of a connection.
    pub(crate) fn lines(&mut self, now: Instant, link: &LinkReport) -> Vec<String> {
        let Some((at, before)) = self.before.replace((now, link.clone())) else {
            return Vec::new();
        };
        let time = now.duration_since(at);
        let is_same = link.connection != 0 && before.connection == link.connection;
        if !is_same || time < SHORTEST {
            return Vec::new();
        }
        let moved = Moved { before: &before, now: link, time };
        let mut lines = vec![moved.all()];
        lines.extend(moved.by_class().lines().map(str::to_owned));
        lines
    }
}

impl Moved<'_> {
    fn per_second(&self, now: u64, before: u64) -> u64 {
        let count = u128::from(now.saturating_sub(before));
        let nanos = self.time.as_nanos().max(1);
        // Rounded to the nearest integer.
        let each = (count * 1_000_000_000 + nanos / 2) / nanos;
        u64::try_from(each).unwrap_or(u64::MAX)
    }

    fn all(&self) -> String {
        let up = self.per_second(self.now.sent_bytes, self.before.sent_bytes);
        let down = self.per_second(self.now.received_bytes, self.before.received_bytes);
        let most = [Some(self.now.rate_up).filter(|rate| *rate > 0), self.now.limit_up];
        let share = most.into_iter().flatten().min().map_or(String::new(), |most| {
            format!(" ({} % of {}/s)", (100 * up / most.max(1)).min(100), quantity::bytes(most))
        });
        format!("{}/s up{share}, {}/s down", quantity::bytes(up), quantity::bytes(down))
    }

    fn by_class(&self) -> String {
        let of = |class: &ClassBytes| {
            self.before.classes.iter().find(|before| before.class == class.class).cloned()
        };
        let row = |class: &ClassBytes| {
            let before = of(class).unwrap_or_default();
            let bytes = self.per_second(class.sent_bytes, before.sent_bytes);
            let messages = self.per_second(class.sent_messages, before.sent_messages);
            let cell = |count: u64, words: String| if count == 0 { "-".to_owned() } else { words };
            vec![
                class.class.clone(),
                cell(bytes, quantity::bytes(bytes)),
                cell(messages, messages.to_string()),
                cell(class.queued_bytes, quantity::bytes(class.queued_bytes)),
            ]
        };
        let rows: Vec<Vec<String>> = self.now.classes.iter().map(row).collect();
        output::table(&["CLASS", "SENT/S", "MESSAGES/S", "QUEUED"], &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(sent: u64, messages: u64, queued: u64) -> LinkReport {
        let class = |class: &str, sent_bytes, sent_messages, queued_bytes| ClassBytes {
            class: class.into(),
            queued_bytes,
            sent_bytes,
            sent_messages,
        };
        LinkReport {
            connection: 3,
            rate_up: 1 << 20,
            sent_bytes: sent,
            received_bytes: 10_240,
            classes: vec![class("validate", 0, 0, 0), class("fetch", sent, messages, queued)],
            ..LinkReport::default()
        }
    }

    #[test]
    fn what_went_in_the_last_second_is_told_by_class() {
        let now = Instant::now();
        let mut rates = Rates::default();
        assert!(rates.lines(now, &link(0, 0, 0)).is_empty());
        let lines = rates.lines(now + Duration::from_secs(2), &link(1 << 20, 7, 3 << 20));
        let expected = [
            "512.0 KiB/s up (50 % of 1.0 MiB/s), 0 B/s down",
            "CLASS     SENT/S     MESSAGES/S  QUEUED",
            "validate  -          -           -",
            "fetch     512.0 KiB  4           3.0 MiB",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_limit_is_what_there_is_to_use() {
        let now = Instant::now();
        let mut rates = Rates::default();
        rates.lines(now, &link(0, 0, 0));
        let limited = LinkReport { limit_up: Some(100 << 10), ..link(50 << 10, 1, 0) };
        let lines = rates.lines(now + Duration::from_secs(1), &limited);
        assert_eq!(lines[0], "50.0 KiB/s up (50 % of 100.0 KiB/s), 0 B/s down");
    }

    #[test]
    fn another_connection_counts_from_the_beginning() {
        let now = Instant::now();
        let mut rates = Rates::default();
        rates.lines(now, &link(900, 9, 0));
        let other = LinkReport { connection: 4, ..link(100, 1, 0) };
        assert!(rates.lines(now + Duration::from_secs(1), &other).is_empty());
        assert!(!rates.lines(now + Duration::from_secs(2), &other).is_empty());
    }
}
