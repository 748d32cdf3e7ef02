//! Rates of reading and writing.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::clock::rate;
use super::course::Course;
use super::map::Map;
use super::{Test, Unit};
use crate::workload::expect;
use segue_bed::{Doing, Result, Rng};

const KB_4: usize = 4 << 10;
const MB: usize = 1 << 20;
const RANDOM: u32 = 10_000;

pub(super) fn tests() -> Vec<Test> {
    let test = |name, unit, run| Test { name, unit, lifetime_0: false, run };
    let (rate, bytes) = (Unit::Operations, Unit::Megabytes);
    vec![
        test("read 1 MB at a time, cold", bytes, |course| read(course, "read-1m", MB)),
        test("read 1 MB at a time, warm", bytes, |course| read(course, "read-1m", MB)),
        test("read 4 KB at a time, cold", bytes, |course| read(course, "read-4k", KB_4)),
        test("read 4 KB at a time, warm", bytes, |course| read(course, "read-4k", KB_4)),
        test("random reads of 4 KB, cold", rate, random_reads),
        test("random reads of 4 KB, warm", rate, |course| random_reads_of(course, "read-4k")),
        test("write 1 MB at a time", bytes, |course| write(course, MB)),
        test("write 4 KB at a time", bytes, |course| write(course, KB_4)),
        test("random writes of 4 KB", rate, random_writes),
        test("mmap, touch each page, cold", bytes, map_read),
        test("mmap, write all, msync", bytes, map_write),
    ]
}

fn total(course: &Course) -> usize {
    course.megabytes() as usize * MB
}

fn read(course: &Course, name: &str, at_a_time: usize) -> Result<f64> {
    let mut buffer = vec![0; at_a_time];
    let file = File::open(course.path(name)).doing("open")?;
    rate(course.megabytes().into(), || {
        for offset in (0..total(course)).step_by(at_a_time) {
            file.read_exact_at(&mut buffer, offset as u64).doing("read")?;
        }
        Ok(())
    })
}

/// Offsets of blocks of 4 KB, each at most once, in an order that no read-ahead expects.
fn random_offsets(course: &Course) -> Vec<u64> {
    let blocks = (total(course) / KB_4) as u64;
    let mut offsets: Vec<u64> = (0..blocks).collect();
    let mut rng = Rng::new(5);
    for last in (1..offsets.len()).rev() {
        let other = usize::try_from(rng.below(last as u64 + 1)).unwrap_or(0);
        offsets.swap(last, other);
    }
    offsets.truncate(course.scaled(RANDOM) as usize);
    offsets.iter().map(|block| block * KB_4 as u64).collect()
}

fn random_reads(course: &Course) -> Result<f64> {
    random_reads_of(course, "random")
}

fn random_reads_of(course: &Course, name: &str) -> Result<f64> {
    let mut buffer = vec![0; KB_4];
    let file = File::open(course.path(name)).doing("open")?;
    let offsets = random_offsets(course);
    rate(offsets.len() as u64, || {
        for offset in &offsets {
            file.read_exact_at(&mut buffer, *offset).doing("read")?;
        }
        Ok(())
    })
}

/// Over what is there: no block is looked for, and the disk is not waited for.
fn to_write(course: &Course) -> Result<File> {
    course.settle("write")?;
    File::options().read(true).write(true).open(course.path("write")).doing("open")
}

fn write(course: &Course, at_a_time: usize) -> Result<f64> {
    let buffer = vec![3; at_a_time];
    let file = to_write(course)?;
    rate(course.megabytes().into(), || {
        for offset in (0..total(course)).step_by(at_a_time) {
            file.write_all_at(&buffer, offset as u64).doing("write")?;
        }
        Ok(())
    })
}

fn random_writes(course: &Course) -> Result<f64> {
    let buffer = vec![4; KB_4];
    let file = to_write(course)?;
    let offsets = random_offsets(course);
    rate(offsets.len() as u64, || {
        for offset in &offsets {
            file.write_all_at(&buffer, *offset).doing("write")?;
        }
        Ok(())
    })
}

fn map_read(course: &Course) -> Result<f64> {
    let file = File::open(course.path("map")).doing("open")?;
    let map = Map::new(&file, total(course), false).doing("map")?;
    let mut sum = 0;
    let done = rate(course.megabytes().into(), || {
        sum = map.touch();
        Ok(())
    })?;
    expect(sum > 0, || "a file of noise is all zeros".into())?;
    Ok(done)
}

fn map_write(course: &Course) -> Result<f64> {
    course.settle("map-write")?;
    let path = course.path("map-write");
    let file = File::options().read(true).write(true).open(path).doing("open")?;
    let mut map = Map::new(&file, total(course), true).doing("map")?;
    rate(course.megabytes().into(), || {
        map.fill(9);
        map.sync().doing("msync")
    })
}
