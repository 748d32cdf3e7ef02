//! What a mount counts, as OpenMetrics text, which Prometheus reads.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use segue_core::nouns::Class;

use super::status::status;
use crate::metrics::Metrics;
use crate::mount::Mount;
use crate::replies::{ClassBytes, State, Status};

/// A value for each of a label's values.
type Labelled = Family<[(&'static str, String); 1], Gauge<f64, AtomicU64>>;

/// A count for each of a label's values.
type Counted = Family<[(&'static str, String); 1], Counter>;

#[allow(clippy::cast_precision_loss)]
fn number(value: u64) -> f64 {
    value as f64
}

/// What the link is like, what of it may be taken, and what waits and went at each class.
fn register_link(registry: &mut Registry, status: &Status) {
    let link = &status.link;
    let gauges = [
        ("rtt_seconds", "Round trip to the server", link.rtt_seconds),
        ("base_rtt_seconds", "Round trip of the idle link", link.base_rtt_seconds),
        (
            "rate_bytes_per_second",
            "Estimated capacity of the link to the server",
            number(link.rate_up),
        ),
    ];
    let registry = registry.sub_registry_with_prefix("link");
    for (name, words, value) in gauges {
        registry.register(name, words, ConstGauge::new(value));
    }
    let directed = |up: u64, down: u64| {
        let both = Labelled::default();
        for (direction, value) in [("up", up), ("down", down)] {
            both.get_or_create(&[("direction", direction.to_owned())]).set(number(value));
        }
        both
    };
    let words = "Rate at which data arrived when the link was last busy, up to the server and down";
    let measured = directed(link.bandwidth_up, link.bandwidth_down);
    registry.register("bandwidth_bytes_per_second", words, measured);
    let limits = directed(link.limit_up.unwrap_or(0), link.limit_down.unwrap_or(0));
    registry.register("limit_bytes_per_second", "Limit (bwlimit), 0 without one", limits);
    let (queued, bytes, messages) = <(Labelled, Counted, Counted)>::default();
    for ClassBytes { class, queued_bytes, sent_bytes, sent_messages } in &link.classes {
        let label = [("class", class.clone())];
        queued.get_or_create(&label).set(number(*queued_bytes));
        bytes.get_or_create(&label).inc_by(*sent_bytes);
        messages.get_or_create(&label).inc_by(*sent_messages);
    }
    registry.register("queued_bytes", "Bytes waiting to leave this host", queued);
    registry.register("sent_bytes", "Bytes sent on this connection", bytes);
    registry.register("sent_messages", "Calls and replies sent on this connection", messages);
}

/// Metrics as OpenMetrics text.
pub(super) fn metrics_text(mount: &Mount) -> String {
    let volume = mount.volume.url.rsplit_once('/').map_or("", |(_, volume)| volume);
    let labels = [("volume".into(), volume.to_owned().into())];
    let mut registry = Registry::with_prefix_and_labels("segue", labels.into_iter());
    let status = status(mount);
    register_counters(mount, &mut registry);
    register_state(mount, &mut registry, &status);
    register_link(&mut registry, &status);
    let mut text = String::new();
    // Writing to a string does not fail.
    encode(&mut text, &registry).ok();
    text
}

fn register_counters(mount: &Mount, registry: &mut Registry) {
    let Metrics { rpcs, hits, misses, conflicts } = &mount.metrics;
    let words = "Time from the call to the server's answer, waits for a connection included";
    registry.register("rpc_seconds", words, rpcs.clone());
    let words = "Questions that the cache of this host answered";
    registry.register("cache_hits", words, hits.clone());
    let words = "Questions for which the server had to be asked";
    registry.register("cache_misses", words, misses.clone());
    let words = "Changes of this host that became conflict copies";
    registry.register("conflicts", words, conflicts.clone());
    let counters = [
        (
            "cache_evicted_bytes",
            "File data evicted from the cache of this host",
            &mount.disk.space.evicted,
        ),
        (
            "kernel_requests",
            "Requests of the kernel that its own cache did not answer",
            &mount.kernel.cache.requests,
        ),
    ];
    for (name, words, counter) in counters {
        let counter = ConstCounter::new(counter.load(Ordering::Relaxed));
        registry.register(name, words, counter);
    }
}

fn register_state(mount: &Mount, registry: &mut Registry, status: &Status) {
    let online = if status.state == State::Offline { 0.0 } else { 1.0 };
    let gauges = [
        ("online", "1 while the server answers", online),
        ("log_records", "Uncommitted records", number(status.log_records)),
        ("log_bytes", "Size of the update log", number(status.log_bytes)),
        ("log_limit_bytes", "Largest size of the update log", number(status.log_limit_bytes)),
        (
            "to_send_bytes",
            "File data that still have to go to the server",
            number(status.to_send_bytes),
        ),
        (
            "unsafe_oldest_seconds",
            "Age of the oldest change that the server lacks",
            status.unsafe_oldest_seconds,
        ),
        ("cache_bytes", "File data on this host", number(status.cache_bytes)),
        (
            "cache_limit_bytes",
            "Most clean data on this host, with the present free space of the disk",
            number(status.cache_limit_bytes),
        ),
        (
            "passed_through",
            "Open files that the kernel reads by itself",
            number(mount.kernel.backed_files() as u64),
        ),
        ("promises", "Inodes with a callback promise of the server", number(status.promises)),
        ("marks", "Files that other hosts have changed and not sent", number(status.marks)),
        ("conflicts_unresolved", "Conflict copies to be resolved", { number(status.conflicts) }),
        ("refused", "Records refused by the server", number(status.refused)),
    ];
    for (name, words, value) in gauges {
        registry.register(name, words, ConstGauge::new(value));
    }
    let counters = [
        ("pulls", "Times that another host waited for a file of this one", status.pulls),
        ("waits", "Opens that waited for another host", status.waits),
    ];
    for (name, words, value) in counters {
        registry.register(name, words, ConstCounter::new(value));
    }
    let lacking = Labelled::default();
    for (class, bytes) in unsafe_by_class(mount) {
        lacking.get_or_create(&[("class", class.name().to_owned())]).set(number(bytes));
    }
    registry.register("unsafe_bytes", "File data that the server lacks, by class", lacking);
}

/// Bytes that the server lacks, by the class at which they go.
fn unsafe_by_class(mount: &Mount) -> [(Class, u64); 2] {
    let core = mount.host.lock();
    let (mut fast, mut data) = (0, 0);
    for (logged, _) in core.queue().iter() {
        let sum = match core.queue().class_of(logged) {
            Class::StoreFast => &mut fast,
            _ => &mut data,
        };
        *sum += logged.change.bytes();
    }
    data += core.files().map(|(_, file)| file.dirty_bytes()).sum::<u64>();
    [(Class::StoreFast, fast), (Class::StoreData, data)]
}
