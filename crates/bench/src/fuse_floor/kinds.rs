//! What each kind of request costs: system calls that cause it, in a loop, and nothing else.
//!
//! Time is the caller's. Where the kernel sends two requests for one call both are named;
//! RELEASE and FORGET come by themselves later and are in none.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::PathBuf;

use rustix::fs::{Advice, AtFlags, Mode, OFlags, StatxFlags, XattrFlags};

use super::clock::{micros, micros_of};
use super::course::{Course, name};
use super::{Test, Unit};
use crate::workload::expect;
use segue_bed::{Doing, Error, Result};

const CALLS: u32 = 2_000;
const KB_4: u64 = 4 << 10;
const MB: u64 = 1 << 20;

pub(super) fn tests() -> Vec<Test> {
    let test = |name, run| Test { name, unit: Unit::Microseconds, lifetime_0: false, run };
    vec![
        test("LOOKUP, found", lookup_found),
        test("LOOKUP, not found", lookup_none),
        test("GETATTR", getattr),
        test("SETATTR", setattr),
        test("OPEN", open),
        test("FLUSH", flush),
        test("CREATE", create),
        test("UNLINK", unlink),
        test("LOOKUP, MKDIR", mkdir),
        test("RMDIR", rmdir),
        test("LOOKUP, RENAME", rename),
        test("LOOKUP, SYMLINK", symlinks),
        test("LOOKUP, LINK", link),
        test("READDIRPLUS, for each name", readdirplus),
        test("READ 4 KB", read_4k),
        test("READ 1 MB", read_1m),
        test("WRITE 1 KB", |course| write(course, 1024)),
        test("WRITE 1 MB", |course| write(course, MB)),
        test("GETXATTR", getxattr),
        test("SETXATTR", setxattr),
        test("STATFS", statfs),
    ]
}

fn known(course: &Course, number: u32) -> PathBuf {
    course.path("known").join(name(number))
}

fn new(course: &Course, number: u32) -> PathBuf {
    course.path("known").join(format!("new{number}"))
}

fn found(course: &Course) -> u32 {
    course.scaled(CALLS)
}

fn lookup_found(course: &Course) -> Result<f64> {
    let dir = course.path("found");
    micros_of(found(course), |number| {
        fs::symlink_metadata(dir.join(name(number))).doing("stat").map(drop)
    })
}

fn lookup_none(course: &Course) -> Result<f64> {
    let dir = course.path("found");
    micros_of(found(course), |number| {
        let there = fs::symlink_metadata(dir.join(format!("none{number}"))).is_ok();
        expect(!there, || "what nobody made is there".into())
    })
}

fn getattr(course: &Course) -> Result<f64> {
    let file = File::open(known(course, 0)).doing("open")?;
    // Whatever the kernel may rely on, it is to ask.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    micros_of(found(course), |_| {
        rustix::fs::statx(&file, "", flags, StatxFlags::BASIC_STATS).doing("statx").map(drop)
    })
}

fn setattr(course: &Course) -> Result<f64> {
    let file = File::open(known(course, 0)).doing("open")?;
    micros_of(found(course), |number| {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600 + (number & 0o44))).doing("chmod")
    })
}

fn open(course: &Course) -> Result<f64> {
    let path = known(course, 0);
    fs::metadata(&path).doing("stat")?;
    let open = |_| File::open(&path).doing("open");
    micros(found(course), |_| Ok(()), open, |_, _| Ok(()))
}

fn flush(course: &Course) -> Result<f64> {
    let file = File::open(known(course, 0)).doing("open")?;
    let copy = |_| file.try_clone().doing("dup").map(drop);
    micros_of(found(course), copy)
}

fn make(path: PathBuf) -> Result<File> {
    // Not O_EXCL, with which the kernel asks again for a name that it knows is not there.
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644)).doing("create")?;
    Ok(file.into())
}

fn remove(course: &Course, number: u32) -> Result<()> {
    fs::remove_file(new(course, number)).doing("remove")
}

fn create(course: &Course) -> Result<f64> {
    let is_none = |number| {
        let there = new(course, number).exists();
        expect(!there, || "what nobody made is there".into())
    };
    let create = |number| make(new(course, number));
    micros(found(course), is_none, create, |number, _| remove(course, number))
}

fn unlink(course: &Course) -> Result<f64> {
    let create = |number| make(new(course, number)).map(drop);
    micros(found(course), create, |number| remove(course, number), |_, ()| Ok(()))
}

fn mkdir(course: &Course) -> Result<f64> {
    let make = |number| fs::create_dir(new(course, number)).doing("mkdir");
    let remove = |number, ()| fs::remove_dir(new(course, number)).doing("rmdir");
    micros(found(course), |_| Ok(()), make, remove)
}

