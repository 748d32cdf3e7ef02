//! The experiment `edit-big`: what a change of one kilobyte in a large file costs on the wire.
//!
//! ```text
//!   before      the client writes the file, of noise that nobody has seen, and the server has it
//!   measured    a kilobyte is written into the middle; put behind the end; put in at the front, by
//!               writing the file anew in its place, by a new file that is renamed over it, and by
//!               writing on over the old bytes without emptying the file
//! ```
//!
//! Each change is made on what the one before left, as a program makes it. Bytes count in both
//! directions of the client's link, with all headers, until the server has the change.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::record::Context;
use crate::run::within;
use crate::samples::{Report, Sample, Section, Style, Unit};
use crate::workload::content::noise;
use segue_bed::peer::{self, Kind, Peer, Stage};
use segue_bed::{Bed, Doing, Host, Result, Rng};

/// The experiment's name.
pub const NAME: &str = "edit-big";
/// File systems that are measured, beside [`peer::RSYNC`].
const SYSTEMS: [&str; 2] = ["segue", "sshfs"];
/// What is put in.
const EDIT_BYTES: usize = 1 << 10;
const PIECE_BYTES: usize = 1 << 20;
const FILE: &str = "large.img";

/// A size of file, and what each change of it is called in results.
struct Size {
    megabytes: u32,
    tests: [&'static str; 5],
}

const SIZES: [Size; 2] = [
    Size {
        megabytes: 64,
        tests: [
            "64 MB, 1 KB overwritten",
            "64 MB, 1 KB appended",
            "64 MB, 1 KB inserted, written anew in place",
            "64 MB, 1 KB inserted, a new file renamed over it",
            "64 MB, 1 KB inserted, written on in place",
        ],
    },
    Size {
        megabytes: 1024,
        tests: [
            "1 GB, 1 KB overwritten",
            "1 GB, 1 KB appended",
            "1 GB, 1 KB inserted, written anew in place",
            "1 GB, 1 KB inserted, a new file renamed over it",
            "1 GB, 1 KB inserted, written on in place",
        ],
    },
];

/// Kilobytes that a change may cost, by the name that [`SIZES`] has for it.
const TARGETS: [(&str, f64); 10] = [
    (SIZES[0].tests[0], 8.0),
    (SIZES[0].tests[1], 8.0),
    (SIZES[0].tests[2], 8.0),
    (SIZES[0].tests[3], 8.0),
    (SIZES[0].tests[4], 8.0),
    (SIZES[1].tests[0], 64.0),
    (SIZES[1].tests[1], 64.0),
    (SIZES[1].tests[2], 64.0),
    (SIZES[1].tests[3], 64.0),
    (SIZES[1].tests[4], 64.0),
];

const STYLE: Style = Style {
    title: NAME,
    base: "segue",
    preface: "One kilobyte of a file is changed, as programs do it, and brought to the server. \
              Files and the new kilobytes are noise, new in each repeat. Bytes on the client's \
              link, both directions, with all headers, until the server has the change (`segue \
              sync`; rsync: its whole run over ssh, with -t -I; sshfs: until close returns). \
              Targets: 8 KB in 64 MB, 64 KB in 1 GB.",
    sections: &[Section { heading: "Bytes on the wire", text: "", units: &[Unit::Kilobytes] }],
    targets: &TARGETS,
};

/// What to measure.
pub struct Plan {
    /// The systems, in order; all if there are none.
    pub systems: Vec<Kind>,
    /// Megabytes of files; those that have no tests are left out.
    pub megabytes: Vec<u32>,
    /// How often.
    pub repeats: u32,
    /// Share of the files' sizes.
    pub scale: f64,
    /// When to give up on one system and size.
    pub limit: Duration,
}

/// A system of that name.
pub fn system(name: &str) -> Option<Kind> {
    all().into_iter().find(|kind| kind.name == name)
}

fn all() -> Vec<Kind> {
    SYSTEMS.iter().filter_map(|name| peer::named(name)).chain([peer::RSYNC]).collect()
}

impl Plan {
    /// Measures all, writes the results into `out` and returns the table.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let mut report = Report::create(out, STYLE, context)?;
        let systems = if self.systems.is_empty() { all() } else { self.systems.clone() };
        for repeat in 1..=self.repeats {
            for size in SIZES.iter().filter(|size| self.megabytes.contains(&size.megabytes)) {
                for kind in &systems {
                    self.measure(&mut report, (*kind, size, repeat))?;
                }
            }
        }
        report.finish()
    }

