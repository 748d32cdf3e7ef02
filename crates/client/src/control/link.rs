//! What is known of the connection, for those who watch it or plot it.

use std::time::Duration;

use segue_core::nouns::Class;
#[cfg(debug_assertions)]
use segue_rpc::CloseCode;
use segue_rpc::LinkStats;
use tokio::sync::mpsc::Sender;

use crate::mount::{Mount, Shared};
use crate::replies::{ClassBytes, LinkReport};

/// What waits and went at each class.
pub(crate) fn classes(stats: &LinkStats) -> Vec<ClassBytes> {
    let bytes = stats.queued.into_iter().zip(stats.sent).zip(stats.sent_messages);
    let of = |(class, ((queued_bytes, sent_bytes), sent_messages)): (&Class, _)| ClassBytes {
        class: class.name().into(),
        queued_bytes,
        sent_bytes,
        sent_messages,
    };
    Class::ALL.iter().zip(bytes).map(of).collect()
}

/// Drops the connection as if nothing had been heard for the idle timeout.
#[cfg(debug_assertions)]
pub(super) fn lose_link(mount: &Mount) {
    if let Some(peer) = mount.remote.link().peer() {
        peer.close(CloseCode::Done, "lost for a test");
    }
}

/// The connection now.
pub(super) fn link_report(mount: &Mount) -> LinkReport {
    let link = mount.remote.link();
    let stats = link.stats();
    let bandwidth = mount.limiter.told();
    let wall = mount.host.wall();
    let report = LinkReport {
        time_seconds: wall.secs as f64 + f64::from(wall.nanos) / 1e9,
        connection: link.generation().unwrap_or(0),
        limit_up: bandwidth.limit_up,
        limit_down: bandwidth.limit_down,
        ..LinkReport::default()
    };
    match stats {
        Some(stats) => LinkReport {
            rate_up: stats.rate,
            bandwidth_up: stats.bandwidth_up,
            bandwidth_down: stats.bandwidth_down,
            rtt_seconds: stats.rtt.as_secs_f64(),
            base_rtt_seconds: stats.base_rtt.map_or(0.0, |base| base.as_secs_f64()),
            sent_bytes: stats.sent_bytes,
            received_bytes: stats.received_bytes,
            classes: classes(&stats),
            ..report
        },
        None => LinkReport { classes: classes(&LinkStats::default()), ..report },
    }
}

/// Tells of the connection each time that `every` has passed, until nobody listens.
pub(super) async fn watch_link(mount: Shared, every: Duration, tell: Sender<LinkReport>) {
    let mut times = tokio::time::interval(every);
    times.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = times.tick() => {}
            () = tell.closed() => return,
        }
        if tell.send(link_report(&mount)).await.is_err() {
            return;
        }
    }
}
