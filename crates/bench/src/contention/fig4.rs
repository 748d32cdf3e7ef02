//! The table and the dots of `mfs-fig4`.

use super::cell::Cell;
use super::part::{Measurement, Part};
use crate::measurement::{failures, kinds, runs_and_scale};
use crate::plot::dots::{Panel, Row};
use crate::record::Context;
use crate::spread::{caption, shown};

const ABOUT: &str = "\
    The tests GW and RW of `mfs-table2`. GW: greps through 256 files of 8 KB that have been read, \
    again and again with a second between two passes until the server has everything, and beside \
    them a copy of 16 files of 1 MB into the mount; a run's time is the mean of its passes. RW: 16 \
    files of 1 MB are read, and as many copied. Segue with priorities, and with writes that close \
    waits for, as the others' but rclone's, which writes back behind the user's back. Expired: \
    Segue's promises count for half a second, so that each pass asks for each file; otherwise the \
    server would have told of changes. The others cache and validate. MooseFS and JuiceFS ask for \
    each file whose attributes are a second old, so in each pass. sshfs keeps a file's pages as \
    long as its time is the same (`auto_cache`), and believes times for 20 s; rclone has its full \
    cache, and believes a directory for 5 min. At most two file systems were measured at once.";

const HEADING: &str = "\
    | KB/s | test | file system | foreground | slowest pass | background | all on the server | \
    runs |\n|--:|---|---|--:|--:|--:|--:|--:|\n";

pub(super) fn markdown(context: &Context, measured: &[Measurement]) -> String {
    let (runs, scale) = runs_and_scale(measured);
    let mut text = format!(
        "{}Seconds. {} At {scale} of the standard size. {ABOUT}\n\n{HEADING}",
        context.heading(),
        caption(runs)
    );
    for cell in sorted(measured) {
        let parts = Part::ALL.map(|part| shown(part.spread(measured, cell)));
        let runs = crate::measurement::figures_of(measured, cell).count();
        let rate = shown(cell.rate);
        let (test, parts) = (cell.test.name, parts.join(" | "));
        text += &format!("| {rate} | {test} | {} | {parts} | {runs} |\n", label(cell));
    }
    text + &failures(measured)
}

/// By rate and test.
fn sorted(measured: &[Measurement]) -> Vec<Cell> {
    let mut cells = kinds(measured);
    cells.sort_by_key(|cell| (cell.rate, cell.test.name, cell.system.name(), cell.mark()));
    cells
}

fn label(cell: Cell) -> String {
    format!("{}{}", cell.system.name(), cell.mark())
}

/// For each part, rate and test, everybody.
pub(super) fn panels(measured: &[Measurement]) -> Vec<Panel> {
    let cells = sorted(measured);
    let parts = [Part::Foreground, Part::Background].into_iter();
    let of_part = |part: Part| {
        let rates = cells.chunk_by(|a, b| (a.rate, a.test) == (b.rate, b.test));
        rates.map(move |cells| panel(measured, cells, part)).collect::<Vec<_>>()
    };
    parts.flat_map(of_part).collect()
}

fn panel(measured: &[Measurement], cells: &[Cell], part: Part) -> Panel {
    let title = cells.first().map_or(String::new(), |&cell| {
        let Cell { test, rate, .. } = cell;
        format!("{}: {}, {} KB/s", test.name, part.activity(cell), shown(rate))
    });
    let row = |&cell: &Cell| Row { value: part.spread(measured, cell), ..Row::named(label(cell)) };
    Panel::new(title, "seconds", cells.iter().map(row).collect())
}
