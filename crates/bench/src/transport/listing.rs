//! File systems: `ls` of a directory while a large file is copied into the mount.
//!
//! ```text
//!   before      on the server: directories of ten files each; one is listed on the idle link
//!   bulk        one large file of noise is written into the mount and closed
//!   measured    once a second another directory, which nobody has listed: its names, then the
//!               attributes of each, as `ls -l` asks for them
//! ```
//!
//! A new directory each time, because one that was listed before is answered from caches for
//! seconds or minutes. The directories' names are cached. A listing may take longer than all of the
//! bulk: the figures tell if the bulk was over before it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::figures::Figures;
use super::setting::Setting;
use super::{within, wrong};
use crate::workload::content::noise;
use crate::workload::{expect, scaled};
use segue_bed::peer::{Kind, Stage, wait_until};
use segue_bed::{Bed, Doing, Host, Result, Rng};

/// The file systems that are measured.
pub(super) const FILE_SYSTEMS: [&str; 2] = ["sshfs", "rclone"];

/// At scale 1, what counts: long, because a listing beside bulk may take seconds.
const MEASURE_MS: u32 = 60_000;
/// From one listing to the next, if it takes no longer.
const PACE: Duration = Duration::from_secs(1);
/// Listings on the idle link.
const IDLE_LISTINGS: u32 = 5;
const FILES: u32 = 10;
/// How long it may take until the bulk is on the link: rclone waits for five seconds.
const FLOW_MAX: Duration = Duration::from_secs(60);
/// Once it is there, how long it goes before anything counts.
const WARM: Duration = Duration::from_secs(5);
/// The file is so much longer than what the link carries until the end.
const SPARE: Duration = Duration::from_secs(60);
const PIECE_BYTES: usize = 1 << 20;

/// Measures a file system on a bed of its own.
pub(super) fn measure(
    kind: Kind,
    setting: Setting,
    scale: f64,
    limit: Duration,
) -> Result<Figures> {
    let bed = Bed::new()?;
    let stage = Stage::on(&bed)?;
    let time = Duration::from_millis(scaled(MEASURE_MS, scale).into());
    within(limit, move || act(kind, setting, time, &stage))
}

fn act(kind: Kind, setting: Setting, time: Duration, stage: &Stage) -> Result<Figures> {
    let mut peer = kind.start(stage)?;
    let listings = IDLE_LISTINGS + u32::try_from(time.as_secs()).unwrap_or(0) + 1;
    peer.seed(&mut |root| seed(root, listings))?;
    let root = peer.mount()?;
    // So that the directories' names are known.
    fs::read_dir(root.join("look")).doing("list the directories")?.for_each(drop);
    // What earlier work has left to the disk must not disturb this.
    rustix::fs::sync();
    let client = &stage.client;
    client.set_link(setting.link())?;

    let mut directories = (0..listings).map(|number| directory(&root, number));
    let idle = directories.by_ref().take(IDLE_LISTINGS as usize);
    let idle_us = idle.map(|directory| timed(&directory)).collect::<Result<Vec<_>>>()?;
    let bytes = setting.rate() as f64 * (FLOW_MAX + WARM + time + SPARE).as_secs_f64();
    let file = root.join("bulk");
    // It ends with the bed, in the middle of the file.
    thread::spawn(move || copy_into(&file, bytes));
    until_flows(client, &setting)?;
    thread::sleep(WARM);

    let (start, sent, received) = (Instant::now(), client.tx_bytes()?, client.rx_bytes()?);
    let mut listings_us = Vec::new();
    while start.elapsed() < time {
        let next = Instant::now() + PACE;
        let directory = directories.next().ok_or_else(|| wrong("no directory is left"))?;
        listings_us.push(timed(&directory)?);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let seconds = start.elapsed().as_secs_f64();
    let sent = (client.tx_bytes()? - sent) as f64 / seconds;
    let received = (client.rx_bytes()? - received) as f64 / seconds;
    let bulk_ended = !flows(client, &setting)?;
    let figures = Figures::of_trips(&idle_us, &listings_us, (sent, received), &setting)?;
    Ok(Figures { bulk_ended, ..figures })
}

fn directory(root: &Path, number: u32) -> PathBuf {
    root.join("look").join(format!("d{number:03}"))
}

fn seed(root: &Path, directories: u32) -> Result<()> {
    for number in 0..directories {
        let directory = directory(root, number);
        fs::create_dir_all(&directory).doing("make a directory")?;
        for file in 0..FILES {
            fs::write(directory.join(format!("f{file:02}")), "look at me\n")
                .doing("make a file")?;
        }
    }
    Ok(())
}

/// Lists a directory and looks at each of its files: how many microseconds that takes.
fn timed(directory: &Path) -> Result<u64> {
    let start = Instant::now();
    let mut files = 0;
    for file in fs::read_dir(directory).doing("list a directory")? {
        let file = file.doing("list a directory")?.path();
        fs::symlink_metadata(&file).doing("look at a file")?;
        files += 1;
    }
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    expect(files == FILES, || format!("found {files} files, not {FILES}"))?;
    Ok(micros)
}

/// Writes some `bytes` into `file`, as fast as that takes them.
fn copy_into(file: &Path, bytes: f64) {
    let noise = noise(&mut Rng::new(1), PIECE_BYTES);
    let Ok(mut file) = File::create(file) else { return };
    let mut written = 0.0;
    while written < bytes && file.write_all(&noise).is_ok() {
        written += noise.len() as f64;
    }
}

/// Waits until the bulk is on the link.
fn until_flows(client: &Host, setting: &Setting) -> Result<()> {
    wait_until("the bulk is not on the link", FLOW_MAX, || flows(client, setting))
}

/// Whether the client's link is busy for a second.
fn flows(client: &Host, setting: &Setting) -> Result<bool> {
    let before = client.tx_bytes()?;
    thread::sleep(Duration::from_secs(1));
    Ok(client.tx_bytes()? - before > setting.rate() / 2)
}
