//! Results on disk: JSON lines as they come, then a Markdown table and a plot of the medians.

use std::path::Path;

use crate::plot::{Bar, Panel};
use crate::record::{Context, Figures, Measurement};
use crate::results::Results;
use segue_bed::Result;

/// The files of one run.
#[derive(Debug)]
pub struct Report {
    results: Results,
    measured: Vec<Measurement>,
}

/// All repeats of one workload on one file system over one link.
#[derive(Debug)]
struct Row {
    workload: &'static str,
    file_system: &'static str,
    link: String,
    /// Of the repeats that succeeded.
    median: Option<Figures>,
    fastest: f64,
    slowest: f64,
    succeeded: usize,
    repeats: usize,
    error: Option<String>,
}

impl Report {
    /// Opens a new set of files in `out`, named by date and `title`.
    pub fn create(out: &Path, title: &str, context: Context) -> Result<Report> {
        Ok(Report { results: Results::create(out, title, context)?, measured: Vec::new() })
    }

    /// Takes a measurement, which is on disk when this returns.
    pub fn add(&mut self, measurement: Measurement) -> Result<()> {
        self.results.add(&measurement)?;
        self.measured.push(measurement);
        Ok(())
    }

    /// Writes the table and the plot, and returns the table.
    pub fn finish(self) -> Result<String> {
        let rows = rows(&self.measured);
        let table = markdown(self.results.context(), &rows);
        self.results.finish(&table, &panels(&rows))?;
        Ok(table)
    }
}

/// Groups measurements, in the order of first appearance.
fn rows(measured: &[Measurement]) -> Vec<Row> {
    let mut groups: Vec<Vec<&Measurement>> = Vec::new();
    for new in measured {
        match groups.iter_mut().find(|group| group.iter().all(|old| same_cell(old, new))) {
            Some(group) => group.push(new),
            None => groups.push(vec![new]),
        }
    }
    // By workload first; the sort is stable.
    let order = |group: &Vec<&Measurement>| {
        measured.iter().position(|m| group.iter().any(|g| g.workload == m.workload))
    };
    groups.sort_by_key(order);
    groups.iter().filter_map(|group| row(group)).collect()
}

fn same_cell(a: &Measurement, b: &Measurement) -> bool {
    let key = |m: &Measurement| (m.workload, m.file_system, m.rate_kb_per_s);
    key(a) == key(b)
}

fn row(group: &[&Measurement]) -> Option<Row> {
    let first = group.first()?;
    let figures: Vec<Figures> =
        group.iter().filter_map(|m| m.figures.as_ref().ok().copied()).collect();
    let error = group.iter().find_map(|m| m.figures.as_ref().err().cloned());
    Some(Row {
        workload: first.workload,
        file_system: first.file_system,
        link: link(first),
        median: median(&figures),
        fastest: figures.iter().map(|f| f.seconds).fold(f64::INFINITY, f64::min),
        slowest: figures.iter().map(|f| f.seconds).fold(0.0, f64::max),
        succeeded: figures.len(),
        repeats: group.len(),
        error,
    })
}

fn link(measurement: &Measurement) -> String {
    if !measurement.remote {
        return "-".into();
    }
    let rate = measurement.rate_kb_per_s;
    let rate = rate.map_or_else(|| "unlimited".into(), |rate| format!("{rate} KB/s"));
    if measurement.rtt_seconds == 0.0 {
        return rate;
    }
    format!("{rate}, {} ms", measurement.rtt_seconds * 1000.0)
}

/// The median of each figure for itself.
pub(crate) fn median(figures: &[Figures]) -> Option<Figures> {
    let until = figures.iter().filter_map(|f| f.until_server_seconds);
    let restarted = figures.iter().filter_map(|f| f.restarted_seconds);
    Some(Figures {
        seconds: middle(figures.iter().map(|f| f.seconds))?,
        restarted_seconds: middle(restarted),
        until_server_seconds: middle(until),
        pending_records: middle(figures.iter().filter_map(|f| f.pending_records)),
        sent_bytes: middle(figures.iter().map(|f| f.sent_bytes))?,
        received_bytes: middle(figures.iter().map(|f| f.received_bytes))?,
    })
}

