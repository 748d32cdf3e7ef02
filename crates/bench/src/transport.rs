//! The experiment `atp-latency`: how long a question takes beside a bulk transfer.
//!
//! The transport alone, between two processes on two hosts: `serve` answers, `drive` calls. No
//! disk, no mount.
//!
//! ```text
//!   drive ──PUT after PUT, four at once──▶ serve    up      STORE-DATA
//!         ◀──FETCH after FETCH, the same──          down    FETCH
//!         ──LOOKUP, now and then──▶ ◀──             timed   VALIDATE
//!         ── client's link: rate, round trip, queue ──
//! ```
//!
//! With bulk in both directions one PUT and one FETCH have no end. Each link is measured afresh:
//! idle first, then with the bulk, once that had time to find the link's rate. The target: 99 of
//! 100 questions take at most the round trip, two packets' time and 20 ms, while the bulk gets 0.90
//! of the link.
//!
//! Beside it, sshfs and rclone: `ls` of a directory under an upload of their own (`listing`).
//!
//! On a link that changes meanwhile: `fig2`, `fig7a` and `train`, which go through a `trace`.

mod dial;
mod direction;
mod drive;
mod fig2;
mod fig7a;
mod figures;
mod ledger;
mod listing;
mod modal;
mod pair;
mod ride;
mod serve;
mod setting;
pub mod speed;
mod table;
mod trace;
mod train;
mod variant;
mod varying;

use std::path::Path;

pub use self::direction::Direction;
pub use self::drive::{Drive, Driven, drive};
use self::figures::Figures;
use self::listing::FILE_SYSTEMS;
pub use self::pair::SERVING;
pub use self::serve::{Serve, serve};
use self::setting::Setting;
use self::table::{Asked, markdown, panels};
pub use self::variant::Variant;
pub use self::varying::Varying;
use crate::measurement::{Effort, Run};
use crate::plot::dots::Panel;
use crate::record::Context;
use crate::run::within;
use segue_bed::peer::{self, Kind};
use segue_bed::{Error, Result};

/// Part of the results' names, and the experiment's on the command line.
pub const NAME: &str = "atp-latency";

/// The rates that are measured when none is named, in KB/s.
const RATES: [f64; 6] = [64.0, 128.0, 256.0, 512.0, 1024.0, 10_240.0];

/// What only this experiment is asked.
#[derive(Debug, Clone, PartialEq, clap::Args)]
#[command(next_help_heading = "Of atp-latency")]
pub struct Options {
    /// Milliseconds that the link adds to a round trip, each measured.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 40, 200])]
    pub rtts: Vec<u64>,
    /// Depths of the link's queue, in seconds of its rate.
    #[arg(long, value_delimiter = ',', default_values_t = [0.4, 2.0])]
    pub queues: Vec<f64>,
    /// Which way the bulk goes.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Direction::ALL)]
    pub directions: Vec<Direction>,
}

/// Who is asked.
#[derive(Debug, Clone, Copy)]
pub enum System {
    /// The transport alone.
    Transport(Variant),
    /// A file system, which is listed.
    FileSystem(Kind),
}

impl System {
    /// Everybody who can be asked, in the order of reports.
    pub fn all() -> Vec<System> {
        let transports = Variant::ALL.into_iter().map(System::Transport);
        let file_systems = FILE_SYSTEMS.into_iter().filter_map(peer::named);
        transports.chain(file_systems.map(System::FileSystem)).collect()
    }

    /// The one called `name`.
    pub fn named(name: &str) -> Option<System> {
        System::all().into_iter().find(|system| system.name() == name)
    }

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            System::Transport(variant) => variant.name(),
            System::FileSystem(kind) => kind.name,
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            System::Transport(variant) => variant.about(),
            System::FileSystem(kind) => kind.about,
        }
    }

    /// Whether it is measured with bulk in this direction.
    fn takes(self, direction: Direction) -> bool {
        matches!(self, System::Transport(_)) || direction == Direction::Up
    }
}

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    /// Who, in order.
    pub systems: Vec<System>,
    /// Rates of the client's link in KB (1024 bytes) a second; the usual ones if there are none.
    pub rates: Vec<f64>,
    /// What else the links are like, and what they carry.
    pub options: Options,
    /// How much.
    pub effort: Effort,
}

impl Plan {
    /// Measures everything, writes the results into `out` and returns the table.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let settings = self.settings()?;
        let mut run = Run::create(out, NAME, context, self.effort.scale)?;
        for repeat in 1..=self.effort.repeats {
            for &setting in &settings {
                let takes = |system: &&System| system.takes(setting.direction);
                for system in self.systems.iter().filter(takes) {
                    let figures = self.measure(*system, setting);
                    run.add(Asked::new(*system, setting), repeat, figures)?;
                }
            }
        }
        let Run { results, measured, .. } = run;
        let text = markdown(results.context(), &measured);
        results.finish(&text, &Panel::parts(panels(&measured)))?;
        Ok(text)
    }

    fn settings(&self) -> Result<Vec<Setting>> {
        let Options { rtts, queues, directions } = &self.options;
        let rates = if self.rates.is_empty() { &RATES[..] } else { &self.rates };
        let mut settings = Vec::new();
        for &rate_kb_per_s in rates {
            for &rtt_ms in rtts {
                for &queue_seconds in queues {
                    let link = |&direction: &Direction| {
                        Setting::new(rate_kb_per_s, rtt_ms, queue_seconds, direction)
                    };
                    let of_link = directions.iter().map(link).collect::<Option<Vec<_>>>();
                    let wrong = || wrong("rates and queues must be above 0");
                    settings.extend(of_link.ok_or_else(wrong)?);
                }
            }
        }
        Ok(settings)
    }

    fn measure(&self, system: System, setting: Setting) -> Result<Figures> {
        let Effort { scale, limit, .. } = self.effort;
        match system {
            System::Transport(variant) => pair::measure(variant, setting, scale, limit),
            System::FileSystem(kind) => listing::measure(kind, setting, scale, limit),
        }
    }
}

/// Why a figure would be worthless.
fn wrong(why: impl ToString) -> Error {
    Error::Wrong(why.to_string())
}
