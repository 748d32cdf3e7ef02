//! One measurement, on a bed of its own: another host writes what is to be there, the client is
//! mounted on its link with nothing cached, and plays the trace.

use std::fmt;

use serde::Serialize;

use super::load::Load;
use super::play::Play;
use crate::measurement::{self, Effort};
use crate::run::{let_go, within};
use segue_bed::peer::Stage;
use segue_bed::peer::system::System;
use segue_bed::{Bed, LinkSpec, Result};

/// What is measured: a trace in some file system over one link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) load: Load,
    pub(super) system: System,
    /// Of the client's link, in KB a second.
    pub(super) rate: u64,
}

/// As the results name it.
#[derive(Serialize)]
struct Named {
    trace: &'static str,
    system: &'static str,
    rate_kb_per_s: u64,
}

impl Serialize for Cell {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let Cell { load, system, rate } = *self;
        let (trace, system) = (load.name(), system.name());
        Named { trace, system, rate_kb_per_s: rate }.serialize(to)
    }
}

/// For whoever waits.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {} KB/s", self.load.name(), self.system.name(), self.rate)
    }
}

/// What was measured; times from the start of the trace.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Figures {
    pub(super) last_read_seconds: f64,
    /// Until the server had the last write.
    pub(super) last_write_seconds: f64,
    /// Until it returned to who wrote.
    pub(super) write_returned_seconds: f64,
    /// On the client's link, with all headers, until everything has ended.
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// For whoever waits.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { last_read_seconds, last_write_seconds, write_returned_seconds, .. } = self;
        write!(
            f,
            "last read {last_read_seconds:.2} s, last write {last_write_seconds:.2} s, \
             returned {write_returned_seconds:.2} s"
        )
    }
}

/// One cell once.
pub(super) type Measurement = measurement::Measurement<Cell, Figures>;

/// Measures a cell; `run` is the number that its data come from.
pub(super) fn measure(cell: Cell, run: u32, effort: Effort) -> Result<Figures> {
    let Effort { scale, limit, .. } = effort;
    let bed = Bed::new()?;
    let stage = Stage::on(&bed)?;
    within(limit, move || visit(cell, &stage, run, scale))
}

fn visit(cell: Cell, stage: &Stage, run: u32, scale: f64) -> Result<Figures> {
    let play = Play { trace: cell.load.trace(scale), run };
    let client = &stage.client;
    let mut peer = cell.system.start(stage)?;
    peer.seed(&mut |root| play.seed(root))?;
    let_go(&peer.mount()?, peer.as_mut())?;
    // What earlier work has left to the disk must not disturb this.
    rustix::fs::sync();
    // The connection is to know no other link.
    peer.umount()?;
    client.set_link(LinkSpec::kb_per_s(cell.rate))?;
    let root = peer.mount()?;
    let before = (client.tx_bytes()?, client.rx_bytes()?);
    let ends = play.play(&root, || peer.drain())?;
    Ok(Figures {
        last_read_seconds: ends.read.unwrap_or_default(),
        last_write_seconds: ends.drained,
        write_returned_seconds: ends.write.unwrap_or_default(),
        sent_bytes: client.tx_bytes()? - before.0,
        received_bytes: client.rx_bytes()? - before.1,
    })
}
