//! `warm-read`: how fast a cached file is read again.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::{Waited, Workload, WorkloadDir, content, scaled, timed};
use segue_bed::{Doing, Result, Rng};

const MEGABYTES: u32 = 256;
const MEGABYTE: usize = 1 << 20;

pub(crate) struct WarmRead;

impl Workload for WarmRead {
    fn name(&self) -> &'static str {
        "warm-read"
    }

    fn about(&self) -> &'static str {
        "read a file of 256 MB for the second time"
    }

    fn seed(&self, dir: &Path, scale: f64) -> Result<()> {
        let mut file = File::create(dir.join("big")).doing("create big")?;
        let mut rng = Rng::new(1);
        for _ in 0..scaled(MEGABYTES, scale) {
            file.write_all(&content::noise(&mut rng, MEGABYTE)).doing("write big")?;
        }
        file.sync_all().doing("fsync big")
    }

    fn warm(&self, place: &WorkloadDir) -> Result<()> {
        read_all(place)
    }

    fn measure(&self, place: &WorkloadDir) -> Result<Waited> {
        timed(|| read_all(place))
    }

    fn writes(&self) -> bool {
        false
    }

    fn is_of_caches(&self) -> bool {
        true
    }
}

fn read_all(place: &WorkloadDir) -> Result<()> {
    let mut file = File::open(place.dir.join("big")).doing("open big")?;
    let mut buffer = vec![0; MEGABYTE];
    let mut total = 0;
    loop {
        match file.read(&mut buffer).doing("read big")? {
            0 => break,
            len => total += len,
        }
    }
    let expected = place.scaled(MEGABYTES) as usize * MEGABYTE;
    super::expect(total == expected, || format!("big has {total} bytes, not {expected}"))
}
