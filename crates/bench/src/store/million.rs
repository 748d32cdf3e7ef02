//! A million inodes: making them, opening after a crash, checking them all.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::changes::NamedFile;
use super::client::{Client, wrong};
use super::floor::{FILE_BYTES, look_up, read_and_hash, sql, writer};
use super::served::{HOME, MANY};
use super::{Course, SEGUE, SQLITE, rates};
use crate::samples::Unit;
use crate::workload::expect;
use segue_bed::{Doing, Result};

const INODES: u32 = 1_000_000;
const CLIENTS: u32 = 4;
const TOGETHER: u32 = 256;
/// Time under load before the server is killed.
const LOAD: Duration = Duration::from_millis(700);

/// What was made.
pub(super) struct Known {
    /// How many inodes there are, the root among them.
    pub(super) inodes: u64,
    /// Where some files are, evenly spread.
    pub(super) places: Vec<NamedFile>,
}

/// Makes the inodes.
pub(super) fn fill(course: &mut Course<'_>) -> Result<Known> {
    let requests = course.scaled(INODES).div_ceil(CLIENTS * TOGETHER);
    let clients = course.runtime.block_on(course.served.fillers(CLIENTS))?;
    let mut filled = Vec::new();
    course.remember_peak("a million inodes made", |course| {
        let (seconds, clients) =
            course.runtime.block_on(rates::apply(clients, requests, TOGETHER))?;
        let made = f64::from(requests * CLIENTS * TOGETHER);
        course.add(SEGUE, "creations up to a million inodes", Unit::Operations, made / seconds)?;
        filled = clients;
        Ok(())
    })?;
    let made: u64 = filled.iter().map(|client| client.changes.inodes()).sum();
    let places = filled.into_iter().flat_map(|client| client.changes.into_kept()).collect();
    Ok(Known { inodes: made + 1, places })
}

/// Kills the server under load and opens it again, and a copy of its metadata.
pub(super) fn open(course: &mut Course<'_>) -> Result<()> {
    let data = [b'x'; FILE_BYTES];
    let clients = course.runtime.block_on(course.served.clients(CLIENTS, &data))?;
    let loads: Vec<_> =
        clients.into_iter().map(|client| course.runtime.spawn(change_on(client))).collect();
    std::thread::sleep(LOAD);
    course.served.kill9()?;
    for load in loads {
        course.runtime.block_on(load).map_err(wrong)?;
    }
    let (from, to) = (course.served.metadata(), course.floor.dir().join("copy.db"));
    copy(&from, &to)?;
    let started = course.served.start_again()?;
    course.add(SEGUE, "open after kill -9", Unit::Milliseconds, started)?;
    let peak = course.served.peak()?;
    course.add(SEGUE, "open", Unit::MegabytesHeld, peak)?;
    let start = Instant::now();
    look_up(&writer(&to)?, b"x")?;
    let seconds = start.elapsed().as_secs_f64();
    course.add(SQLITE, "open after kill -9", Unit::Milliseconds, seconds * 1e3)
}

/// Changes until the server is gone.
async fn change_on(mut client: Client) {
    while client.apply_next(TOGETHER).await.is_ok() {}
}

/// Copies a database with its log; SQLite makes the index of that anew.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for suffix in ["", "-wal"] {
        let of = |path: &Path| format!("{}{suffix}", path.display());
        fs::copy(of(from), of(to)).doing("copy the metadata")?;
    }
    match fs::remove_file(format!("{}-shm", to.display())) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.doing("remove an old index"),
    }
}

/// Checks all rows and all bytes, which must be as they were made.
pub(super) fn check(course: &mut Course<'_>, inodes: u64) -> Result<()> {
    course.remember_peak("check", |course| {
        let start = Instant::now();
        let checked = course.served.check(MANY)?;
        let seconds = start.elapsed().as_secs_f64();
        let right = checked["ok"] == true && checked["inodes"] == inodes;
        expect(right, || format!("{inodes} inodes were made, and checked: {checked}"))?;
        course.add(SEGUE, "check inodes", Unit::Files, inodes as f64 / seconds)?;
        let start = Instant::now();
        scan(&course.floor.dir().join("copy.db"))?;
        let seconds = start.elapsed().as_secs_f64();
        course.add(SQLITE, "check inodes", Unit::Files, inodes as f64 / seconds)?;
        check_data(course)
    })
}

/// Checks the volume with data, whose bytes count.
fn check_data(course: &mut Course<'_>) -> Result<()> {
    let start = Instant::now();
    let checked = course.served.check(HOME)?;
    let seconds = start.elapsed().as_secs_f64();
    let bytes = checked["bytes_read"].as_u64().unwrap_or(0);
    let right = checked["ok"] == true && bytes > 0;
    expect(right, || format!("the volume with data was checked: {checked}"))?;
    let rate = |bytes: u64, seconds: f64| bytes as f64 / f64::from(1 << 20) / seconds;
    course.add(SEGUE, "check data", Unit::Megabytes, rate(bytes, seconds))?;
    let (mut bytes, start) = (0, Instant::now());
    for pack in course.served.packs()? {
        bytes += read_and_hash(&pack)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    course.add(SQLITE, "check data", Unit::Megabytes, rate(bytes, seconds))
}

/// Reads every row once.
fn scan(path: &Path) -> Result<()> {
    let connection = writer(path)?;
    let read = || {
        let mut statement = connection.prepare("SELECT k, v FROM kv")?;
        let mut rows = statement.query([])?;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(0)?.as_blob()?.len() + row.get_ref(1)?.as_blob()?.len();
        }
        Ok(bytes)
    };
    expect(read().map_err(sql)? > 0, || "the copy is empty".into())
}
