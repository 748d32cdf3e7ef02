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
mod variant;

use std::path::Path;

use self::course::Course;
pub use self::variant::{ALL, Variant};
use crate::record::Context;
use crate::samples::{Report, Sample, Section, Style, Unit};
use segue_bed::{Bed, Result};

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

const STYLE: Style = Style {
    title: "fuse-floor",
    base: "fuser",
    preface: "Cold: the mount's own caches; the source's pages are in memory.",
    sections: &[
        Section {
            heading: "Rates",
            text: "",
            units: &[Unit::Files, Unit::Operations, Unit::Megabytes],
        },
        Section {
            heading: "The cost of each request",
            text: "The caller's time for a system call that sends just this; ext4: for the same \
                   call. libfuse's example answers GETXATTR and SETXATTR with ENOSYS, once.",
            units: &[Unit::Microseconds],
        },
    ],
    targets: &[],
};

/// One test: what it is called, what it takes, how it goes.
struct Test {
    name: &'static str,
    unit: Unit,
    /// Whether the kernel may rely on nothing it was told.
    lifetime_0: bool,
    run: fn(&Course) -> Result<f64>,
}

impl Plan {
    /// Measures everything, writes the results into `out` and returns the table.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let mut report = Report::create(out, STYLE, context)?;
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
        report: &mut Report,
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
                    Err(error) => Err(segue_bed::Error::Unavailable(error.to_string())),
                };
                report.add(Sample {
                    system: variant.name,
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
