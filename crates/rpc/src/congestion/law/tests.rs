use std::collections::VecDeque;

use super::*;

const PACKET: u64 = 1200;

/// A link of `rate` bytes a second behind an endless queue, and a sender that is never idle.
struct Path {
    law: Law,
    now: Instant,
    base: Duration,
    rate: u64,
    /// When the link has sent all that it was given.
    free: Instant,
    /// When each packet was sent, and when its acknowledgement comes.
    flying: VecDeque<(Instant, Instant)>,
    delivered: u64,
}

impl Path {
    fn new(rate: u64, base: Duration) -> Path {
        let now = Instant::now();
        let law = Law::new(now, u16::try_from(PACKET).unwrap());
        Path { law, now, base, rate, free: now, flying: VecDeque::new(), delivered: 0 }
    }

    /// Sends for so long; the longest queue in the second half of it.
    fn run(&mut self, time: Duration) -> Duration {
        let (end, half) = (self.now + time, self.now + time / 2);
        let mut longest = Duration::ZERO;
        // Cubic without losses.
        let mut cubic = 12_000;
        while self.now < end {
            while (self.flying.len() as u64 + 1) * PACKET <= self.law.window().min(cubic) {
                let packet = Duration::from_secs_f64(PACKET as f64 / self.rate as f64);
                self.free = self.free.max(self.now) + packet;
                self.flying.push_back((self.now, self.free + self.base));
            }
            if self.now > half {
                longest = longest.max(self.free.saturating_duration_since(self.now));
            }
            let (sent, acked) = self.flying.pop_front().unwrap();
            self.now = acked;
            self.delivered += PACKET;
            cubic += PACKET;
            self.law.handle_ack((self.now, sent), false, cubic);
        }
        longest
    }
}

#[test]
fn the_queue_stays_short_and_the_link_full_at_any_rate() {
    for rate in [16 << 10, 64 << 10, 1 << 20, 10 << 20] {
        for base in [1, 40, 200].map(Duration::from_millis) {
            let mut path = Path::new(rate, base);
            path.run(Duration::from_secs(10));
            let before = path.delivered;
            let queue = path.run(Duration::from_secs(50));
            let used = (path.delivered - before) as f64 / (rate as f64 * 50.0);
            // Nothing is paced here: after the queue was let run empty a whole window comes at once.
            let packets = Duration::from_secs_f64(6.0 * PACKET as f64 / rate as f64);
            assert!(queue <= 2 * TARGET + base + packets, "{rate}, {base:?}: {queue:?}");
            assert!(used > 0.9, "{rate}, {base:?}: {used}");
        }
    }
}

#[test]
fn the_window_follows_a_link_that_becomes_slower_or_faster() {
    let mut path = Path::new(1 << 20, Duration::from_millis(40));
    path.run(Duration::from_secs(5));
    path.rate = 64 << 10;
    let queue = path.run(Duration::from_secs(8));
    assert!(queue < Duration::from_millis(150), "{queue:?}");
    path.rate = 1 << 20;
    path.run(Duration::from_secs(2));
    let before = path.delivered;
    path.run(Duration::from_secs(5));
    assert!(path.delivered - before > 4 << 20);
}

/// A queue that others fill, or a path that became longer, left two packets for ever.
#[test]
fn who_cannot_shorten_the_queue_does_not_starve() {
    let mut path = Path::new(1 << 20, Duration::from_millis(10));
    path.run(Duration::from_secs(5));
    path.base = Duration::from_millis(500);
    path.run(Duration::from_secs(40));
    let before = path.delivered;
    path.run(Duration::from_secs(10));
    assert!(path.delivered - before > 5 << 20, "{}", path.delivered - before);
}
