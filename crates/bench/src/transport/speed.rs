//! The experiment `rpc-speed`: calls a second and bytes a second of the transport alone.
//!
//! Two processes on two hosts, whose links are as fast as the machine, as in `atp-latency`; no
//! disk, no mount. Beside it, in the same run:
//!
//! * **quinn**: the QUIC library by itself, as it comes, with the same cryptography: a stream for
//!   each call, one stream for bulk. What it takes is not ours to save.
//! * **sshfs**: a file written to and read from a server that keeps it in memory.
//!
//! Bulk is one body of a known length, from the first byte to the last answer. What a processor
//! does is counted at both ends by process; what the kernel does for packets outside of any
//! process is not in it.

mod carrier;
mod copying;
mod drive;
mod load;
mod plain;
mod processor;
mod table;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::drive::{Spent, Task};
pub use self::load::Load;
use self::table::{Figures, Loaded, markdown, panels};
use super::variant::Variant;
use super::{pair, within, wrong};
use crate::measurement::{Effort, Run};
use crate::plot::dots::Panel;
use crate::record::Context;
use segue_bed::{Bed, Host, Proc, Result, run};

/// Part of the results' names, and the experiment's on the command line.
pub const NAME: &str = "rpc-speed";

/// The command under which this program is one of the ends.
const END: &str = "speed";

/// At scale 1, for how long calls are made.
const CALLING: Duration = Duration::from_secs(5);
/// At scale 1, the length of a body: seconds of it.
const BODY_BYTES: f64 = 1e9;

/// One end of a connection, in a process of its own.
#[derive(Debug, clap::Subcommand)]
pub enum End {
    /// Calls over Segue's transport, and prints what it found, as JSON.
    Drive(drive::Drive),
    /// Serves with quinn alone.
    QuinnServe(plain::Serve),
    /// Calls with quinn alone.
    QuinnDrive(plain::Drive),
}

impl End {
    /// Plays this end.
    pub fn act(&self) -> Result<()> {
        let spent = match self {
            End::Drive(options) => drive::drive(options)?,
            End::QuinnDrive(options) => plain::drive(options)?,
            End::QuinnServe(options) => {
                return plain::serve(options, || println!("{}", super::SERVING));
            }
        };
        println!("{}", serde_json::to_string(&spent).map_err(wrong)?);
        Ok(())
    }
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Segue's transport.
    Segue,
    /// The QUIC library below it.
    Quinn,
    /// A file system.
    Sshfs,
}

impl System {
    /// Each of them, in the order of reports.
    pub const ALL: [System; 3] = [System::Segue, System::Quinn, System::Sshfs];

    /// The one called `name`.
    pub fn named(name: &str) -> Option<System> {
        System::ALL.into_iter().find(|system| system.name() == name)
    }

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            System::Segue => "segue",
            System::Quinn => "quinn",
            System::Sshfs => "sshfs",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            System::Segue => Variant::Segue.about(),
            System::Quinn => "the QUIC library alone, as it comes, with the same cryptography",
            System::Sshfs => "sshfs with its default options: bulk only, to and from memory",
        }
    }
}

/// What only this experiment is asked.
#[derive(Debug, Clone, PartialEq, clap::Args)]
#[group(id = "speed")]
#[command(next_help_heading = "Of rpc-speed")]
pub struct Options {
    /// What is carried.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Load::ALL)]
    pub loads: Vec<Load>,
}

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    /// Who, in order.
    pub systems: Vec<System>,
    /// What is carried.
    pub options: Options,
    /// How much.
    pub effort: Effort,
}

impl Plan {
    /// Measures everything, writes the results into `out` and returns the table.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let mut run = Run::create(out, NAME, context, self.effort.scale)?;
        for repeat in 1..=self.effort.repeats {
            for &load in &self.options.loads {
                let takes = |system: &&System| **system != System::Sshfs || load.is_bulk();
                for &system in self.systems.iter().filter(takes) {
                    let figures = self.measure(system, load).map(|spent| Figures::of(spent, load));
                    run.add(Loaded::new(system, load), repeat, figures)?;
                }
            }
        }
        let Run { results, measured, .. } = run;
        let text = markdown(results.context(), &measured);
        results.finish(&text, &Panel::parts(panels(&measured)))?;
        Ok(text)
    }

    /// On a bed of its own.
    fn measure(&self, system: System, load: Load) -> Result<Spent> {
        let Effort { scale, limit, .. } = self.effort;
        let task = Task::new(load, CALLING.mul_f64(scale), whole(BODY_BYTES * scale));
        if system == System::Sshfs {
            return copying::measure(task, limit);
        }
        let bed = Bed::new()?;
        let (server, client) = (bed.host("server")?, bed.host("client")?);
        within(limit, move || {
            let (process, mut command) = match system {
                System::Quinn => plain::connect(&server, &client)?,
                _ => pair::connect(Variant::Segue, &server, &client, &[END, "drive"])?,
            };
            task.tell(&mut command, process.pid());
            let said = run(&mut command)?;
            serde_json::from_str(&said).map_err(|error| wrong(format!("{said}: {error}")))
        })
    }
}

/// This program as another end, on `host`.
fn end(host: &Host, name: &str) -> Result<Command> {
    let mut command = host.command(pair::us()?);
    command.args([END, name]);
    Ok(command)
}

fn whole(figure: f64) -> u64 {
    // Lengths are positive and far below 2^53.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = figure.round() as u64;
    whole
}

/// A server's process, and the command by which a client calls it.
type Ends = (Proc, Command);
