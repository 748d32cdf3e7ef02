//! Rates of what is done to names: files made and removed, trees unpacked, names looked at.

use std::fs::{self, File};
use std::io::Write;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};

use super::clock::rate;
use super::course::{Course, name};
use super::{Test, Unit};
use crate::workload::{Workload, expect, untar};
use segue_bed::{Doing, Result};

const SMALL_FILES: u32 = 5_000;
const UNTAR_FILES: f64 = 2_000.0;

pub(super) fn tests() -> Vec<Test> {
    let test = |name, lifetime_0, run| Test { name, unit: Unit::Files, lifetime_0, run };
    vec![
        test("create, write 1 KB, close, unlink", false, small_files),
        test("untar 2,000 files, 30 MB", false, untar),
        test("list and stat 10,000 names, cold", false, list),
        test("stat, warm", false, stat_warm),
        test("stat, lifetime 0", true, stat_all),
    ]
}

fn small_files(course: &Course) -> Result<f64> {
    let data = [7; 1024];
    let dir = course.path("small");
    fs::create_dir(&dir).doing("make a directory")?;
    let count = course.scaled(SMALL_FILES);
    let done = rate(count.into(), || {
        for number in 0..count {
            let path = dir.join(name(number));
            let mut file = File::create_new(&path).doing("create a file")?;
            file.write_all(&data).doing("write a file")?;
            drop(file);
            fs::remove_file(&path).doing("delete a file")?;
        }
        Ok(())
    });
    fs::remove_dir(&dir).doing("remove a directory")?;
    done
}

fn untar(course: &Course) -> Result<f64> {
    let mut place = course.place();
    place.dir = course.path("untar");
    fs::create_dir(&place.dir).doing("make a directory")?;
    let seconds = untar::SOURCES.measure(&place);
    course.compare("untar")?;
    fs::remove_dir_all(&place.dir).doing("remove the tree")?;
    Ok((UNTAR_FILES * course.scale).max(1.0) / seconds?.seconds.max(1e-9))
}

fn list(course: &Course) -> Result<f64> {
    let mut found = 0;
    let done = rate(course.names().into(), || {
        for entry in fs::read_dir(course.path("names")).doing("list names")? {
            entry.and_then(|entry| entry.metadata()).doing("stat a name")?;
            found += 1;
        }
        Ok(())
    })?;
    expect(found == course.names(), || format!("listed {found} names"))?;
    Ok(done)
}

fn stat_warm(course: &Course) -> Result<f64> {
    stat_all(course)?;
    let rates = (0..5).map(|_| stat_all(course)).collect::<Result<Vec<_>>>()?;
    Ok(rates.iter().sum::<f64>() / rates.len() as f64)
}

fn stat_all(course: &Course) -> Result<f64> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let dir = openat(CWD, course.path("names"), flags, Mode::empty()).doing("open names")?;
    let names: Vec<String> = (0..course.names()).map(name).collect();
    rate(course.names().into(), || {
        for name in &names {
            let stat = statat(&dir, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).doing("stat")?;
            expect(stat.st_size == 1, || format!("{name} has {} bytes", stat.st_size))?;
        }
        Ok(())
    })
}
