//! What one measurement comes to.

use serde::Serialize;

use super::drive::Driven;
use super::setting::Setting;
use super::wrong;
use crate::spread::median;
use segue_bed::Result;

/// What was measured; shares are of the link's rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Round trips beside the bulk that were taken.
    pub(super) calls: usize,
    /// Median on the idle link.
    pub(super) idle_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) max_ms: f64,
    /// Share of round trips that took longer than the target.
    pub(super) late: f64,
    /// Body bytes that came to the server; null where they are not counted.
    pub(super) up_share: Option<f64>,
    /// Body bytes that came to the client; null where they are not counted.
    pub(super) down_share: Option<f64>,
    /// Bytes that the client gave to its link, with all headers and what the queue dropped.
    pub(super) sent_share: f64,
    /// Bytes that the link brought the client, with all headers.
    pub(super) received_share: f64,
    /// The bulk was over before the last answer came, which more bulk might have delayed further.
    pub(super) bulk_ended: bool,
}

impl Figures {
    /// Of the transport, whose bulk is counted.
    pub(super) fn of_calls(driven: &Driven, setting: &Setting) -> Result<Figures> {
        let Driven { idle_us, calls_us, up, down, sent, received } = driven;
        let share = |rate: f64| rate / setting.rate() as f64;
        let figures = Figures::of_trips(idle_us, calls_us, (*sent, *received), setting)?;
        let direction = setting.direction;
        Ok(Figures {
            up_share: direction.is_up().then(|| share(*up)),
            down_share: direction.is_down().then(|| share(*down)),
            ..figures
        })
    }

    /// Of round trips alone, while the link carried so many bytes in a second.
    pub(super) fn of_trips(
        idle_us: &[u64],
        trips_us: &[u64],
        (sent, received): (f64, f64),
        setting: &Setting,
    ) -> Result<Figures> {
        let at = |trips: &[u64], share: f64| {
            quantile(trips, share).ok_or_else(|| wrong("nothing was asked"))
        };
        let target = setting.target_ms();
        let late = trips_us.iter().filter(|trip| **trip as f64 / 1e3 > target).count();
        Ok(Figures {
            calls: trips_us.len(),
            idle_ms: at(idle_us, 0.5)?,
            p50_ms: at(trips_us, 0.5)?,
            p99_ms: at(trips_us, 0.99)?,
            max_ms: at(trips_us, 1.0)?,
            late: late as f64 / trips_us.len() as f64,
            up_share: None,
            down_share: None,
            sent_share: sent / setting.rate() as f64,
            received_share: received / setting.rate() as f64,
            bulk_ended: false,
        })
    }

    /// The lesser share of the bulk, where it is counted.
    pub(super) fn goodput(&self) -> Option<f64> {
        self.up_share.into_iter().chain(self.down_share).min_by(f64::total_cmp)
    }

    /// The median of each figure for itself.
    pub(super) fn median(figures: &[Figures]) -> Option<Figures> {
        let each = |figure: fn(&Figures) -> f64| median(figures.iter().map(figure));
        Some(Figures {
            calls: median(figures.iter().map(|one| one.calls))?,
            idle_ms: each(|one| one.idle_ms)?,
            p50_ms: each(|one| one.p50_ms)?,
            p99_ms: each(|one| one.p99_ms)?,
            max_ms: each(|one| one.max_ms)?,
            late: each(|one| one.late)?,
            up_share: median(figures.iter().filter_map(|one| one.up_share)),
            down_share: median(figures.iter().filter_map(|one| one.down_share)),
            sent_share: each(|one| one.sent_share)?,
            received_share: each(|one| one.received_share)?,
            bulk_ended: figures.iter().any(|one| one.bulk_ended),
        })
    }
}

/// The least of `trips` that this share of them does not exceed, in milliseconds.
pub(super) fn quantile(trips_us: &[u64], share: f64) -> Option<f64> {
    let mut trips = trips_us.to_vec();
    trips.sort_unstable();
    // A share is at most 1, so this is at most their number.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rank = (share * trips.len() as f64).ceil() as usize;
    trips.get(rank.max(1) - 1).map(|trip| *trip as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let trips: Vec<u64> = (1..=200).rev().map(|ms| ms * 1000).collect();
        let at = [0.5, 0.99, 1.0].map(|share| quantile(&trips, share));
        assert_eq!(at, [Some(100.0), Some(198.0), Some(200.0)]);
        assert_eq!(quantile(&trips[..1], 0.5), Some(200.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
