//! What the server counts, as OpenMetrics text, which Prometheus reads.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::admin::{self, AdminReply, AdminRequest, IdentityInfo, VolumeInfo};
use crate::clock::now;
use crate::serve::Server;

/// The smallest bucket of times, in seconds. The largest is 2^16 times that, 6.6 s.
const FASTEST: f64 = 0.0001;
const BUCKETS: u16 = 17;

/// Times of each kind of request.
type Times = Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>;

/// A value for each volume.
type ByVolume = Family<[(&'static str, String); 1], Gauge<f64, AtomicU64>>;

fn times() -> Histogram {
    Histogram::new(exponential_buckets(FASTEST, 2.0, BUCKETS))
}

/// Counters since the start.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Counter,
    times: Times,
    pub(crate) records: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) refused: Counter,
    pub(crate) chunks_received: Counter,
    pub(crate) chunk_bytes_received: Counter,
    pub(crate) chunks_known: Counter,
    pub(crate) bytes_fetched: Counter,
    pub(crate) damaged: Counter,
    pub(crate) chunks_healed: Counter,
    pub(crate) chunks_collected: Counter,
    pub(crate) packs_removed: Counter,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            requests: Counter::default(),
            times: Family::new_with_constructor(times as fn() -> Histogram),
            records: Counter::default(),
            conflicts: Counter::default(),
            refused: Counter::default(),
            chunks_received: Counter::default(),
            chunk_bytes_received: Counter::default(),
            chunks_known: Counter::default(),
            bytes_fetched: Counter::default(),
            damaged: Counter::default(),
            chunks_healed: Counter::default(),
            chunks_collected: Counter::default(),
            packs_removed: Counter::default(),
        }
    }
}

impl Metrics {
    /// A request was answered, `after` it had come.
    pub(crate) fn answered(&self, op: &'static str, after: Duration) {
        self.requests.inc();
        self.times.get_or_create(&[("op", op)]).observe(after.as_secs_f64());
    }

    fn register(&self, registry: &mut Registry) {
        let counters = [
            ("requests", "Requests answered", &self.requests),
            ("records_applied", "Records applied, including retried ones", &self.records),
            ("conflicts", "Records that became conflict copies", &self.conflicts),
            ("records_refused", "Records refused", &self.refused),
            ("chunks_received", "Chunks uploaded", &self.chunks_received),
            (
                "chunk_bytes_received",
                "Bytes of uploaded chunks as stored",
                &self.chunk_bytes_received,
            ),
            ("chunks_known", "Offered chunks that the server already had", &self.chunks_known),
            ("bytes_fetched", "Bytes of files sent, before compression", &self.bytes_fetched),
            ("damaged_chunks", "Chunks found damaged on the disk", &self.damaged),
            ("healed_chunks", "Damaged chunks that hosts sent again", &self.chunks_healed),
            ("chunks_collected", "Unneeded chunks that were removed", &self.chunks_collected),
            ("packs_removed", "Packs removed, compacted or empty", &self.packs_removed),
        ];
        for (name, words, counter) in counters {
            registry.register(name, words, counter.clone());
        }
        let words = "Time from a request to its answer, waits for other hosts included";
        registry.register("request_seconds", words, self.times.clone());
    }
}

/// Metrics of `server` as OpenMetrics text; may block.
pub(crate) fn text(server: &Server) -> String {
    let mut registry = Registry::with_prefix("segue_server");
    server.metrics.register(&mut registry);
    let mut gauge = |name: &str, words: &str, value: f64| {
        registry.register(name, words, ConstGauge::new(value));
    };
    gauge("sessions", "Clients connected now", number(server.sessions.count() as u64));
    let promises = server.data.store.promises().held() as u64;
    gauge("promises", "Inodes with callback promises to clients", number(promises));
    let marks = server.data.store.promises().marks() as u64;
    gauge("marks", "Files that hosts have changed and not sent", number(marks));
    gauge("uptime_seconds", "Time since the start", server.started.elapsed().as_secs_f64());
    if let Ok(disk) = rustix::fs::statvfs(server.data.path()) {
        let of = |blocks: u64| number(blocks.saturating_mul(disk.f_frsize));
        gauge("disk_bytes", "Size of the disk with the data directory", of(disk.f_blocks));
        gauge("disk_free_bytes", "Bytes of that disk that are free", of(disk.f_bavail));
    }
    let ask = |request| admin::execute(&server.data, Some(server), request);
    if let AdminReply::Volumes { volumes } = ask(AdminRequest::VolumeList) {
        register_volumes(&mut registry, &volumes);
    }
    if let AdminReply::Identities { identities } = ask(AdminRequest::IdentityList) {
        register_hosts(&mut registry, &identities);
    }
    let mut text = String::new();
    // Writing to a string does not fail.
    encode(&mut text, &registry).ok();
    text
}

/// What each volume holds, and how it is cared for.
fn register_volumes(registry: &mut Registry, volumes: &[VolumeInfo]) {
    let now = now().secs;
    let age = |then: Option<i64>| then.map(|then| seconds(now.saturating_sub(then)));
    let mut register = |name: &str, words: &str, value: &dyn Fn(&VolumeInfo) -> Option<f64>| {
        let family = ByVolume::default();
        for volume in volumes.iter().filter(|volume| volume.damaged.is_none()) {
            if let Some(value) = value(volume) {
                family.get_or_create(&[("volume", volume.name.clone())]).set(value);
            }
        }
        registry.register(name, words, family);
    };
    register("volume_bytes", "Bytes of all files that are not holes", &|volume| {
        Some(number(volume.allocated_bytes))
    });
    register("volume_inodes", "Inodes in use", &|volume| Some(number(volume.inodes)));
    register("volume_quota_bytes", "Most bytes that it may hold, if there is a limit", &|volume| {
        volume.quota_bytes.map(number)
    });
    register("backup_age_seconds", "Time since the last backup, if there was one", &|volume| {
        age(volume.backed_up)
    });
    register("check_age_seconds", "Time since each byte was last verified, if ever", &|volume| {
        age(volume.checked)
    });
    let damaged = volumes.iter().filter(|volume| volume.damaged.is_some()).count() as u64;
    let words = "Volumes whose rows cannot be read";
    registry.register("damaged_volumes", words, ConstGauge::new(number(damaged)));
}

fn register_hosts(registry: &mut Registry, identities: &[IdentityInfo]) {
    let family = ByVolume::default();
    for identity in identities.iter().filter(|identity| identity.revoked.is_none()) {
        family.get_or_create(&[("volume", identity.volume.clone())]).inc_by(1.0);
    }
    registry.register("hosts", "Identities that may connect", family);
}

#[allow(clippy::cast_precision_loss)]
fn number(value: u64) -> f64 {
    value as f64
}

/// None is before now, unless the clock was set back.
fn seconds(value: i64) -> f64 {
    number(u64::try_from(value).unwrap_or(0))
}
