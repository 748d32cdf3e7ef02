//! Runs workloads on file systems, interleaved, each measurement on a bed of its own.
//!
//! One repeat of everything comes before the next repeat of anything, so that what disturbs the
//! machine for a while disturbs all file systems alike. A file system that is missing or fails
//! is a result, with its reason.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::record::{Figures, Measurement};
use crate::workload::{Workload, WorkloadDir};
use segue_bed::peer::{Kind, Peer, Stage};
use segue_bed::{Bed, Doing, Error, LinkSpec, Result};

/// What to measure.
pub struct Plan {
    /// The workloads, in order.
    pub workloads: Vec<&'static dyn Workload>,
    /// The file systems, in order.
    pub kinds: Vec<Kind>,
    /// Rates of the client's link in KB (1024 bytes) a second; none: unlimited.
    pub rates: Vec<Option<u64>>,
    /// What the link adds to a round trip.
    pub rtt: Duration,
    /// How often to measure each.
    pub repeats: u32,
    /// Share of the workloads' standard size.
    pub scale: f64,
    /// When to give up on one measurement.
    pub limit: Duration,
    /// Whether to wait until the server has every change.
    pub drains: bool,
}

/// One cell of the plan.
#[derive(Clone, Copy)]
struct Cell {
    workload: &'static dyn Workload,
    kind: Kind,
    rate: Option<u64>,
    repeat: u32,
}

impl Plan {
    /// Measures everything and hands each measurement to `sink` as soon as it is there.
    pub fn run(&self, mut sink: impl FnMut(Measurement) -> Result<()>) -> Result<()> {
        for cell in self.cells() {
            let figures = self.measure(cell);
            sink(Measurement {
                workload: cell.workload.name(),
                file_system: cell.kind.name,
                remote: cell.kind.remote,
                rate_kb_per_s: cell.rate,
                rtt_seconds: self.rtt.as_secs_f64(),
                repeat: cell.repeat,
                scale: self.scale,
                figures: figures.map_err(|error| error.to_string()),
            })?;
        }
        Ok(())
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for repeat in 1..=self.repeats {
            for &workload in &self.workloads {
                for (index, &rate) in self.rates.iter().enumerate() {
                    // The link does not matter to a local file system: once is enough.
                    let kinds = self.kinds.iter().filter(|kind| kind.remote || index == 0);
                    cells.extend(kinds.map(|&kind| Cell { workload, kind, rate, repeat }));
                }
            }
        }
        cells
    }

    /// Measures one cell on a fresh bed, for at most the limit.
    fn measure(&self, cell: Cell) -> Result<Figures> {
        let bed = Bed::new()?;
        let stage = Stage::on(&bed)?;
        let link = cell.rate.map_or_else(LinkSpec::default, LinkSpec::kb_per_s).with_rtt(self.rtt);
        let (scale, drains) = (self.scale, self.drains);
        within(self.limit, move || act(cell.workload, cell.kind, &stage, link, scale, drains))
    }
}

/// What `work` comes to within `limit`. Later than that it goes on until what it waits for fails,
/// as a file system does when its bed is dropped.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::spawn(move || {
        // Nobody listens any more when the limit has passed.
        let _ = sender.send(work());
    });
    let Ok(result) = receiver.recv_timeout(limit) else {
        return Err(Error::TimedOut(format!("not done after {limit:?}")));
    };
    // A panic has been reported by then.
    let _ = worker.join();
    result
}

/// Changes what the host that wrote everything was promised, and waits until that is visible. The
/// server may not have heard that the host is gone, and gives it up after 20 s; who syncs a change
/// waits for that, and it would count.
pub(crate) fn let_go(root: &Path, peer: &mut dyn Peer) -> Result<()> {
    let path = root.join("begun");
    fs::write(&path, b"").doing("change the root directory")?;
    fs::remove_file(&path).doing("change the root directory")?;
    peer.drain()
}

/// Measures a workload: on a link as fast as the machine until what is to be there is there.
pub(crate) fn act(
    workload: &dyn Workload,
    kind: Kind,
    stage: &Stage,
    link: LinkSpec,
    scale: f64,
    drains: bool,
) -> Result<Figures> {
    let mut peer = kind.start(stage)?;
    peer.seed(&mut |dir| workload.seed(dir, scale))?;
    let place = WorkloadDir { host: stage.client.clone(), dir: peer.mount()?, scale };
    workload.warm(&place)?;
    if drains {
        let_go(&place.dir, peer.as_mut())?;
    }
    // What earlier work has left to the disk must not disturb this.
    rustix::fs::sync();
    stage.client.set_link(link)?;

    let before = (stage.client.tx_bytes()?, stage.client.rx_bytes()?);
    let waited = workload.measure(&place)?;
    let pending_records = peer.pending()?;
    let mut until_server_seconds = None;
    if workload.writes() && drains {
        peer.drain()?;
        until_server_seconds = Some(waited.since.elapsed().as_secs_f64());
    }
    let sent_bytes = stage.client.tx_bytes()? - before.0;
    let received_bytes = stage.client.rx_bytes()? - before.1;
    let mut restarted_seconds = None;
    if workload.is_of_caches() {
        peer.umount()?;
        let place = WorkloadDir { dir: peer.mount()?, ..place };
        restarted_seconds = Some(workload.measure(&place)?.seconds);
    }
    Ok(Figures {
        seconds: waited.seconds,
        restarted_seconds,
        until_server_seconds,
        pending_records,
        sent_bytes,
        received_bytes,
    })
}
