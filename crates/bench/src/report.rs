//! Results on disk: JSON lines as they come, then a Markdown table and a plot.

use std::path::Path;

use crate::plot::dots::{self, Panel};
use crate::record::{Context, Figures, Measurement};
use crate::results::Results;
use crate::spread::{Spread, caption};
use segue_bed::Result;

/// The files of one run.
#[derive(Debug)]
pub struct Report {
    results: Results,
    measured: Vec<Measurement>,
}

/// All repeats of one workload on one file system over one link.
#[derive(Debug)]
struct Row<'a> {
    first: &'a Measurement,
    /// Of the repeats that succeeded.
    figures: Vec<Figures>,
    repeats: usize,
    error: Option<&'a str>,
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
        self.results.finish(&table, &Panel::parts(panels(&rows)))?;
        Ok(table)
    }
}

/// Groups measurements, in the order of first appearance.
fn rows(measured: &[Measurement]) -> Vec<Row<'_>> {
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

fn row<'a>(group: &[&'a Measurement]) -> Option<Row<'a>> {
    Some(Row {
        first: group.first()?,
        figures: group.iter().filter_map(|one| one.figures.as_ref().ok().copied()).collect(),
        repeats: group.len(),
        error: group.iter().find_map(|one| one.figures.as_ref().err().map(String::as_str)),
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

impl Row<'_> {
    /// One figure in each repeat that has it.
    fn spread(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Option<Spread> {
        Spread::over(self.figures.iter().filter_map(figure))
    }
}

/// A panel for each workload: the wait of the user, and the time until the server has
/// everything.
fn panels(rows: &[Row<'_>]) -> Vec<Panel> {
    let drawn = |row: &Row<'_>| {
        let failed = if row.figures.is_empty() { ", failed" } else { "" };
        dots::Row {
            value: row.spread(|figures| Some(figures.seconds)),
            later: row.spread(|figures| figures.until_server_seconds).map(|spread| spread.median()),
            ..dots::Row::named(format!("{} {}{failed}", row.first.file_system, link(row.first)))
        }
    };
    let workloads = rows.chunk_by(|a, b| a.first.workload == b.first.workload);
    let panel = |rows: &[Row<'_>]| Panel {
        later: "the server has everything",
        ..Panel::new(
            rows.first().map_or("", |row| row.first.workload),
            "seconds",
            rows.iter().map(drawn).collect(),
        )
    };
    workloads.map(panel).collect()
}

fn markdown(context: &Context, rows: &[Row<'_>]) -> String {
    let runs = rows.iter().map(|row| row.figures.len()).max().unwrap_or(0);
    let mut table = format!(
        "{}{} Seconds: how long the user waits (offline: for the slowest call). Mounted \
         anew: the same after umount and mount. On the server: from the start (offline: from \
         the link's return) until the server has every change. Bytes: the client's link, until \
         then. 1 KB = 1024 bytes.\n\n\
         | workload | link | file system | seconds | mounted anew | on the server | sent KB \
         | received KB | runs |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        context.heading(),
        caption(runs)
    );
    for row in rows {
        table.push_str(&line(row));
    }
    for row in rows {
        let Some(error) = row.error else { continue };
        let Measurement { workload, file_system, .. } = row.first;
        let (link, error) = (link(row.first), error.replace('\n', " "));
        table.push_str(&format!("\n* {workload}, {link}, {file_system} failed: {error}\n"));
    }
    table
}

fn line(row: &Row<'_>) -> String {
    let cell = |figure: fn(&Figures) -> Option<f64>, digits: usize| {
        row.spread(figure).map_or(String::new(), |spread| spread.cell(digits))
    };
    let kilobytes: [fn(&Figures) -> Option<f64>; 2] = [
        |figures| Some(figures.sent_bytes as f64 / 1024.0),
        |figures| Some(figures.received_bytes as f64 / 1024.0),
    ];
    let seconds: [fn(&Figures) -> Option<f64>; 3] = [
        |figures| Some(figures.seconds),
        |figures| figures.restarted_seconds,
        |figures| figures.until_server_seconds,
    ];
    let mut cells: Vec<String> = seconds.map(|figure| cell(figure, 3)).to_vec();
    cells.extend(kilobytes.map(|figure| cell(figure, 0)));
    let (succeeded, repeats) = (row.figures.len(), row.repeats);
    if succeeded == 0 {
        cells = ["failed", "", "", "", ""].map(str::to_owned).to_vec();
    }
    let of = if succeeded == repeats { String::new() } else { format!(" of {repeats}") };
    let Measurement { workload, file_system, .. } = row.first;
    let (link, cells) = (link(row.first), cells.join(" | "));
    format!("| {workload} | {link} | {file_system} | {cells} | {succeeded}{of} |\n")
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
    fn a_row_has_the_runs_that_succeeded_and_the_reason_of_those_that_failed() {
        let measured = [(1, Ok(3.0)), (2, Err("gone")), (3, Ok(1.0)), (4, Ok(2.0))]
            .map(|(r, f)| measurement(r, f));
        let table = markdown(&Context::of_test(), &rows(&measured));
        let expected = "| untar | 64 KB/s, 40 ms | sshfs | 2.000 (1.000-3.000) \
                        | 6.000 (3.000-9.000) | 4.000 (2.000-6.000) | 2 (2-2) | 1 (1-1) | 3 of 4 |";
        assert!(table.contains(expected), "{table}");
        assert!(table.contains("Medians of 3 runs"), "{table}");
        assert!(table.contains("* untar, 64 KB/s, 40 ms, sshfs failed: gone"), "{table}");
    }

    #[test]
    fn two_runs_have_no_median_and_a_failure_has_as_many_columns() {
        let two = [(1, Ok(3.0)), (2, Ok(1.0))].map(|(r, f)| measurement(r, f));
        let table = markdown(&Context::of_test(), &rows(&two));
        assert!(table.contains("| 1.000 / 3.000 | 3.000 / 9.000 |"), "{table}");
        assert!(!table.contains("edian"), "{table}");
        let failed = [measurement(1, Err("gone"))];
        let table = markdown(&Context::of_test(), &rows(&failed));
        assert!(table.contains("| sshfs | failed |  |  |  |  | 0 of 1 |"), "{table}");
    }

    #[test]
    fn a_line_of_json_stands_alone() {
        for (figures, field) in [(Ok(1.5), "\"seconds\":1.5"), (Err("no"), "\"error\":\"no\"")] {
            let line = results::line(&Context::of_test(), &measurement(1, figures)).unwrap();
            assert!(line.contains(field) && line.contains("\"commit\":\"c\""), "{line}");
        }
    }
}
