//! One link and what it carries, and what is asked for there.

use std::time::Duration;

use serde::Serialize;

use super::direction::Direction;
use segue_bed::LinkSpec;

/// Bytes of a full packet on the link.
pub(super) const PACKET_BYTES: u32 = 1472;
/// Packets whose time a question may take beyond the round trip: one that is just being sent,
/// in each direction.
pub(super) const PACKETS: u32 = 2;
/// What it may take beyond that.
pub(super) const MARGIN: Duration = Duration::from_millis(20);
/// A message of the bulk takes the link so long: four fill a path of 200 ms with its queue, and one
/// of several in a class delays no other for long.
const MESSAGE_TIME: Duration = Duration::from_millis(250);
/// But it has at least so many bytes, a common size of what mounts send.
const MESSAGE_MIN_BYTES: u64 = 64 << 10;
/// The least queue: what fewer packets find no room in is no link that anybody has.
const QUEUE_MIN_BYTES: u64 = 6000;

/// One link and what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Setting {
    /// In each direction; 1 KB = 1024 bytes.
    pub(super) rate_kb_per_s: f64,
    /// What the link adds to a round trip.
    pub(super) rtt_ms: u64,
    /// Depth of its queue, in seconds of its rate.
    pub(super) queue_seconds: f64,
    pub(super) direction: Direction,
}

impl Setting {
    /// None where rate or queue are nothing.
    pub(super) fn new(
        rate_kb_per_s: f64,
        rtt_ms: u64,
        queue_seconds: f64,
        direction: Direction,
    ) -> Option<Setting> {
        let is_right = |figure: f64| figure.is_finite() && figure > 0.0;
        let setting = Setting { rate_kb_per_s, rtt_ms, queue_seconds, direction };
        let is_link = is_right(queue_seconds) && is_right(rate_kb_per_s) && setting.rate() > 0;
        is_link.then_some(setting)
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> u64 {
        rounded(self.rate_kb_per_s * 1024.0)
    }

    pub(super) fn queue_bytes(&self) -> u64 {
        rounded(self.queue_seconds * self.rate() as f64).max(QUEUE_MIN_BYTES)
    }

    pub(super) fn link(&self) -> LinkSpec {
        let queue = Some(self.queue_bytes());
        let link = LinkSpec { rate: Some(self.rate()), queue, ..LinkSpec::default() };
        link.with_rtt(Duration::from_millis(self.rtt_ms))
    }

    /// Bytes of a message of the bulk.
    pub(super) fn message_bytes(&self) -> u64 {
        rounded(MESSAGE_TIME.as_secs_f64() * self.rate() as f64).max(MESSAGE_MIN_BYTES)
    }

    /// What so many full packets take on the link.
    pub(super) fn packets_time(&self, packets: u32) -> Duration {
        let bytes = f64::from(packets) * f64::from(PACKET_BYTES);
        Duration::from_secs_f64(bytes / self.rate() as f64)
    }

    /// What 99 of 100 questions are to be answered in, in milliseconds.
    pub(super) fn target_ms(&self) -> f64 {
        let target = Duration::from_millis(self.rtt_ms) + self.packets_time(PACKETS) + MARGIN;
        target.as_secs_f64() * 1e3
    }
}

fn rounded(figure: f64) -> u64 {
    // Settings are positive and far below 2^53.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = figure.round() as u64;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_the_round_trip_and_two_packets_and_20_ms() {
        let at = |rate, rtt_ms| Setting::new(rate, rtt_ms, 0.4, Direction::Up).unwrap().target_ms();
        assert_eq!(at(64.0, 40).round(), 105.0);
        assert_eq!(at(1.2, 200).round(), 2615.0);
        assert_eq!(Setting::new(0.0, 1, 0.4, Direction::Up), None);
        assert_eq!(Setting::new(64.0, 1, f64::NAN, Direction::Up), None);
    }

    #[test]
    fn messages_take_a_quarter_of_a_second_and_are_no_fragments() {
        let bytes = |rate| Setting::new(rate, 1, 0.4, Direction::Up).unwrap().message_bytes();
        assert_eq!([bytes(1.2), bytes(1024.0)], [64 << 10, 256 << 10]);
    }

    #[test]
    fn queue_is_deep_in_time_and_holds_some_packets() {
        let queue = |rate, seconds| {
            Setting::new(rate, 1, seconds, Direction::Up).unwrap().link().queue.unwrap()
        };
        assert_eq!(queue(64.0, 2.0), 128 << 10);
        assert_eq!(queue(1.2, 0.4), 6000);
    }
}
