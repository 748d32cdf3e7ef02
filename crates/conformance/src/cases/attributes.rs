//! stat and statx: what is said of a file.

use rustix::fs::{self, AtFlags, CWD, FileType, OFlags as O, StatxFlags};
use rustix::io::pwrite;

use crate::call::{create, mknod, open};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit};
use crate::sys;

cases! { "attributes"
    anyone: stat_and_statx_agree, birth_time_stays, numbers_are_unique, numbers_stay,
        one_device, blocks_grow, of_a_link_and_of_its_target, bad_flags_are_einval,
        by_empty_path, birth_is_before_changes, size_while_writing, through_proc,
        asked_of_the_file_system_itself;
    root: device_numbers;
}

fn stat_and_statx_agree(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    fs::link("f", "g")?;
    p.dir("d")?;
    p.symlink("f", "link")?;
    for name in ["f", "d", "link"] {
        let stat = p.stat(name)?;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let more = works!(fs::statx(CWD, name, flags, StatxFlags::BASIC_STATS))?;
        let basic = StatxFlags::BASIC_STATS.bits();
        same!(more.stx_mask & basic, basic)?;
        same!((more.stx_ino, u32::from(more.stx_mode)), (stat.st_ino, stat.st_mode))?;
        same!((more.stx_uid, more.stx_gid), (stat.st_uid, stat.st_gid))?;
        same!(u64::from(more.stx_nlink), stat.st_nlink)?;
        same!(more.stx_size.cast_signed(), stat.st_size)?;
        same!(more.stx_blocks.cast_signed(), stat.st_blocks)?;
        let times = (more.stx_mtime.tv_sec, more.stx_ctime.tv_sec);
        same!(times, (stat.st_mtime, stat.st_ctime))?;
        same!(u64::from(more.stx_mtime.tv_nsec), stat.st_mtime_nsec)?;
        let device = fs::makedev(more.stx_dev_major, more.stx_dev_minor);
        same!(device, stat.st_dev)?;
    }
    Ok(())
}

fn birth(name: &str) -> Result<Option<(i64, u32)>, crate::Failure> {
    let more = works!(fs::statx(CWD, name, AtFlags::empty(), StatxFlags::BTIME))?;
    let is_known = more.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(is_known.then_some((more.stx_btime.tv_sec, more.stx_btime.tv_nsec)))
}

/// Where a file system knows the birth of a file, nothing moves it.
fn birth_time_stays(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let born = birth("f")?;
    p.tick();
    works!(pwrite(edit("f")?, b"more", 4))?;
    works!(crate::call::utimens("f", (1, 0), (1, 0)))?;
    works!(fs::rename("f", "g"))?;
    works!(crate::call::chmod("g", 0o600))?;
    same!(birth("g")?, born)
}

fn birth_is_before_changes(p: &Place) -> Outcome {
    p.file("f", "")?;
    let Some((seconds, nanoseconds)) = birth("f")? else { return Ok(()) };
    let stat = p.stat("f")?;
    holds!((seconds, u64::from(nanoseconds)) <= (stat.st_ctime, stat.st_ctime_nsec))
}

fn numbers_are_unique(p: &Place) -> Outcome {
    let mut numbers = std::collections::BTreeSet::new();
    let mut files = Vec::new();
    for number in 0..100 {
        let name = format!("f{number}");
        files.push(works!(create(&name, 0o644))?);
        holds!(numbers.insert(p.stat(&name)?.st_ino))?;
    }
    // Also of those that are open and have no name any more.
    for number in 0..100 {
        works!(fs::unlink(format!("f{number}")))?;
        p.file("next", "")?;
        holds!(numbers.insert(p.stat("next")?.st_ino))?;
        works!(fs::rename("next", format!("g{number}")))?;
    }
    drop(files);
    Ok(())
}

fn numbers_stay(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "text")?;
    let (dir, file) = (p.stat("d")?.st_ino, p.stat("d/f")?.st_ino);
    works!(pwrite(edit("d/f")?, b"more", 4))?;
    works!(fs::rename("d", "e"))?;
    works!(fs::rename("e/f", "g"))?;
    same!((p.stat("e")?.st_ino, p.stat("g")?.st_ino), (dir, file))?;
    same!(fs::fstat(open("g", O::RDONLY)?)?.st_ino, file)?;
    p.elsewhere(|| same!(p.stat("g")?.st_ino, file))
}

fn one_device(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    p.symlink("f", "link")?;
    let device = fs::stat(".")?.st_dev;
    for name in ["f", "d", "link"] {
        same!(p.stat(name)?.st_dev, device)?;
    }
    Ok(())
}

