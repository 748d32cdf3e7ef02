//! How long a metadata read takes beside other clients' writes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use segue_core::namespace::keys;
use segue_core::wire::{Looked, Lookup, Reply, Request};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use super::changes::NamedFile;
use super::client::{Client, Door, wrong};
use super::floor::{FILE_BYTES, look_up, reader, replay, writer};
use super::{Course, SEGUE, SQLITE, data};
use crate::samples::Unit;
use crate::workload::expect;
use segue_bed::{Doing, Result, Rng};

/// Reads of each measurement.
const READS: u32 = 4_000;
/// Transactions that the floor's writer goes through again and again.
const TRANSACTIONS: u32 = 20;

/// What others do meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Nothing,
    /// This many clients with so many changes in flight each.
    Changes(u32, u32),
    Upload,
}

struct Beside {
    load: Load,
    p50: &'static str,
    p99: &'static str,
    /// What the load came to.
    done: &'static str,
    /// How long its requests took.
    request: &'static str,
}

const ALL: [Beside; 4] = [
    Beside { load: Load::Nothing, p50: "p50, alone", p99: "p99, alone", done: "", request: "" },
    Beside {
        load: Load::Changes(16, 1),
        p50: "p50 beside 16 clients, one change in flight each",
        p99: "p99 beside 16 clients, one change in flight each",
        done: "changes of 16 clients beside reads",
        request: "beside these: p50 of a durable APPLY of one change",
    },
    Beside {
        load: Load::Changes(4, 256),
        p50: "p50 beside 4 clients, 256 changes in flight each",
        p99: "p99 beside 4 clients, 256 changes in flight each",
        done: "changes of 4 clients beside reads",
        request: "beside these: p50 of a durable APPLY of 256 changes",
    },
    Beside {
        load: Load::Upload,
        p50: "p50 beside uploads of new data",
        p99: "p99 beside uploads of new data",
        done: "chunks of 64 KB beside reads",
        request: "beside these: p50 of a durable OFFER and PUT of 4 MB",
    },
];

pub(super) fn run(course: &mut Course<'_>, places: &[NamedFile]) -> Result<()> {
    course.remember_peak("metadata reads beside writes", |course| {
        for beside in &ALL {
            let times = reads_beside(course, beside, places)?;
            add(course, SEGUE, beside, times)?;
            if beside.load != Load::Upload {
                let times = floor_beside(course, beside.load, places)?;
                add(course, SQLITE, beside, times)?;
            }
        }
        Ok(())
    })
}

fn add(
    course: &mut Course<'_>,
    system: &'static str,
    beside: &Beside,
    times: Vec<f64>,
) -> Result<()> {
    let (p50, p99) = (quantile(&times, 50), quantile(&times, 99));
    course.add(system, beside.p50, Unit::Microseconds, p50)?;
    course.add(system, beside.p99, Unit::Microseconds, p99)
}

/// The value that `percent` of `sorted` do not exceed.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100);
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn in_order(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times
}

/// Microseconds of each read, ascending.
fn reads_beside(
    course: &mut Course<'_>,
    beside: &Beside,
    places: &[NamedFile],
) -> Result<Vec<f64>> {
    let (count, changes, data) = match beside.load {
        Load::Nothing => (0, 0, Vec::new()),
        Load::Changes(clients, changes) => (clients, changes, vec![b'x'; FILE_BYTES]),
        Load::Upload => (2, 0, Vec::new()),
    };
    let clients = course.runtime.block_on(course.served.clients(count, &data))?;
    let reads = course.scaled(READS);
    let (door, number) = course.served.reader()?;
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    let loads: Vec<_> = clients
        .into_iter()
        .map(|client| course.runtime.spawn(load(client, changes, stop.clone(), done.clone())))
        .collect();
    // Reads beside a load that did nothing yet would be reads alone. One that fails does no more.
    let under_way = || {
        beside.load == Load::Nothing
            || done.load(Ordering::Relaxed) > 0
            || loads.iter().any(JoinHandle::is_finished)
    };
    // A thread of its own, so that it does not queue behind what makes the load.
    let times = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&door, number, places, reads, under_way));
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let mut requests = Vec::new();
    for load in loads {
        requests.extend(course.runtime.block_on(load).map_err(wrong)??);
    }
    if beside.load != Load::Nothing {
        course.add(SEGUE, beside.done, Unit::Operations, rate)?;
        let p50 = quantile(&in_order(requests), 50);
        course.add(SEGUE, beside.request, Unit::Microseconds, p50)?;
    }
    times.map(in_order)
}

