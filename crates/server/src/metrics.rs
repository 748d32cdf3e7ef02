//! What the server counts.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) requests: AtomicU64,
    pub(crate) records: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) chunks_received: AtomicU64,
    pub(crate) chunk_bytes_received: AtomicU64,
    pub(crate) chunks_known: AtomicU64,
    pub(crate) bytes_fetched: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) chunks_healed: AtomicU64,
    pub(crate) chunks_collected: AtomicU64,
    pub(crate) packs_removed: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Metrics {
    /// Prometheus text.
    pub(crate) fn text(&self, sessions: usize, promises: usize) -> String {
        let mut text = String::new();
        let mut write = |name: &str, kind: &str, help: &str, value: u64| {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "# HELP segue_server_{name} {help}\n# TYPE segue_server_{name} {kind}\n\
                 segue_server_{name} {value}"
            );
        };
        write("sessions", "gauge", "Clients connected now.", sessions as u64);
        write("promises", "gauge", "Inodes with callback promises to clients.", promises as u64);
        let counters = [
            ("requests_total", "Requests answered.", &self.requests),
            ("records_applied_total", "Records applied, including retried ones.", &self.records),
            ("conflicts_total", "Records that became conflict copies.", &self.conflicts),
            ("records_refused_total", "Records refused.", &self.refused),
            ("chunks_received_total", "Chunks uploaded.", &self.chunks_received),
            (
                "chunk_bytes_received_total",
                "Bytes of uploaded chunks as stored.",
                &self.chunk_bytes_received,
            ),
            (
                "chunks_known_total",
                "Offered chunks that the server already had.",
                &self.chunks_known,
            ),
            (
                "bytes_fetched_total",
                "Bytes of files sent, before compression.",
                &self.bytes_fetched,
            ),
            ("damaged_chunks_total", "Chunks found damaged on the disk.", &self.damaged),
            ("healed_chunks_total", "Damaged chunks that hosts sent again.", &self.chunks_healed),
            (
                "chunks_collected_total",
                "Unneeded chunks that were removed.",
                &self.chunks_collected,
            ),
            ("packs_removed_total", "Packs removed, compacted or empty.", &self.packs_removed),
        ];
        for (name, help, counter) in counters {
            write(name, "counter", help, counter.load(Ordering::Relaxed));
        }
        text
    }
}