/// The middle value, of an even number the lower one.
pub(crate) fn middle<T: PartialOrd + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// A panel for each workload: what the user waits for, and lightly behind it the time until the
/// server has everything.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let bar = |row: &Row| {
        let failed = if row.median.is_none() { ", failed" } else { "" };
        Bar {
            label: format!("{} {}{failed}", row.file_system, row.link),
            value: row.median.map(|figures| figures.seconds),
            behind: row.median.and_then(|figures| figures.until_server_seconds),
        }
    };
    let workloads = rows.chunk_by(|a, b| a.workload == b.workload);
    let panel = |rows: &[Row]| Panel {
        title: rows.first().map_or("", |row| row.workload).to_owned(),
        axis: "seconds",
        bars: rows.iter().map(bar).collect(),
    };
    workloads.map(panel).collect()
}

fn markdown(context: &Context, rows: &[Row]) -> String {
    let mut table = format!(
        "{}Medians. Seconds: how long the user waits (offline: for the slowest call). Mounted \
         anew: the same after umount and mount. On the server: from the start (offline: from \
         the link's return) until the server has every change. Bytes: the client's link, until \
         then. 1 KB = 1024 bytes.\n\n\
         | workload | link | file system | seconds | fastest-slowest | mounted anew \
         | on the server | sent KB | received KB | repeats |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        context.heading()
    );
    for row in rows {
        table.push_str(&line(row));
    }
    for row in rows.iter().filter(|row| row.error.is_some()) {
        let error = row.error.as_deref().unwrap_or_default().replace('\n', " ");
        let Row { workload, file_system, link, .. } = row;
        table.push_str(&format!("\n* {workload}, {link}, {file_system} failed: {error}\n"));
    }
    table
}

fn line(row: &Row) -> String {
    let Row { workload, link, file_system, succeeded, repeats, .. } = row;
    let figures = match row.median {
        None => "failed | | | | | ".to_owned(),
        Some(figures) => {
            let seconds = |s: Option<f64>| s.map_or(String::new(), |s| format!("{s:.3}"));
            format!(
                "{:.3} | {:.3}-{:.3} | {} | {} | {} | {}",
                figures.seconds,
                row.fastest,
                row.slowest,
                seconds(figures.restarted_seconds),
                seconds(figures.until_server_seconds),
                figures.sent_bytes / 1024,
                figures.received_bytes / 1024
            )
        }
    };
    let count = if succeeded == repeats {
        format!("{repeats}")
    } else {
        format!("{succeeded} of {repeats}")
    };
    format!("| {workload} | {link} | {file_system} | {figures} | {count} |\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results;

    fn measurement(repeat: u32, figures: std::result::Result<f64, &str>) -> Measurement {
        Measurement {
            workload: "untar",
            file_system: "sshfs",
            remote: true,
            rate_kb_per_s: Some(64),
            rtt_seconds: 0.04,
            repeat,
            scale: 1.0,
            figures: figures.map_err(str::to_owned).map(|seconds| Figures {
                seconds,
                restarted_seconds: Some(3.0 * seconds),
                until_server_seconds: Some(2.0 * seconds),
                pending_records: None,
                sent_bytes: 2048,
                received_bytes: 1024,
            }),
        }
    }

    #[test]
    fn a_row_has_the_median_of_what_succeeded_and_the_reason_of_what_did_not() {
        let measured = [(1, Ok(3.0)), (2, Err("gone")), (3, Ok(1.0)), (4, Ok(2.0))]
            .map(|(r, f)| measurement(r, f));
        let table = markdown(&Context::of_test(), &rows(&measured));
        let expected = "| untar | 64 KB/s, 40 ms | sshfs | 2.000 | 1.000-3.000 | 6.000 | 4.000 | 2 | 1 | 3 of 4 |";
        assert!(table.contains(expected), "{table}");
        assert!(table.contains("* untar, 64 KB/s, 40 ms, sshfs failed: gone"), "{table}");
    }

    #[test]
    fn a_line_of_json_stands_alone() {
        for (figures, field) in [(Ok(1.5), "\"seconds\":1.5"), (Err("no"), "\"error\":\"no\"")] {
            let line = results::line(&Context::of_test(), &measurement(1, figures)).unwrap();
            assert!(line.contains(field) && line.contains("\"commit\":\"c\""), "{line}");
        }
    }
}