    fn measure(
        &self,
        report: &mut Report,
        (kind, size, repeat): (Kind, &'static Size, u32),
    ) -> Result<()> {
        let bed = Bed::new()?;
        let stage = Stage::on(&bed)?;
        // Never out of range: scales above 1 are refused on the command line.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = (f64::from(size.megabytes) * f64::from(1 << 20) * self.scale) as usize;
        let costs = within(self.limit, move || act(kind, bytes, repeat, &stage));
        for (at, test) in size.tests.into_iter().enumerate() {
            let cost = costs.as_ref().map(|costs| costs.get(at).copied());
            #[allow(clippy::cast_precision_loss)]
            let kilobytes = |bytes: u64| bytes as f64 / 1024.0;
            let figure = cost.as_ref().ok().copied().flatten().map(kilobytes);
            let error = cost.err().map(ToString::to_string);
            eprintln!("{test}, {} #{repeat}: {figure:?} KB {error:?}", kind.name);
            let (unit, scale) = (Unit::Kilobytes, self.scale);
            report.add(Sample { system: kind.name, test, unit, repeat, scale, figure, error })?;
        }
        Ok(())
    }
}

/// Bytes that each change costs on the client's link.
fn act(kind: Kind, bytes: usize, repeat: u32, stage: &Stage) -> Result<Vec<u64>> {
    let mut rng = Rng::new(u64::from(std::process::id()) << 32 | u64::from(repeat));
    let mut peer = kind.start(stage)?;
    peer.seed(&mut |_| Ok(()))?;
    let dir = peer.mount()?;
    let mut content = Vec::with_capacity(bytes + 5 * EDIT_BYTES);
    while content.len() < bytes {
        let more = (bytes - content.len()).min(PIECE_BYTES);
        content.extend(noise(&mut rng, more));
    }
    let file = dir.join(FILE);
    save(&file, &content)?;
    peer.drain()?;
    let mut costs = Vec::new();
    let mut costs_of = |peer: &mut dyn Peer, edit: &dyn Fn() -> Result<()>| -> Result<()> {
        costs.push(cost(&stage.client, peer, edit)?);
        Ok(())
    };

    let (middle, new) = (content.len() / 2, noise(&mut rng, EDIT_BYTES));
    costs_of(&mut *peer, &|| {
        let file = File::options().write(true).open(&file).doing("open the file")?;
        file.write_all_at(&new, middle as u64).doing("overwrite")
    })?;
    content.splice(middle..middle + new.len(), new);

    let new = noise(&mut rng, EDIT_BYTES);
    costs_of(&mut *peer, &|| {
        let mut file = File::options().append(true).open(&file).doing("open the file")?;
        file.write_all(&new).doing("append")
    })?;
    content.extend(new);

    content.splice(0..0, noise(&mut rng, EDIT_BYTES));
    costs_of(&mut *peer, &|| save(&file, &content))?;

    content.splice(0..0, noise(&mut rng, EDIT_BYTES));
    costs_of(&mut *peer, &|| {
        let new = dir.join(format!(".{FILE}.new"));
        save(&new, &content)?;
        fs::rename(&new, &file).doing("rename")
    })?;

    content.splice(0..0, noise(&mut rng, EDIT_BYTES));
    costs_of(&mut *peer, &|| {
        let mut file = File::options().write(true).open(&file).doing("open the file")?;
        content.chunks(PIECE_BYTES).try_for_each(|piece| file.write_all(piece)).doing("write on")
    })?;
    Ok(costs)
}

fn save(file: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(file, bytes).doing(format!("write {}", file.display()))
}

/// Bytes on the link of `client` until the server has what `edit` does.
fn cost(client: &Host, peer: &mut dyn Peer, edit: &dyn Fn() -> Result<()>) -> Result<u64> {
    let count = || Ok(client.tx_bytes()? + client.rx_bytes()?);
    let before = count()?;
    edit()?;
    peer.drain()?;
    Ok(count()? - before)
}
