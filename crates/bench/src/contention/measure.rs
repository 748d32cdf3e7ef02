//! One measurement, on a bed of its own.
//!
//! ```text
//!   unlimited link   another host writes what is to be there and goes; what is to be cached is
//!                    read
//!   its link         mounted anew, so that the connection knows no other; with promises held
//!                    what is cached is looked at once, without them nobody has asked anything
//!   measured         both activities, begun at the same moment; the one in the background is
//!                    followed by `segue sync`, which returns when the update log is empty
//! ```
//!
//! A file system whose cache does not outlive its mount is not mounted anew.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::activity::Activity;
use super::cell::{Cell, Start, Test};
use crate::measurement::Effort;
use crate::run::{let_go, within};
use crate::workload::WorkloadDir;
use segue_bed::peer::{Peer, Stage};
use segue_bed::{Bed, Error, LinkSpec, Result};

/// What was measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) foreground_seconds: Option<f64>,
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
pub(super) fn measure(cell: Cell, run: u32, effort: Effort) -> Result<Figures> {
    let Effort { scale, limit, .. } = effort;
    let bed = Bed::new()?;
    let stage = Stage::on(&bed)?;
    within(limit, move || visit(cell, &stage, run, scale))
}

fn visit(cell: Cell, stage: &Stage, run: u32, scale: f64) -> Result<Figures> {
    let Cell { test, start, system, rate } = cell;
    let client = &stage.client;
    let mut peer = system.start(stage)?;
    peer.seed(&mut |root| test.activities().try_for_each(|one| one.seed(root, run, scale)))?;
    test.activities().try_for_each(|one| one.prepare(client, run, scale))?;
    let place = |dir| WorkloadDir { host: client.clone(), dir, scale };
    let mut here = place(peer.mount()?);
    look(test, &here)?;
    let_go(&here.dir, peer.as_mut())?;
    // What earlier work has left to the disk must not disturb this.
    rustix::fs::sync();
    let link = rate.map_or_else(LinkSpec::default, LinkSpec::kb_per_s);
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

fn both(test: Test, place: &WorkloadDir, peer: &mut dyn Peer) -> Result<Figures> {
    let ready = Barrier::new(test.activities().count());
    let act = |activity: Option<Activity>| {
        activity.map(|activity| {
            ready.wait();
            let start = Instant::now();
            activity.act(place).map(|seconds| (seconds, start))
        })
    };
    let (foreground, background) = thread::scope(|scope| {
        let foreground = scope.spawn(|| act(test.foreground).transpose());
        let background = act(test.background).transpose().and_then(|done| {
            let Some((seconds, start)) = done else { return Ok(None) };
            peer.drain()?;
            Ok(Some((seconds, start.elapsed().as_secs_f64())))
        });
        let panicked = |_| Err(Error::Wrong("the foreground panicked".into()));
        (foreground.join().unwrap_or_else(panicked), background)
    });
    let (foreground, background) = (foreground?, background?);
    Ok(Figures {
        foreground_seconds: foreground.map(|(seconds, _)| seconds),
        background_seconds: background.map(|(seconds, _)| seconds),
        log_empty_seconds: background.map(|(_, until)| until),
        ..Figures::default()
    })
}
