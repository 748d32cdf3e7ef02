//! [MFS table 3] beside the same of our traces, and how much they have moved when.

use std::path::Path;

use serde::Serialize;

use super::load::Load;
use super::trace::{Act, Parameters, Trace};
use crate::plot::lines::{Chart, Curve, Look};
use crate::record::Context;
use crate::results::Results;
use segue_bed::Result;

const ABOUT: &str = "\
    Ours are made anew (`crates/bench/src/replay/generate.rs`, seeds fixed): the paper's are not \
    published. 1 MB = 2^20 bytes. Total file sizes: of the files that are there before. Files of \
    more than 4 MB are dropped. Figures that the paper does not have are below the line.";

/// A trace, counted.
#[derive(Debug, Serialize)]
struct Counted {
    trace: &'static str,
    scale: f64,
    #[serde(flatten)]
    parameters: Parameters,
    #[serde(flatten)]
    beside: Beside,
}

/// What the paper's table does not have.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Beside {
    reads: u32,
    writes: u32,
    new_files: usize,
    /// Of the largest file there ever is.
    largest_bytes: u64,
    /// Half the files are smaller than that before or after the trace.
    median_bytes: u64,
}

pub(super) fn run(out: &Path, context: Context, scale: f64) -> Result<String> {
    let mut results = Results::create(out, "mfs-table3", context)?;
    let traces = Load::ALL.map(|load| (load, load.trace(scale)));
    for (load, trace) in &traces {
        let (parameters, beside) = (trace.parameters(), Beside::of(trace));
        results.add(&Counted { trace: load.name(), scale, parameters, beside })?;
    }
    let text = markdown(results.context(), scale, &traces);
    let charts = traces.iter().map(|(load, trace)| chart(*load, trace, scale)).collect();
    results.finish(&text, &Chart::parts(charts))?;
    Ok(text)
}

impl Beside {
    fn of(trace: &Trace) -> Beside {
        let mut beside = Beside::default();
        for access in trace.accesses() {
            match access.act {
                Act::Read { .. } => beside.reads += 1,
                Act::Write { .. } => beside.writes += 1,
            }
        }
        let mut sizes = trace.sizes();
        sizes.sort_unstable();
        beside.new_files = trace.files.iter().filter(|file| file.bytes.is_none()).count();
        beside.largest_bytes = sizes.last().copied().unwrap_or(0);
        beside.median_bytes = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
        beside
    }
}

fn markdown(context: &Context, scale: f64, traces: &[(Load, Trace)]) -> String {
    let small = if scale < 1.0 { format!(" Ours are at {scale} of that size.") } else { "".into() };
    let names: String =
        traces.iter().map(|(load, _)| format!(" {}: paper | ours |", load.name())).collect();
    let lines = "--:|".repeat(2 * traces.len());
    let mut text = format!("{}{ABOUT}{small}\n\n| |{names}\n|---|{lines}\n", context.heading());
    let columns: Vec<(Parameters, Parameters)> =
        traces.iter().map(|(load, trace)| (load.parameters(1.0), trace.parameters())).collect();
    for (name, value) in ROWS {
        let cells: String = columns
            .iter()
            .map(|(theirs, ours)| format!(" {} | {} |", value(theirs), value(ours)))
            .collect();
        text += &format!("| {name} |{cells}\n");
    }
    text += &format!("| |{}\n", " | |".repeat(traces.len()));
    let beside: Vec<Beside> = traces.iter().map(|(_, trace)| Beside::of(trace)).collect();
    for (name, value) in ROWS_BESIDE {
        let cells: String = beside.iter().map(|one| format!(" | {} |", value(one))).collect();
        text += &format!("| {name} |{cells}\n");
    }
    text
}

type Row<T> = (&'static str, fn(&T) -> String);

const ROWS: [Row<Parameters>; 6] = [
    ("duration (s)", |one| one.seconds.to_string()),
    ("applications", |one| one.applications.to_string()),
    ("unique files", |one| one.files.to_string()),
    ("total file sizes (MB)", |one| megabytes(one.file_bytes)),
    ("read traffic (MB)", |one| megabytes(one.read_bytes)),
    ("write traffic (MB)", |one| megabytes(one.written_bytes)),
];

const ROWS_BESIDE: [Row<Beside>; 5] = [
    ("reads", |one| one.reads.to_string()),
    ("writes", |one| one.writes.to_string()),
    ("files made", |one| one.new_files.to_string()),
    ("median file (KB)", |one| format!("{:.1}", one.median_bytes as f64 / 1024.0)),
    ("largest file (MB)", |one| megabytes(one.largest_bytes)),
];

fn megabytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}

/// The bytes that were read and written until each moment, and the paper's totals.
fn chart(load: Load, trace: &Trace, scale: f64) -> Chart {
    let mut accesses: Vec<_> = trace.accesses().collect();
    accesses.sort_by_key(|access| access.at);
    let curve = |name, look, is_of: bool| {
        let mut moved = 0;
        let points = accesses.iter().filter_map(|access| {
            let (is_read, bytes) = access.act.moved();
            moved += if is_read == is_of { bytes } else { 0 };
            let point = (access.at.as_secs_f64(), moved as f64 / f64::from(1 << 20));
            (is_read == is_of).then_some(point)
        });
        Curve { name, look, pieces: vec![points.collect()] }
    };
    let curves = vec![curve("read", Look::Blue, true), curve("written", Look::Dark, false)];
    let theirs = load.parameters(scale);
    let level = |name: &str, bytes: u64| (name.to_owned(), bytes as f64 / f64::from(1 << 20));
    let levels =
        vec![level("the paper's totals", theirs.read_bytes), level("", theirs.written_bytes)];
    Chart { levels, ..Chart::new(load.name(), ["seconds", "MB"], curves) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_stand_beside_the_papers() {
        let traces = Load::ALL.map(|load| (load, load.trace(1.0)));
        let text = markdown(&Context::of_test(), 1.0, &traces);
        for row in [
            "| duration (s) | 101 | 101 | 106 | 106 | 34 | 34 |",
            "| applications | 25 | 25 | 15 | 15 | 41 | 41 |",
            "| unique files | 2952 | 2952 | 276 | 276 | 3312 | 3312 |",
            "| total file sizes (MB) | 46.61 | 46.61 | 16.51 | 16.51 | 125.31 | 125.31 |",
            "| read traffic (MB) | 10.82 | 10.82 | 12.74 | 12.74 | 27.82 | 27.82 |",
            "| write traffic (MB) | 3.44 | 3.44 | 19.92 | 19.92 | 9.59 | 9.59 |",
        ] {
            assert!(text.contains(row), "{row}: {text}");
        }
    }
}