/// Blocks are of 512 bytes. They may come late, but not after fsync.
fn blocks_grow(p: &Place) -> Outcome {
    p.file("f", vec![b'x'; 1_000_000])?;
    works!(fs::fsync(edit("f")?))?;
    holds!(p.stat("f")?.st_blocks >= 1_000_000 / 512)?;
    works!(sys::truncate(c"f", 0))?;
    works!(fs::fsync(edit("f")?))?;
    holds!(p.stat("f")?.st_blocks < 100)?;
    holds!(p.stat("f")?.st_blksize >= 512)
}

fn of_a_link_and_of_its_target(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.symlink("f", "link")?;
    same!(fs::stat("link")?.st_ino, p.stat("f")?.st_ino)?;
    same!(FileType::from_raw_mode(fs::lstat("link")?.st_mode), FileType::Symlink)?;
    same!((fs::stat("link")?.st_size, fs::lstat("link")?.st_size), (4, 1))
}

fn bad_flags_are_einval(p: &Place) -> Outcome {
    p.file("f", "")?;
    let flags = AtFlags::from_bits_retain(0x4000_0000);
    fails!(fs::statat(CWD, "f", flags), INVAL)?;
    fails!(fs::statx(CWD, "f", flags, StatxFlags::BASIC_STATS), INVAL)?;
    let reserved = StatxFlags::from_bits_retain(0x8000_0000);
    fails!(fs::statx(CWD, "f", AtFlags::empty(), reserved), INVAL)
}

fn by_empty_path(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(open("f", O::RDONLY))?;
    let flags = AtFlags::EMPTY_PATH;
    let more = works!(fs::statx(&file, "", flags, StatxFlags::BASIC_STATS))?;
    same!(more.stx_size, 4)?;
    fails!(fs::statx(&file, "", AtFlags::empty(), StatxFlags::BASIC_STATS), NOENT)?;
    works!(fs::unlink("f"))?;
    same!(works!(fs::statx(&file, "", flags, StatxFlags::NLINK))?.stx_nlink, 0)
}

fn size_while_writing(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    for round in 1..=50 {
        works!(rustix::io::write(&file, &[b'x'; 777]))?;
        same!(p.stat("f")?.st_size, round * 777)?;
    }
    p.elsewhere(|| same!(p.stat("f")?.st_size, 50 * 777))
}

/// What the kernel calls an open file follows its renames.
fn through_proc(p: &Place) -> Outcome {
    use std::os::fd::AsRawFd;
    p.file("f", "text")?;
    let file = works!(open("f", O::RDONLY))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    works!(fs::rename("f", "renamed"))?;
    holds!(crate::call::readlink(&path)?.ends_with(b"/renamed"))?;
    works!(fs::unlink("renamed"))?;
    holds!(crate::call::readlink(&path)?.ends_with(b" (deleted)"))?;
    same!(works!(fs::stat(&path))?.st_size, 4)
}

fn device_numbers(p: &Place) -> Outcome {
    mknod("device", FileType::CharacterDevice, 0o600, fs::makedev(5, 300_000))?;
    let more = works!(fs::statx(CWD, "device", AtFlags::empty(), StatxFlags::BASIC_STATS))?;
    same!((more.stx_rdev_major, more.stx_rdev_minor), (5, 300_000))?;
    same!(p.stat("device")?.st_rdev, fs::makedev(5, 300_000))
}

/// With `AT_STATX_FORCE_SYNC` the kernel's own copy does not count: both must be the same.
fn asked_of_the_file_system_itself(p: &Place) -> Outcome {
    let agrees = || {
        let stat = p.stat("f")?;
        let more = works!(fs::statx(CWD, "f", AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS))?;
        same!(more.stx_size.cast_signed(), stat.st_size)?;
        same!((u32::from(more.stx_mode), more.stx_nlink.into()), (stat.st_mode, stat.st_nlink))?;
        same!((more.stx_mtime.tv_sec, more.stx_ctime.tv_sec), (stat.st_mtime, stat.st_ctime))?;
        same!(u64::from(more.stx_mtime.tv_nsec), stat.st_mtime_nsec)?;
        same!(u64::from(more.stx_ctime.tv_nsec), stat.st_ctime_nsec)
    };
    p.file("f", "text")?;
    agrees()?;
    let file = works!(edit("f"))?;
    works!(pwrite(&file, b"longer", 100))?;
    agrees()?;
    works!(fs::ftruncate(&file, 10))?;
    agrees()?;
    works!(crate::call::chmod("f", 0o604))?;
    agrees()?;
    works!(crate::call::utimens("f", (1, 2), (3, 4)))?;
    agrees()?;
    works!(fs::link("f", "g"))?;
    agrees()?;
    works!(fs::rename("g", "h"))?;
    agrees()?;
    works!(fs::unlink("h"))?;
    agrees()?;
    p.tick();
    works!(pwrite(&file, b"x", 0))?;
    drop(file);
    agrees()
}