fn rmdir(course: &Course) -> Result<f64> {
    let make = |number| fs::create_dir(new(course, number)).doing("mkdir");
    let remove = |number| fs::remove_dir(new(course, number)).doing("rmdir");
    micros(found(course), make, remove, |_, ()| Ok(()))
}

fn rename(course: &Course) -> Result<f64> {
    drop(make(new(course, 0))?);
    let count = found(course);
    let done = micros_of(count, |number| {
        fs::rename(new(course, number), new(course, number + 1)).doing("rename")
    });
    remove(course, count)?;
    done
}

fn symlinks(course: &Course) -> Result<f64> {
    let make = |number| symlink("target", new(course, number)).doing("symlink");
    micros(found(course), |_| Ok(()), make, |number, ()| remove(course, number))
}

fn link(course: &Course) -> Result<f64> {
    let make = |number| fs::hard_link(known(course, 1), new(course, number)).doing("link");
    micros(found(course), |_| Ok(()), make, |number, ()| remove(course, number))
}

fn readdirplus(course: &Course) -> Result<f64> {
    // The kernel asks for attributes of a directory's first names, and goes on as long as they
    // are of use; `found` has not been listed yet.
    let start = std::time::Instant::now();
    let mut names = 0;
    for entry in fs::read_dir(course.path("found")).doing("list")? {
        entry.and_then(|entry| entry.metadata()).doing("stat")?;
        names += 1;
    }
    expect(names == course.names(), || format!("listed {names} names"))?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(names))
}

/// The file to read, of which the mount's cache has nothing and gets nothing ahead.
fn uncached(course: &Course) -> Result<File> {
    let file = File::open(course.path("upcall")).doing("open")?;
    // On the source itself this would let the disk be read.
    if course.dir != course.source {
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).doing("drop pages")?;
    }
    rustix::fs::fadvise(&file, 0, None, Advice::Random).doing("not read ahead")?;
    Ok(file)
}

fn read(course: &Course, bytes: u64) -> Result<f64> {
    let file = uncached(course)?;
    let blocks = u64::from(course.megabytes()) * MB / bytes;
    let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(0)];
    let count = blocks.min(found(course).into());
    micros_of(u32::try_from(count).unwrap_or(0), |number| {
        // Forth and back is no sequence that anybody would read ahead of.
        let number = u64::from(number);
        let block = if number % 2 == 0 { number / 2 } else { blocks - 1 - number / 2 };
        file.read_exact_at(&mut buffer, block * bytes).doing("read")
    })
}

fn read_4k(course: &Course) -> Result<f64> {
    read(course, KB_4)
}

/// The kernel splits reads by how far it reads ahead, 128 KB unless the machine's owner says
/// otherwise; to have one request, this does.
fn read_1m(course: &Course) -> Result<f64> {
    if course.dir != course.source {
        let device = fs::metadata(&course.dir).doing("stat")?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        fs::write(&path, "1024").doing(format!("write {path}"))?;
    }
    read(course, MB)
}

fn write(course: &Course, bytes: u64) -> Result<f64> {
    course.settle("write")?;
    let buffer = vec![5; usize::try_from(bytes).unwrap_or(0)];
    let file = File::options().write(true).open(course.path("write")).doing("open")?;
    let count = if bytes == MB { course.megabytes() } else { found(course) };
    micros_of(count, |number| {
        file.write_all_at(&buffer, u64::from(number) * bytes % MB).doing("write")
    })
}

fn getxattr(course: &Course) -> Result<f64> {
    let file = File::open(known(course, 0)).doing("open")?;
    micros_of(found(course), |_| {
        let mut value = [0; 16];
        match rustix::fs::fgetxattr(&file, "user.none", &mut value[..]) {
            Err(rustix::io::Errno::NODATA) => Ok(()),
            Err(error) => Err(Error::Wrong(format!("an attribute nobody set: {error}"))),
            Ok(_) => Err(Error::Wrong("an attribute nobody set is there".into())),
        }
    })
}

fn setxattr(course: &Course) -> Result<f64> {
    let file = File::open(known(course, 0)).doing("open")?;
    micros_of(found(course), |number| {
        let value = number.to_le_bytes();
        let flags = XattrFlags::empty();
        rustix::fs::fsetxattr(&file, "user.some", &value, flags).doing("set an attribute")
    })
}

fn statfs(course: &Course) -> Result<f64> {
    let file = File::open(known(course, 0)).doing("open")?;
    micros_of(found(course), |_| rustix::fs::fstatvfs(&file).doing("statfs").map(drop))
}
