//! The experiment `small-writes`: many small files are written on long and slow links.
//!
//! ```text
//!   untar, npm-tree, git-checkout  ×  unlimited | 1 MB/s, 20 ms | 1 MB/s, 100 ms
//! ```
//!
//! What is asked for is that the user waits at most 1.2 times what it takes on an unlimited link;
//! beside it, how fast the update log drains, and the bytes on the wire against what a tar of the
//! same files takes by zstd and ssh.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::measurement::{self, Effort, Run, failures, figures_of, kinds, runs_and_scale};
use crate::plot::dots::{Panel, Row};
use crate::record::{Context, Figures};
use crate::run::{act, within};
use crate::spread::{Spread, caption, median};
use crate::workload::{self, Workload, untar};
use segue_bed::peer::{self, Kind, Stage};
use segue_bed::{Bed, LinkSpec, Result};

/// Part of the results' names, and the experiment's on the command line.
pub const NAME: &str = "small-writes";

const WORKLOADS: [&str; 3] = ["untar", "npm-tree", "git-checkout"];
/// Milliseconds of round trip at [`RATE`]; none: as fast as the machine.
const ROUND_TRIPS: [Option<u64>; 3] = [None, Some(20), Some(100)];
/// KB a second.
const RATE: u64 = 1024;
/// What is measured when no file system is named.
const FILE_SYSTEMS: [&str; 2] = ["local", "segue"];
/// What the user may wait on a link, of what it takes on an unlimited one.
const TARGET: f64 = 1.2;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Cell {
    workload: &'static str,
    system: &'static str,
    rtt_ms: Option<u64>,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.workload, self.system, self.link())
    }
}

impl Cell {
    fn link(&self) -> String {
        let slow = |rtt| format!("{RATE} KB/s, {rtt} ms");
        self.rtt_ms.map_or_else(|| "unlimited".into(), slow)
    }
}

/// One of them, once.
#[derive(Debug, Clone, Copy, Serialize)]
struct Written {
    #[serde(flatten)]
    figures: Figures,
    /// Of the same files by tar, zstd and ssh.
    shipped_bytes: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.figures.seconds)
    }
}

type Measurement = measurement::Measurement<Cell, Written>;

/// Measures `kinds`, or the usual file systems if there are none, and writes the results into
/// `out`; the table.
pub fn run(kinds: Vec<Kind>, effort: &Effort, out: &Path, context: Context) -> Result<String> {
    let usual = || FILE_SYSTEMS.into_iter().filter_map(peer::named).collect();
    let kinds: Vec<Kind> = if kinds.is_empty() { usual() } else { kinds };
    let mut run = Run::create(out, NAME, context, effort.scale)?;
    // The beds keep their files until the end, though nothing runs there: ext4 looks for places
    // for new files among those removed in the last minutes, and later runs would wait for that.
    let mut beds = Vec::new();
    for repeat in 1..=effort.repeats {
        for workload in WORKLOADS.into_iter().filter_map(workload::named) {
            for rtt_ms in ROUND_TRIPS {
                // The link does not matter to a local file system: once is enough.
                for kind in kinds.iter().filter(|kind| kind.remote || rtt_ms.is_none()) {
                    let cell = Cell { workload: workload.name(), system: kind.name, rtt_ms };
                    let mut bed = Bed::new()?;
                    let measured = measure(&bed, workload, *kind, rtt_ms, effort);
                    bed.end_all()?;
                    beds.push(bed);
                    run.add(cell, repeat, measured)?;
                }
            }
        }
    }
    let Run { results, measured, .. } = run;
    let text = markdown(results.context(), &measured);
    results.finish(&text, &Panel::parts(panels(&measured)))?;
    Ok(text)
}

fn measure(
    bed: &Bed,
    workload: &'static dyn Workload,
    kind: Kind,
    rtt_ms: Option<u64>,
    effort: &Effort,
) -> Result<Written> {
    let stage = Stage::on(bed)?;
    let slow = |rtt| LinkSpec::kb_per_s(RATE).with_rtt(Duration::from_millis(rtt));
    let link = rtt_ms.map_or_else(LinkSpec::default, slow);
    let scale = effort.scale;
    within(effort.limit, move || {
        let figures = act(workload, kind, &stage, link, scale, true)?;
        stage.client.set_link(LinkSpec::default())?;
        let shipped_bytes = peer::shipped_bytes(&stage, &untar::archive(&stage.client))?;
        Ok(Written { figures, shipped_bytes })
    })
}

const ABOUT: &str = "\
    untar: a local tar of 2,000 files, 30 MB; npm-tree: of 20,000 files, 80 MB; git-checkout: \
    2,000 of 4,000 files change with the branch, in a repository that lies in the mount and is \
    cached. Seconds: the user's wait. Records: those pending then; drained in: seconds from then \
    until the server has everything. KB sent: the client's link until then, and for a tar of the \
    same files by zstd and ssh. Bold: more than";

