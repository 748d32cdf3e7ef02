//! The experiment `beside`: a mount's share of a link beside another program's TCP.
//!
//! ```text
//!   client's programs ──▶ mount ── upload ──╮
//!                                           ├──▶ queue ─ rate ─ delay ──▶ server
//!   a transfer by the kernel's TCP ─────────╯
//! ```
//!
//! One begins, and the other six seconds later. After six more seconds, what arrives at the server
//! is counted for forty. TCP's part is known from its receiver, with its headers; the rest is the
//! mount's. Beside them a second TCP takes the mount's place.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::record::Context;
use crate::run::within;
use crate::samples::{Report, Sample, Section, Style, Unit};
use crate::workload::content::noise;
use segue_bed::peer::{self, Stage};
use segue_bed::{Bed, Doing, LinkSpec, Result, Rng, TcpFlow};

/// The experiment's name.
pub const NAME: &str = "beside";
/// How much later the second begins, and how long both have to settle.
const APART: Duration = Duration::from_secs(6);
/// How long it is counted.
const COUNTED: Duration = Duration::from_secs(40);
/// Bytes of a full TCP packet, and those of it that are counted by its receiver.
const TCP_PACKET: (f64, f64) = (1500.0, 1448.0);
/// The kernel's control of the second TCP, where it takes the mount's place.
const TCP: &str = "cubic";

