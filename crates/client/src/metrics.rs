//! Counters of a mount.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use segue_core::nouns::Class;

/// The smallest bucket of times, in seconds. The largest is 2^16 times that, 33 s.
const FASTEST: f64 = 0.0005;
const BUCKETS: u16 = 17;

/// A label with its value.
pub(crate) type Label = (&'static str, &'static str);

/// What somebody asked for that may be known here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// Bytes of a file, with a read that the kernel passes on.
    Data,
    /// Attributes of an inode.
    Attributes,
    /// A name of a directory.
    Name,
}

impl Asked {
    fn label(self) -> [Label; 1] {
        let kind = match self {
            Asked::Data => "data",
            Asked::Attributes => "attributes",
            Asked::Name => "name",
        };
        [("kind", kind)]
    }
}

fn times() -> Histogram {
    Histogram::new(exponential_buckets(FASTEST, 2.0, BUCKETS))
}

/// Counters since the mount began. A clone counts on in the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) rpcs: Family<[Label; 2], Histogram, fn() -> Histogram>,
    pub(crate) hits: Family<[Label; 1], Counter>,
    pub(crate) misses: Family<[Label; 1], Counter>,
    /// Changes that became conflict copies.
    pub(crate) conflicts: Counter,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let rpcs = Family::new_with_constructor(times as fn() -> Histogram);
        let (hits, misses) = <(Family<[Label; 1], Counter>, _)>::default();
        // A count that is not there yet cannot be told from one that is gone.
        for asked in [Asked::Data, Asked::Attributes, Asked::Name] {
            for family in [&hits, &misses] {
                drop(family.get_or_create(&asked.label()));
            }
        }
        Metrics { rpcs, hits, misses, conflicts: Counter::default() }
    }
}

impl Metrics {
    /// The server answered a call, `after` it was to be sent.
    pub(crate) fn answered(&self, class: Class, op: &'static str, after: Duration) {
        let labels = [("class", class.name()), ("op", op)];
        self.rpcs.get_or_create(&labels).observe(after.as_secs_f64());
    }

    /// It was known here, or the server had to be asked.
    pub(crate) fn looked_up(&self, asked: Asked, is_hit: bool) {
        let family = if is_hit { &self.hits } else { &self.misses };
        family.get_or_create(&asked.label()).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn times_and_hits_are_counted_by_their_labels() {
        let metrics = Metrics::default();
        metrics.answered(Class::Fetch, "Fetch", Duration::from_millis(3));
        metrics.clone().answered(Class::Fetch, "Fetch", Duration::from_secs(100));
        metrics.looked_up(Asked::Data, true);
        metrics.looked_up(Asked::Data, false);
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register("rpc_seconds", "", metrics.rpcs);
        registry.register("hits", "", metrics.hits);
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"rpc_seconds_bucket{le="0.002",class="fetch",op="Fetch"} 0"#,
            r#"rpc_seconds_bucket{le="0.004",class="fetch",op="Fetch"} 1"#,
            r#"rpc_seconds_bucket{le="+Inf",class="fetch",op="Fetch"} 2"#,
            r#"hits_total{kind="data"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
