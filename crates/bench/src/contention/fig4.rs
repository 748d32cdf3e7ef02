//! The table and the dots of `mfs-fig4`.

use super::cell::Cell;
use super::part::{Measurement, Part};
use crate::measurement::{failures, kinds, runs_and_scale};
use crate::plot::dots::{Panel, Row};
use crate::record::Context;
use crate::spread::{caption, shown};

const ABOUT: &str = "\
    The test GW of `mfs-table2`: three greps through 256 files of 8 KB that have been read, and \
    beside them a copy of 16 files of 1 MB into the mount. Segue with synchronous writes and \
    priorities; the others as they are installed, rclone with its full cache, which writes back \
    behind the user's back. Expired: mounted just before, so that Segue has to ask for each file. \
    sshfs relies on what it has asked for 20 s, rclone on a directory for 5 min.";

const HEADING: &str = "\
    | KB/s | file system | grep | write | all on the server | runs |\n|--:|---|--:|--:|--:|--:|\n";

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
        text += &format!("| {rate} | {} | {} | {runs} |\n", label(cell), parts.join(" | "));
    }
    text + &failures(measured)
}

/// By rate, then as they were named.
fn sorted(measured: &[Measurement]) -> Vec<Cell> {
    let mut cells = kinds(measured);
    cells.sort_by_key(|cell| (cell.rate, cell.system.name(), cell.mark()));
    cells
}

fn label(cell: Cell) -> String {
    format!("{}{}", cell.system.name(), cell.mark())
}

/// For each part and rate, everybody.
pub(super) fn panels(measured: &[Measurement]) -> Vec<Panel> {
    let cells = sorted(measured);
    let parts = [Part::Foreground, Part::Background].into_iter();
    let of_part = |part: Part| {
        let rates = cells.chunk_by(|a, b| a.rate == b.rate);
        rates.map(move |cells| panel(measured, cells, part)).collect::<Vec<_>>()
    };
    parts.flat_map(of_part).collect()
}

fn panel(measured: &[Measurement], cells: &[Cell], part: Part) -> Panel {
    let title = cells.first().map_or(String::new(), |&cell| {
        format!("{}, {} KB/s", part.activity(cell), shown(cell.rate))
    });
    let row = |&cell: &Cell| Row { value: part.spread(measured, cell), ..Row::named(label(cell)) };
    Panel::new(title, "seconds", cells.iter().map(row).collect())
}
