//! The experiment `store`: what the server's store does in a second, beside what SQLite does.
//!
//! A real `segue serve` is spoken to over its protocol by clients on its own host: no mount, no
//! link. Beside each test, in turns, runs its floor on the same disk: exactly the rows that the
//! rules write for the same changes, put into SQLite without Segue (`floor`), and for data a
//! plain file.
//!
//! ```text
//!   every repeat   changes, one and many at a time; data up and down
//!   once           a million inodes
//!   every repeat   kill -9 under load, open; check; metadata read beside writes
//! ```

mod changes;
mod client;
mod data;
pub mod dense;
mod floor;
mod latency;
mod million;
mod rates;
mod recorder;
mod served;
pub mod storm;

use std::path::Path;

use tokio::runtime::Runtime;

use self::floor::Floor;
use self::served::Served;
use crate::record::Context;
use crate::samples::{Report, Sample, Section, Style, Unit};
use crate::workload::scaled;
use segue_bed::{Bed, Doing, Result};

/// The server under test, and what it is compared with.
const SEGUE: &str = "segue";
const SQLITE: &str = "sqlite";

const STYLE: Style = Style {
    title: "store",
    base: SQLITE,
    preface: "segue: `segue serve`, asked over QUIC by clients on its host, which share its \
              processors. sqlite, on the same disk: the rows that the server's rules write for \
              the same changes, in transactions of as many changes, put and removed by one thread \
              with the same pragmas, without reading any; for new data a plain file synced each \
              4 MB and a row for each chunk; for known data and reading data a plain file read \
              and hashed, for checking data the server's packs.",
    sections: &[
        Section {
            heading: "Rates",
            text: "A file is two changes: its creation and 1 KB of data; among a million inodes \
                   it is empty.",
            units: &[Unit::Operations, Unit::Megabytes, Unit::Files],
        },
        Section {
            heading: "Metadata reads",
            text: "GETATTR and LOOKUP in turns, one in flight, of random ones of the million \
                   inodes. sqlite: a read transaction with one row.",
            units: &[Unit::Microseconds],
        },
        Section {
            heading: "Opening",
            text: "From exec to \"serving on\" after SIGKILL under load. sqlite: opening a copy \
                   of what the server left, and reading a row.",
            units: &[Unit::Milliseconds],
        },
        Section {
            heading: "Memory",
            text: "The server's highest resident memory (VmHWM) in each phase.",
            units: &[Unit::MegabytesHeld],
        },
    ],
    targets: &[],
};

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    /// How often to measure each.
    pub repeats: u32,
    /// Share of the standard size.
    pub scale: f64,
}

impl Plan {
    /// Measures everything, writes the results into `out` and returns the tables.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        on_a_host(out, STYLE, context, self.scale, |course| self.measure(course))
    }

    fn measure(&self, course: &mut Course<'_>) -> Result<()> {
        for repeat in 1..=self.repeats {
            course.repeat = repeat;
            rates::run(course)?;
            data::run(course)?;
        }
        course.repeat = 1;
        let known = million::fill(course)?;
        for repeat in 1..=self.repeats {
            course.repeat = repeat;
            million::open(course)?;
            million::check(course, known.inodes)?;
            latency::run(course, &known.places)?;
        }
        Ok(())
    }
}

/// Runs `measure` with a server on a host of its own, and writes down what it finds.
fn on_a_host(
    out: &Path,
    style: Style,
    context: Context,
    scale: f64,
    measure: impl FnOnce(&mut Course<'_>) -> Result<()> + Send,
) -> Result<String> {
    let mut report = Report::create(out, style, context)?;
    let bed = Bed::new()?;
    let host = bed.host("server")?;
    // Everybody is on the server's host, so that no link is in between.
    host.enter(|| {
        let runtime = Runtime::new().doing("start the clients' threads")?;
        let served = runtime.block_on(Served::start(&host))?;
        let floor = Floor::open(&host.mkdir("floor")?)?;
        let report = &mut report;
        measure(&mut Course { runtime, served, floor, report, repeat: 1, scale })
    })??;
    report.finish()
}

/// What tests work on.
struct Course<'a> {
    runtime: Runtime,
    served: Served,
    floor: Floor,
    report: &'a mut Report,
    repeat: u32,
    scale: f64,
}

impl Course<'_> {
    /// `standard` at this course's scale, at least one.
    fn scaled(&self, standard: u32) -> u32 {
        scaled(standard, self.scale)
    }

    fn add(
        &mut self,
        system: &'static str,
        test: &'static str,
        unit: Unit,
        figure: f64,
    ) -> Result<()> {
        eprintln!("{test} #{}: {system} {figure:.1}", self.repeat);
        let (repeat, scale) = (self.repeat, self.scale);
        let figure = Some(figure);
        self.report.add(Sample { system, test, unit, repeat, scale, figure, error: None })
    }

    /// Runs `phase` and adds the most memory that the server took meanwhile.
    fn remember_peak(
        &mut self,
        test: &'static str,
        phase: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.served.forget_peak()?;
        phase(self)?;
        let peak = self.served.peak()?;
        self.add(SEGUE, test, Unit::MegabytesHeld, peak)
    }
}
