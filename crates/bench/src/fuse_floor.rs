//! The experiment `fuse-floor`: what FUSE itself costs, by binding.
//!
//! The same file system, which mirrors a directory and does nothing else, over Segue's binding
//! in several settings, over fuser and over libfuse, beside the plain directory. All mirror one
//! source tree, one after the other, each repeat on a fresh mount; one repeat of all comes before
//! the next of any, so that what disturbs the machine for a while disturbs all alike.
//!
//! "Cold" is the mount's own cache: the source's pages and names are in memory throughout.

mod clock;
mod course;
mod data;
mod kinds;
mod libfuse;
mod map;
mod names;
mod table;
mod variant;

use std::path::Path;

use serde::Serialize;

use self::course::Course;
pub use self::variant::{ALL, Variant};
use crate::bed::{Bed, Result};
use crate::record::Context;

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    /// The file systems, in order.
    pub variants: Vec<Variant>,
    /// How often to measure each.
    pub repeats: u32,
    /// Share of the standard size.
    pub scale: f64,
}

/// What the figure of a test means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Files made, or names looked at, in a second.
    #[serde(rename = "files/s")]
    Files,
    /// Operations in a second.
    #[serde(rename = "ops/s")]
    Operations,
    /// 2^20 bytes in a second.
    #[serde(rename = "MB/s")]
    Megabytes,
    /// Millionths of a second for one request.
    #[serde(rename = "microseconds")]
    Microseconds,
}

/// One test: what it is called, what it takes, how it goes.
struct Test {
    name: &'static str,
    unit: Unit,
    /// Whether the kernel may rely on nothing it was told.
    lifetime_0: bool,
    run: fn(&Course) -> Result<f64>,
}

/// One figure, or why there is none.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// The file system's name.
    pub file_system: &'static str,
    /// The test's name.
    pub test: &'static str,
    /// What the figure means.
    pub unit: Unit,
    /// Which repeat of the run, from 1.
    pub repeat: u32,
    /// Share of the standard size.
    pub scale: f64,
    /// The figure.
    pub figure: Option<f64>,
    /// Why there is none.
    pub error: Option<String>,
}

impl Plan {
    /// Measures everything, writes the results into `out` and returns the table.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let mut report = table::Report::create(out, context)?;
        let bed = Bed::new()?;
        let host = bed.host("client")?;
        let course = Course::lay(&host, self.scale)?;
        for repeat in 1..=self.repeats {
            for variant in &self.variants {
                self.measure(*variant, &course, repeat, &mut report)?;
            }
        }
        report.finish()
    }

    fn measure(
        &self,
        variant: Variant,
        course: &Course,
        repeat: u32,
        report: &mut table::Report,
    ) -> Result<()> {
        eprintln!("{} #{repeat}", variant.name);
        for lifetime_0 in [false, true] {
            let tests = || tests().filter(|test| test.lifetime_0 == lifetime_0);
            let mounted = variant.mount(course, if lifetime_0 { 0 } else { 3600 });
            if let Err(error) = &mounted {
                eprintln!("segue-bench: SKIPPED {}: {error}", variant.name);
            }
            for test in tests() {
                let result = match &mounted {
                    Ok(mounted) => (test.run)(&course.at(mounted.dir())),
                    Err(error) => Err(crate::bed::Error::Unavailable(error.to_string())),
                };
                report.add(Sample {
                    file_system: variant.name,
                    test: test.name,
                    unit: test.unit,
                    repeat,
                    scale: self.scale,
                    figure: result.as_ref().ok().copied(),
                    error: result.err().map(|error| error.to_string()),
                })?;
            }
            if let Ok(mounted) = &mounted {
                course.at(mounted.dir()).compare("")?;
            }
        }
        Ok(())
    }
}

/// Every test, in the order in which they find the mount's caches as their names say.
fn tests() -> impl Iterator<Item = Test> {
    names::tests().into_iter().chain(data::tests()).chain(kinds::tests())
}
