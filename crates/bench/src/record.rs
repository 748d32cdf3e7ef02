//! The figures of one measurement, and where and when it was made.

use std::fs;

use serde::{Deserialize, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::spread::median;
use crate::tree::Tree;

/// One workload once on one file system over one link.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// The workload's name.
    pub workload: &'static str,
    /// The file system's name.
    pub file_system: &'static str,
    /// Whether the link matters to it.
    pub remote: bool,
    /// The link's rate; null: unlimited.
    pub rate_kb_per_s: Option<u64>,
    /// What the link adds to a round trip.
    pub rtt_seconds: f64,
    /// Which repeat of the run, from 1.
    pub repeat: u32,
    /// Share of the workload's standard size.
    pub scale: f64,
    /// The figures, or why there are none.
    #[serde(flatten, serialize_with = "figures_or_error")]
    pub figures: Result<Figures, String>,
}

/// The figures of a workload.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Figures {
    /// How long the user waits.
    pub seconds: f64,
    /// The same after the file system was mounted anew; null where nothing is asked of caches.
    pub restarted_seconds: Option<f64>,
    /// From the start, or the link's return, until the server has every change; null where
    /// nothing is written.
    pub until_server_seconds: Option<f64>,
    /// Records that waited for the server when the user waited no more; null where nobody says.
    pub pending_records: Option<u64>,
    /// Bytes from the client on its link in that time.
    pub sent_bytes: u64,
    /// Bytes to the client on its link in that time.
    pub received_bytes: u64,
}

impl Figures {
    /// The median of each figure for itself.
    pub(crate) fn median(figures: &[Figures]) -> Option<Figures> {
        let of = |figure: fn(&Figures) -> Option<f64>| median(figures.iter().filter_map(figure));
        Some(Figures {
            seconds: of(|one| Some(one.seconds))?,
            restarted_seconds: of(|one| one.restarted_seconds),
            until_server_seconds: of(|one| one.until_server_seconds),
            pending_records: median(figures.iter().filter_map(|one| one.pending_records)),
            sent_bytes: median(figures.iter().map(|one| one.sent_bytes))?,
            received_bytes: median(figures.iter().map(|one| one.received_bytes))?,
        })
    }
}

#[derive(Serialize)]
struct Failure<'a> {
    error: &'a str,
}

fn figures_or_error<S: Serializer>(
    figures: &Result<Figures, String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    match figures {
        Ok(figures) => figures.serialize(to),
        Err(error) => Failure { error }.serialize(to),
    }
}

/// Where, when and of what a run is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// When it began, in UTC.
    pub date: String,
    /// The commit measured: `-dirty` behind it if the tree differed, "unknown" without git.
    pub commit: String,
    /// The command line.
    pub command: String,
    /// Processor, memory and kernel.
    pub machine: String,
}

impl Context {
    /// The context of this process now, with the tree as it is.
    pub fn now() -> Context {
        Context::of(&Tree::of_program())
    }

    /// The same of a tree without changes: an error if it has any.
    pub fn committed() -> Result<Context, String> {
        let tree = Tree::of_program();
        tree.expect_committed()?;
        Ok(Context::of(&tree))
    }

    fn of(tree: &Tree) -> Context {
        if !tree.has_commit() {
            eprintln!("segue-bench: git names no commit here; the results say \"unknown\"");
        }
        let date = OffsetDateTime::now_utc().replace_nanosecond(0);
        let date = date.ok().and_then(|date| date.format(&Rfc3339).ok()).unwrap_or_default();
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        Context {
            date,
            commit: tree.commit(),
            command: format!("segue-bench {command}"),
            machine: machine(),
        }
    }

    /// How a report in Markdown begins.
    pub(crate) fn heading(&self) -> String {
        let Context { date, commit, command, machine } = self;
        let dirty = commit.ends_with("-dirty");
        let note = if dirty { " (with changes that are in no commit)" } else { "" };
        format!("# {command}\n\n{date}, commit {commit}{note}\n{machine}\n\n")
    }

    /// One that is the same in each test.
    #[cfg(test)]
    pub(crate) fn of_test() -> Context {
        let [date, commit, command, machine] = ["d", "c", "x", "m"].map(str::to_owned);
        Context { date, commit, command, machine }
    }
}

fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |table: &str, key: &str| {
        let line = table.lines().find(|line| line.starts_with(key));
        let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
        value.unwrap_or("unknown").to_owned()
    };
    let processors = read("/proc/cpuinfo");
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{count} x {}, {} memory, Linux {}",
        value(&processors, "model name"),
        value(&read("/proc/meminfo"), "MemTotal"),
        read("/proc/sys/kernel/osrelease").trim()
    )
}