const HEADING: &str = "\
    | workload | file system | link | seconds | × unlimited | records | drained in | records/s \
    | KB sent | tar, zstd, ssh | × |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n";

fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!(
        "{}{} At {scale} of the standard size. {ABOUT} {TARGET} times the time on an unlimited \
         link.\n\n{HEADING}",
        context.heading(),
        caption(runs)
    );
    for cell in kinds(measured) {
        match middling(measured, cell) {
            Some(written) => text += &line(measured, cell, written),
            None => {
                text += &format!(
                    "| {} | {} | {} | failed |{}\n",
                    cell.workload,
                    cell.system,
                    cell.link(),
                    " |".repeat(7)
                )
            }
        }
    }
    text + &failures(measured)
}

/// The median of each figure for itself.
fn middling(measured: &[Measurement], cell: Cell) -> Option<Written> {
    let of = figures_of(measured, cell);
    let figures: Vec<Figures> = of.clone().map(|written| written.figures).collect();
    let shipped_bytes = median(of.map(|written| written.shipped_bytes))?;
    Some(Written { figures: Figures::median(&figures)?, shipped_bytes })
}

/// The seconds that a user waits, in each repeat that succeeded.
fn waits(measured: &[Measurement], cell: Cell) -> Option<Spread> {
    Spread::over(figures_of(measured, cell).map(|written| written.figures.seconds))
}

fn line(measured: &[Measurement], cell: Cell, written: Written) -> String {
    let Written { figures, shipped_bytes } = written;
    let Figures { seconds, until_server_seconds, pending_records, sent_bytes, .. } = figures;
    let base = middling(measured, Cell { rtt_ms: None, ..cell });
    let times = base.filter(|_| cell.rtt_ms.is_some()).map(|base| seconds / base.figures.seconds);
    let times = times.map_or(String::new(), |times| {
        if times > TARGET { format!("**{times:.2}**") } else { format!("{times:.2}") }
    });
    let drained = until_server_seconds.map(|until| until - seconds);
    let rate = pending_records.zip(drained).map(|(records, drained)| records as f64 / drained);
    let shown = |figure: Option<f64>, digits: usize| {
        figure.map_or(String::new(), |figure| format!("{figure:.digits$}"))
    };
    format!(
        "| {} | {} | {} | {} | {times} | {} | {} | {} | {} | {} | {:.2} |\n",
        cell.workload,
        cell.system,
        cell.link(),
        waits(measured, cell).map_or(String::new(), |waits| waits.cell(2)),
        pending_records.map_or(String::new(), |records| records.to_string()),
        shown(drained, 1),
        shown(rate, 0),
        sent_bytes / 1024,
        shipped_bytes / 1024,
        sent_bytes as f64 / shipped_bytes as f64
    )
}

/// For each workload the user's wait beside its target, and the time until the server has
/// everything.
fn panels(measured: &[Measurement]) -> Vec<Panel> {
    let row = |cell: &Cell| {
        let figures = middling(measured, *cell).map(|written| written.figures);
        let base = waits(measured, Cell { rtt_ms: None, ..*cell });
        let base = base.filter(|_| cell.rtt_ms.is_some());
        Row {
            value: waits(measured, *cell),
            later: figures.and_then(|figures| figures.until_server_seconds),
            target: base.map(|base| TARGET * base.median()),
            ..Row::named(format!("{} {}", cell.system, cell.link()))
        }
    };
    let cells = kinds(measured);
    let mut panels = Vec::new();
    for workload in WORKLOADS {
        let of = cells.iter().filter(|one| one.workload == workload).map(row).collect();
        let later = "the server has everything";
        panels.push(Panel { later, ..Panel::new(workload, "seconds", of) });
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_missed_and_how_fast_the_log_drains() {
        let cell = |rtt_ms| Cell { workload: "untar", system: "segue", rtt_ms };
        let written = |seconds| Written {
            figures: Figures {
                seconds,
                restarted_seconds: None,
                until_server_seconds: Some(seconds + 10.0),
                pending_records: Some(2000),
                sent_bytes: 4096,
                received_bytes: 1,
            },
            shipped_bytes: 2048,
        };
        let measured = [
            Measurement::new(cell(None), 1, 1.0, Ok(written(1.0))),
            Measurement::new(cell(Some(20)), 1, 1.0, Ok(written(1.1))),
            Measurement::new(cell(Some(100)), 1, 1.0, Ok(written(1.5))),
        ];
        let text = markdown(&Context::of_test(), &measured);
        for row in [
            "| unlimited | 1.00 |  | 2000 | 10.0 | 200 | 4 | 2 | 2.00 |",
            "| 1024 KB/s, 20 ms | 1.10 | 1.10 | 2000 |",
            "| 1024 KB/s, 100 ms | 1.50 | **1.50** | 2000 |",
        ] {
            assert!(text.contains(row), "{text}");
        }
    }
}