/// What stands beside the kernel's TCP.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum System {
    /// Segue, with such options of the mount.
    Segue(&'static str, &'static [&'static str]),
    /// Another TCP.
    Tcp,
}

impl System {
    /// All of them, in the order of reports.
    pub const ALL: [System; 3] = [
        System::Segue("segue", &[]),
        System::Segue("segue-background", &["-o", "link=background"]),
        System::Tcp,
    ];

    /// The one of that name.
    pub fn named(name: &str) -> Option<System> {
        System::ALL.into_iter().find(|system| system.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            System::Segue(name, _) => name,
            System::Tcp => TCP,
        }
    }
}

/// A link, the other's congestion control, and who begins.
struct Test {
    name: &'static str,
    rate_kb: u64,
    rtt_ms: u64,
    queue_ms: u64,
    control: &'static str,
    is_first: bool,
}

/// A line of the table.
macro_rules! test {
    ($rate:literal, $rtt:literal, $queue:literal, $control:literal, $is_first:literal) => {
        Test {
            name: concat!(
                $rate,
                " KB/s, ",
                $rtt,
                " ms, queue of ",
                $queue,
                " ms, beside ",
                $control,
                ", first: ",
                $is_first
            ),
            rate_kb: $rate,
            rtt_ms: $rtt,
            queue_ms: $queue,
            control: $control,
            is_first: $is_first,
        }
    };
}

const TESTS: [Test; 12] = [
    test!(256, 40, 400, "cubic", true),
    test!(256, 40, 400, "cubic", false),
    test!(1024, 40, 100, "cubic", true),
    test!(1024, 40, 100, "cubic", false),
    test!(1024, 40, 400, "cubic", true),
    test!(1024, 40, 400, "cubic", false),
    test!(256, 40, 400, "bbr", true),
    test!(256, 40, 400, "bbr", false),
    test!(1024, 40, 100, "bbr", true),
    test!(1024, 40, 100, "bbr", false),
    test!(1024, 40, 400, "bbr", true),
    test!(1024, 40, 400, "bbr", false),
];

const STYLE: Style = Style {
    title: NAME,
    base: "segue",
    preface: "An upload beside another transfer in the same queue: its part of all bytes that \
              arrive, in 40 s after both have had 6 s. `first: true`: it began 6 s before the \
              other. `cubic` is the kernel's TCP in the place of the mount. Wanted for Segue: 25 \
              to 75; in the background as little as possible. A transfer needs the kernel's module \
              of its control.",
    sections: &[Section { heading: "Percent of the link", text: "", units: &[Unit::Percent] }],
    targets: &[],
};

/// What to measure.
pub struct Plan {
    /// The systems, in order.
    pub systems: Vec<System>,
    /// How often.
    pub repeats: u32,
    /// Share of the time.
    pub scale: f64,
    /// When to give up on one measurement.
    pub limit: Duration,
}

impl Plan {
    /// Measures all, writes the results into `out` and returns the table.
    pub fn run(&self, out: &Path, context: Context) -> Result<String> {
        let mut report = Report::create(out, STYLE, context)?;
        for repeat in 1..=self.repeats {
            for test in &TESTS {
                for system in &self.systems {
                    self.measure(&mut report, test, *system, repeat)?;
                }
            }
        }
        report.finish()
    }

    fn measure(
        &self,
        report: &mut Report,
        test: &'static Test,
        system: System,
        repeat: u32,
    ) -> Result<()> {
        let bed = Bed::new()?;
        let stage = Stage::on(&bed)?;
        let counted = COUNTED.mul_f64(self.scale);
        let share = within(self.limit, move || share(test, system, &stage, counted));
        let (figure, error) = match share {
            Ok(share) => (Some(100.0 * share), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (scale, unit, name) = (self.scale, Unit::Percent, system.name());
        eprintln!("{}, {name} #{repeat}: {figure:?} {error:?}", test.name);
        report.add(Sample { system: name, test: test.name, unit, repeat, scale, figure, error })
    }
}

/// Who sends up, and is ended with it.
enum Sending {
    Mount(Box<dyn peer::Peer>),
    Tcp(TcpFlow),
}

/// Our part of what arrives at the server.
fn share(test: &Test, system: System, stage: &Stage, counted: Duration) -> Result<f64> {
    let begin_theirs = || TcpFlow::begin(&stage.client, &stage.server, test.control);
    let rate = test.rate_kb * 1024;
    // More than the link carries until the end.
    let seconds = (2 * APART + APART + counted).as_secs();
    let bytes = usize::try_from(rate * seconds).unwrap_or(usize::MAX);
    let prepare = || match system {
        System::Segue(_, options) => {
            let mut peer = peer::segue_with(stage, options)?;
            peer.seed(&mut |_| Ok(()))?;
            let dir = peer.mount()?;
            Ok(Some((peer, dir, noise(&mut Rng::new(rate), bytes))))
        }
        System::Tcp => Ok(None),
    };
    let prepared = prepare()?;
    let queue = Some(rate * test.queue_ms / 1000);
    let link = LinkSpec { rate: Some(rate), queue, ..LinkSpec::default() };
    stage.client.set_link(link.with_rtt(Duration::from_millis(test.rtt_ms)))?;
    let begin_ours = || match prepared {
        Some((peer, dir, content)) => {
            fs::write(dir.join("file"), content).doing("write the file")?;
            Ok(Sending::Mount(peer))
        }
        None => Ok(Sending::Tcp(TcpFlow::begin(&stage.client, &stage.server, TCP)?)),
    };
    let (ours, theirs): (Result<Sending>, TcpFlow) = if test.is_first {
        let ours = begin_ours();
        thread::sleep(APART);
        (ours, begin_theirs()?)
    } else {
        let theirs = begin_theirs()?;
        thread::sleep(APART);
        (begin_ours(), theirs)
    };
    let ours = ours?;
    thread::sleep(APART);
    let count = || Ok((stage.server.rx_bytes()?, theirs.received()));
    let before: (u64, u64) = count()?;
    thread::sleep(counted);
    let after = count()?;
    let all = (after.0 - before.0) as f64;
    let (whole, payload) = TCP_PACKET;
    let theirs = (after.1 - before.1) as f64 * whole / payload;
    match ours {
        Sending::Mount(peer) => drop(peer),
        Sending::Tcp(flow) => drop(flow),
    }
    Ok(((all - theirs) / all).clamp(0.0, 1.0))
}