/// Microseconds of each request.
async fn load(
    mut client: Client,
    changes: u32,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let new = (changes == 0).then(|| data::PutReady::new(&client, times.len()));
        let start = Instant::now();
        let units = match new {
            Some(new) => new.send(&client).await?,
            None => client.apply_next(changes).await.map(|()| changes)?,
        };
        times.push(start.elapsed().as_secs_f64() * 1e6);
        done.fetch_add(units.into(), Ordering::Relaxed);
    }
    Ok(times)
}

/// Microseconds of each of `reads`, or of as many more as it takes until `enough`.
fn read(
    door: &Door,
    number: u32,
    places: &[NamedFile],
    reads: u32,
    enough: impl Fn() -> bool,
) -> Result<Vec<f64>> {
    let runtime = Builder::new_current_thread().enable_all().build().doing("start the reader")?;
    let mut rng = Rng::new(number.into());
    runtime.block_on(async {
        let client = Client::open(door, number, Vec::new()).await?;
        let mut times = Vec::new();
        while times.len() < reads as usize || !enough() {
            let at = usize::try_from(rng.below(places.len() as u64)).unwrap_or(0);
            let Some(NamedFile { parent, name, ino }) = places.get(at) else { break };
            let request = match times.len() % 2 {
                0 => Request::Getattr(*ino),
                _ => Request::Lookup(Lookup { parent: *parent, name: name.clone() }),
            };
            let start = Instant::now();
            let reply = client.ask(&request).await?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
            let found = match reply {
                Reply::Node(found) => Some(found.node.attr.ino),
                Reply::Looked(Looked { node, .. }) => node.map(|node| node.attr.ino),
                _ => None,
            };
            expect(found == Some(*ino), || format!("{found:?} is not {ino:?}"))?;
        }
        Ok(times)
    })
}

/// The same of SQLite: a reader beside a writer, on a copy of the server's metadata.
fn floor_beside(course: &mut Course<'_>, load: Load, places: &[NamedFile]) -> Result<Vec<f64>> {
    let path = course.floor.dir().join("copy.db");
    let reads = course.scaled(READS);
    let writes = match load {
        // One commit for what several clients have in flight, as in the server.
        Load::Changes(clients, 1) => course.floor.record(TRANSACTIONS, clients)?,
        Load::Changes(_, changes) => course.floor.record(TRANSACTIONS, changes)?,
        Load::Nothing | Load::Upload => Vec::new(),
    };
    let volume = course.served.many_id;
    let keys: Vec<_> = places.iter().map(|place| keys::inode(volume, place.ino)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let connection = writer(&path)?;
            while !writes.is_empty() && !stop.load(Ordering::Relaxed) {
                replay(&connection, &writes)?;
            }
            Ok(())
        });
        let times = floor_reads(&path, &keys, reads);
        stop.store(true, Ordering::Relaxed);
        writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        times.map(in_order)
    })
}

fn floor_reads(path: &Path, keys: &[Vec<u8>], reads: u32) -> Result<Vec<f64>> {
    let connection = reader(path)?;
    let mut rng = Rng::new(3);
    let mut times = Vec::new();
    for _ in 0..reads {
        let at = usize::try_from(rng.below(keys.len() as u64)).unwrap_or(0);
        let Some(key) = keys.get(at) else { break };
        let start = Instant::now();
        let value = look_up(&connection, key)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        expect(value.is_some(), || "a row is gone".into())?;
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_not_exceeded_by_its_share() {
        let times: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(&times, 50), 100.0);
        assert_eq!(quantile(&times, 99), 198.0);
        assert_eq!(quantile(&times[..1], 99), 1.0);
        assert_eq!(quantile(&[], 50), 0.0);
    }
}
