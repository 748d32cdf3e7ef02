//! `small-files`: how fast files come and go.

use std::fs::{self, File};
use std::io::Write;

use super::{Waited, Workload, WorkloadDir, content, timed};
use segue_bed::{Doing, Result, Rng};

const FILES: u32 = 1_000;
const BYTES: usize = 1024;

pub(crate) struct SmallFiles;

impl Workload for SmallFiles {
    fn name(&self) -> &'static str {
        "small-files"
    }

    fn about(&self) -> &'static str {
        "1,000 times: create a file, write 1 KB, close, delete"
    }

    fn measure(&self, place: &WorkloadDir) -> Result<Waited> {
        let data = content::noise(&mut Rng::new(3), BYTES);
        timed(|| {
            for number in 0..place.scaled(FILES) {
                let path = place.dir.join(format!("small{number:04}"));
                let mut file = File::create_new(&path).doing("create a file")?;
                file.write_all(&data).doing("write a file")?;
                drop(file);
                fs::remove_file(&path).doing("delete a file")?;
            }
            Ok(())
        })
    }

    fn writes(&self) -> bool {
        true
    }
}
