//! `stat-storm`: how fast a cached tree is walked again.

use std::fs;
use std::path::Path;

use super::{Waited, Workload, WorkloadDir, scaled, timed};
use segue_bed::{Doing, Result};

const DIRECTORIES: u32 = 100;
const FILES_IN_EACH: u32 = 100;

pub(crate) struct StatStorm;

impl Workload for StatStorm {
    fn name(&self) -> &'static str {
        "stat-storm"
    }

    fn about(&self) -> &'static str {
        "list and stat 10,000 files in 100 directories for the third time"
    }

    fn seed(&self, dir: &Path, scale: f64) -> Result<()> {
        for number in 0..scaled(DIRECTORIES, scale) {
            let dir = dir.join(format!("d{number:02}"));
            fs::create_dir(&dir).doing(format!("make {}", dir.display()))?;
            for number in 0..FILES_IN_EACH {
                let file = dir.join(format!("f{number:02}"));
                fs::write(&file, "stat me\n").doing(format!("write {}", file.display()))?;
            }
        }
        Ok(())
    }

    fn warm(&self, place: &WorkloadDir) -> Result<()> {
        walk(place)?;
        walk(place)
    }

    fn measure(&self, place: &WorkloadDir) -> Result<Waited> {
        timed(|| walk(place))
    }

    fn writes(&self) -> bool {
        false
    }

    fn is_of_caches(&self) -> bool {
        true
    }
}

fn walk(place: &WorkloadDir) -> Result<()> {
    let mut files = 0;
    for dir in fs::read_dir(&place.dir).doing("list the tree")? {
        let dir = dir.doing("list the tree")?.path();
        for file in fs::read_dir(&dir).doing("list a directory")? {
            let file = file.doing("list a directory")?.path();
            fs::symlink_metadata(&file).doing("stat a file")?;
            files += 1;
        }
    }
    let expected = place.scaled(DIRECTORIES) * FILES_IN_EACH;
    super::expect(files == expected, || format!("found {files} files, not {expected}"))
}
