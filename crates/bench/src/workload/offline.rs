//! `offline`: what a user waits for while the link is cut, and how soon everything arrives then.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{Waited, Workload, WorkloadDir, content};
use segue_bed::{Doing, Error, Result, Rng};

const CUT: Duration = Duration::from_secs(20);
/// Shorter, nobody notices.
const CUT_MIN: Duration = Duration::from_secs(1);
const FILES: u64 = 50;
const BYTES: usize = 64 << 10;
/// Between one round of calls and the next.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Offline;

impl Workload for Offline {
    fn name(&self) -> &'static str {
        "offline"
    }

    fn about(&self) -> &'static str {
        "link cut for 20 s: the longest of reads, writes and creations; then until all arrived"
    }

    fn seed(&self, dir: &Path, _scale: f64) -> Result<()> {
        let mut rng = Rng::new(4);
        for number in 0..FILES {
            let bytes = content::noise(&mut rng, BYTES);
            fs::write(dir.join(format!("cached{number}")), bytes).doing("write a file")?;
        }
        Ok(())
    }

    fn warm(&self, place: &WorkloadDir) -> Result<()> {
        fs::read_dir(&place.dir).doing("list")?.for_each(drop);
        (0..FILES).try_for_each(|number| read(place, number))
    }

    fn measure(&self, place: &WorkloadDir) -> Result<Waited> {
        let cut = CUT.mul_f64(place.scale).max(CUT_MIN);
        place.host.link_down()?;
        let working = place.clone();
        let work = thread::spawn(move || work(&working, Instant::now() + cut));
        // Whatever hangs goes on when the link is back, and has its time counted.
        thread::sleep(cut);
        let since = Instant::now();
        place.host.link_up()?;
        let longest = work.join().map_err(|_| Error::Wrong("the work panicked".into()))??;
        Ok(Waited { seconds: longest.as_secs_f64(), since })
    }

    fn writes(&self) -> bool {
        true
    }
}

/// Reads, writes and creates until `end`; returns the time of the longest.
fn work(place: &WorkloadDir, end: Instant) -> Result<Duration> {
    let (mut rng, mut longest) = (Rng::new(5), Duration::ZERO);
    let data = content::noise(&mut rng, 4096);
    let mut number = 0;
    while Instant::now() < end {
        let file = rng.below(FILES);
        let calls: [&dyn Fn() -> Result<()>; 3] =
            [&|| read(place, file), &|| overwrite(place, file, &data), &|| {
                create(place, number, &data[..1024])
            }];
        for call in calls {
            let start = Instant::now();
            call()?;
            longest = longest.max(start.elapsed());
        }
        number += 1;
        thread::sleep(PAUSE);
    }
    Ok(longest)
}

fn read(place: &WorkloadDir, number: u64) -> Result<()> {
    let mut file = File::open(place.dir.join(format!("cached{number}"))).doing("open a file")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).doing("read a file")?;
    super::expect(bytes.len() == BYTES, || format!("a file has {} bytes", bytes.len()))
}

fn overwrite(place: &WorkloadDir, number: u64, data: &[u8]) -> Result<()> {
    let path = place.dir.join(format!("cached{number}"));
    let file = File::options().write(true).open(path).doing("open a file")?;
    file.write_all_at(data, 8192).doing("write a file")
}

fn create(place: &WorkloadDir, number: u64, data: &[u8]) -> Result<()> {
    let path = place.dir.join(format!("new{number}"));
    let mut file = File::create_new(path).doing("create a file")?;
    file.write_all(data).doing("write a file")
}
