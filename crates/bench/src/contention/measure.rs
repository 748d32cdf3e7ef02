//! One measurement, on a bed of its own.
//!
//! ```text
//!   unlimited link   another host writes what is to be there and goes; what is to be cached is
//!                    read
//!   its link         mounted anew, so that the connection knows no other; with promises held
//!                    what is cached is looked at once, without them nobody has asked anything
//!   measured         both activities, begun at the same moment; the one in the background is
//!                    followed by `segue sync`, which returns when the update log is empty; until
//!                    then a foreground that looks at cached files does so again and again
//! ```
//!
//! Where promises expire, they do so between two looks: the mount option `promises` has them count
//! for less than the pause. So each look asks for each file, as in the paper.
//!
//! A file system whose cache does not outlive its mount is not mounted anew.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::activity::Activity;
use super::cell::{Cell, Start, Test};
use super::passes::Passes;
use crate::measurement::Effort;
use crate::run::{let_go, within};
use crate::workload::WorkloadDir;
use segue_bed::peer::{Peer, Stage};
use segue_bed::{Bed, Error, LinkSpec, Result};

/// Between two passes of a foreground.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How long a promise counts where promises expire: less than a pause.
const EXPIRY: Duration = Duration::from_millis(500);
/// Passes where nothing goes on beside them.
const PASSES_ALONE: usize = 10;

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Of a foreground that is repeated, the mean of its passes.
    pub(super) foreground_seconds: Option<f64>,
    /// Of that: how many there were, and the longest.
    #[serde(default)]
    pub(super) passes: Option<usize>,
    #[serde(default)]
    pub(super) slowest_seconds: Option<f64>,
    pub(super) background_seconds: Option<f64>,
    /// From the start until the server has all that the background wrote.
    pub(super) log_empty_seconds: Option<f64>,
    /// On the client's link, with all headers, until everything has ended.
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// For whoever waits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("foreground", self.foreground_seconds),
            ("slowest", self.slowest_seconds),
            ("background", self.background_seconds),
            ("log empty", self.log_empty_seconds),
        ];
        let known = parts.iter().filter_map(|(name, seconds)| Some((name, (*seconds)?)));
        let words: Vec<String> =
            known.map(|(name, seconds)| format!("{name} {seconds:.2} s")).collect();
        f.write_str(&words.join(", "))
    }
}

/// Measures a cell; `run` is the number that its data come from.
pub(super) fn measure(cell: Cell, run: u32, effort: Effort, is_shared: bool) -> Result<Figures> {
    let Effort { scale, limit, .. } = effort;
    let bed = Bed::new()?;
    let stage = Stage::on(&bed)?;
    let link = cell.rate.map_or_else(LinkSpec::default, LinkSpec::kb_per_s);
    let link = LinkSpec { is_shared, ..link };
    within(limit, move || visit(cell, link, &stage, run, scale))
}

fn visit(cell: Cell, link: LinkSpec, stage: &Stage, run: u32, scale: f64) -> Result<Figures> {
    let Cell { test, start, system, .. } = cell;
    let client = &stage.client;
    let promises = (start == Start::Expired).then_some(EXPIRY);
    let mut peer = system.start_expiring(stage, promises)?;
    peer.seed(&mut |root| test.activities().try_for_each(|one| one.seed(root, run, scale)))?;
    test.activities().try_for_each(|one| one.prepare(client, run, scale))?;
    let place = |dir| WorkloadDir { host: client.clone(), dir, scale };
    let mut here = place(peer.mount()?);
    look(test, &here)?;
    let_go(&here.dir, peer.as_mut())?;
    // What earlier work has left to the disk must not disturb this.
    rustix::fs::sync();
    if system.keeps_its_cache() {
        peer.umount()?;
        client.set_link(link)?;
        here = place(peer.mount()?);
        if start == Start::Held {
            look(test, &here)?;
        }
    } else {
        client.set_link(link)?;
    }
    let before = (client.tx_bytes()?, client.rx_bytes()?);
    let figures = both(test, &here, peer.as_mut())?;
    let (sent_bytes, received_bytes) =
        (client.tx_bytes()? - before.0, client.rx_bytes()? - before.1);
    Ok(Figures { sent_bytes, received_bytes, ..figures })
}

/// Has what is to be cached cached.
fn look(test: Test, place: &WorkloadDir) -> Result<()> {
    let mut cached = test.activities().filter(|one| one.is_of_cached());
    cached.try_for_each(|one| one.act(place).map(drop))
}

/// What a foreground took.
struct Waited {
    seconds: Vec<f64>,
}

impl Waited {
    fn mean(&self) -> f64 {
        self.seconds.iter().sum::<f64>() / self.seconds.len() as f64
    }

    fn slowest(&self) -> Option<f64> {
        self.seconds.iter().copied().max_by(f64::total_cmp)
    }
}

/// The activity that somebody waits for, until `passes` end if it is repeated.
fn wait_for(
    activity: Activity,
    test: Test,
    place: &WorkloadDir,
    passes: &Passes,
) -> Result<Waited> {
    let most = match test.background {
        _ if !activity.is_repeated() => 1,
        Some(_) => usize::MAX,
        None => PASSES_ALONE,
    };
    Ok(Waited { seconds: passes.run(PAUSE, most, || activity.act(place))? })
}

fn both(test: Test, place: &WorkloadDir, peer: &mut dyn Peer) -> Result<Figures> {
    let (ready, passes) = (Barrier::new(test.activities().count()), Passes::default());
    let (foreground, background) = thread::scope(|scope| {
        let foreground = scope.spawn(|| {
            let Some(activity) = test.foreground else { return Ok(None) };
            ready.wait();
            wait_for(activity, test, place, &passes).map(Some)
        });
        let background = test.background.map(|activity| {
            ready.wait();
            let start = Instant::now();
            let done = activity.act(place).and_then(|seconds| {
                peer.drain()?;
                Ok((seconds, start.elapsed().as_secs_f64()))
            });
            // Also after a failure, or the foreground would go on for ever.
            passes.end();
            done
        });
        let panicked = |_| Err(Error::Wrong("the foreground panicked".into()));
        (foreground.join().unwrap_or_else(panicked), background.transpose())
    });
    let (foreground, background) = (foreground?, background?);
    let repeated = foreground.as_ref().filter(|_| test.is_repeated());
    Ok(Figures {
        foreground_seconds: foreground.as_ref().map(Waited::mean),
        passes: repeated.map(|waited| waited.seconds.len()),
        slowest_seconds: repeated.and_then(Waited::slowest),
        background_seconds: background.map(|(seconds, _)| seconds),
        log_empty_seconds: background.map(|(_, until)| until),
        ..Figures::default()
    })
}
