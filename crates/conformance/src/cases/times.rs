//! utimensat: times that are set.

use rustix::fs::{self, AtFlags, CWD, OFlags as O, UTIME_NOW, UTIME_OMIT};

use crate::call::{Moment, chmod, chown, lutimens, moments, open, utimens};
use crate::expect::{Failure, Outcome, fails, holds, same, works};
use crate::place::{ALICE, BOB, Place};
use crate::sys;

cases! { "times"
    anyone: to_the_nanosecond, now, omitted, before_1970, after_2038, by_descriptor,
        of_every_kind, through_links_or_not, bad_nanoseconds_are_einval, kept_over_changes,
        changes_ctime_only_besides, bad_descriptor_is_ebadf, of_an_unlinked_file;
    root: needs_the_owner_for_other_times, needs_write_permission_for_now;
}

const NOW: Moment = (0, UTIME_NOW);
const OMIT: Moment = (0, UTIME_OMIT);

fn times(p: &Place, name: &str) -> Result<[(i64, i64); 2], Failure> {
    let stat = p.stat(name)?;
    let nanoseconds = |value| i64::try_from(value).unwrap_or(-1);
    Ok([
        (stat.st_atime, nanoseconds(stat.st_atime_nsec)),
        (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
    ])
}

fn to_the_nanosecond(p: &Place) -> Outcome {
    p.file("f", "")?;
    for wanted in [[(1, 999_999_999), (2, 1)], [(1_000_000_000, 123_456_789), (0, 0)]] {
        works!(utimens("f", wanted[0], wanted[1]))?;
        same!(times(p, "f")?, wanted)?;
    }
    Ok(())
}

fn now(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(utimens("f", (1, 0), (1, 0)))?;
    let before = p.stat("f")?.st_ctime;
    works!(utimens("f", NOW, NOW))?;
    let [access, change] = times(p, "f")?;
    same!(access, change)?;
    holds!(change.0 >= before)?;
    works!(utimens("f", (1, 0), NOW))?;
    same!(times(p, "f")?[0], (1, 0))?;
    holds!(times(p, "f")?[1].0 >= before)
}

fn omitted(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(utimens("f", (10, 1), (20, 2)))?;
    works!(utimens("f", OMIT, (30, 3)))?;
    same!(times(p, "f")?, [(10, 1), (30, 3)])?;
    works!(utimens("f", (40, 4), OMIT))?;
    same!(times(p, "f")?, [(40, 4), (30, 3)])?;
    let before = p.stat("f")?;
    p.tick();
    works!(utimens("f", OMIT, OMIT))?;
    same!(times(p, "f")?, [(40, 4), (30, 3)])?;
    same!(p.stat("f")?.st_ctime_nsec, before.st_ctime_nsec)?;
    // Not even the file is looked at then, so others may.
    works!(utimens("f", OMIT, OMIT))
}

fn before_1970(p: &Place) -> Outcome {
    p.file("f", "")?;
    for wanted in [(-1, 0), (-1, 999_999_999), (-86_400, 1), (-2_000_000_000, 5)] {
        works!(utimens("f", wanted, wanted))?;
        same!(times(p, "f")?, [wanted, wanted])?;
    }
    Ok(())
}

/// The year 2446 is where ext4 ends, 2106 where unsigned 32 bits do.
fn after_2038(p: &Place) -> Outcome {
    p.file("f", "")?;
    for wanted in [(1 << 31, 0), (1 << 32, 1), (5_000_000_000, 2), (15_000_000_000, 3)] {
        works!(utimens("f", wanted, wanted))?;
        same!(times(p, "f")?, [wanted, wanted])?;
    }
    Ok(())
}

fn by_descriptor(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    for name in ["f", "d"] {
        let file = works!(open(name, O::RDONLY))?;
        works!(fs::futimens(&file, &moments((1, 2), (3, 4))))?;
        same!(times(p, name)?, [(1, 2), (3, 4)])?;
        let stat = works!(fs::fstat(&file))?;
        same!((stat.st_atime, stat.st_mtime), (1, 3))?;
    }
    Ok(())
}

fn of_every_kind(p: &Place) -> Outcome {
    p.fifo("fifo")?;
    p.dir("dir")?;
    p.symlink("nowhere", "link")?;
    for name in ["fifo", "dir", "link"] {
        works!(lutimens(name, (1, 2), (3, 4)))?;
        same!(times(p, name)?[1], (3, 4))?;
    }
    Ok(())
}

fn through_links_or_not(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("f", "link")?;
    works!(utimens("link", (1, 0), (2, 0)))?;
    works!(lutimens("link", (3, 0), (4, 0)))?;
    same!((times(p, "f")?[1], times(p, "link")?[1]), ((2, 0), (4, 0)))?;
    p.symlink("nowhere", "dangling")?;
    fails!(utimens("dangling", (1, 0), (2, 0)), NOENT)
}

fn bad_nanoseconds_are_einval(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(utimens("f", (1, 0), (1, 0)))?;
    for bad in [-1, 1_000_000_000, i64::MAX] {
        fails!(utimens("f", (5, bad), (5, 0)), INVAL)?;
        fails!(utimens("f", (5, 0), (5, bad)), INVAL)?;
    }
    let flags = AtFlags::from_bits_retain(0x4000_0000);
    fails!(fs::utimensat(CWD, "f", &moments((5, 0), (5, 0)), flags), INVAL)?;
    same!(times(p, "f")?, [(1, 0), (1, 0)])
}

/// Times that were set stay over a rename, a link, a chmod, and closing.
fn kept_over_changes(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDWR))?;
    works!(rustix::io::write(&file, b"written before"))?;
    works!(fs::futimens(&file, &moments((10, 1), (20, 2))))?;
    drop(file);
    same!(times(p, "f")?[1], (20, 2))?;
    works!(chmod("f", 0o600))?;
    works!(fs::rename("f", "g"))?;
    works!(fs::link("g", "h"))?;
    works!(fs::fsync(open("g", O::RDONLY)?))?;
    same!(times(p, "h")?, [(10, 1), (20, 2)])
}

fn changes_ctime_only_besides(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let before = p.stat("f")?;
    p.tick();
    works!(utimens("f", (1, 0), (1, 0)))?;
    let after = p.stat("f")?;
    holds!((after.st_ctime, after.st_ctime_nsec) > (before.st_ctime, before.st_ctime_nsec))?;
    same!((after.st_size, after.st_mode), (before.st_size, before.st_mode))
}

fn bad_descriptor_is_ebadf(_: &Place) -> Outcome {
    fails!(fs::futimens(sys::bad_descriptor(), &moments((1, 0), (1, 0))), BADF)
}

fn of_an_unlinked_file(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    works!(fs::unlink("f"))?;
    works!(fs::futimens(&file, &moments((1, 0), (2, 3))))?;
    same!(works!(fs::fstat(&file))?.st_mtime_nsec, 3)
}

fn needs_the_owner_for_other_times(p: &Place) -> Outcome {
    p.file("f", "")?;
    chmod("f", 0o666)?;
    chown("f", BOB, BOB)?;
    works!(utimens("f", (1, 0), (1, 0)))?;
    p.as_user(ALICE, &[], || {
        fails!(utimens("f", (5, 0), (5, 0)), PERM)?;
        fails!(utimens("f", NOW, OMIT), PERM)?;
        fails!(utimens("f", (5, 0), NOW), PERM)?;
        works!(utimens("f", OMIT, OMIT))
    })?;
    same!(times(p, "f")?, [(1, 0), (1, 0)])?;
    p.as_user(BOB, &[], || works!(utimens("f", (5, 0), (5, 0))))
}

fn needs_write_permission_for_now(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(utimens("f", (1, 0), (1, 0)))?;
    p.as_user(ALICE, &[], || fails!(utimens("f", NOW, NOW), ACCESS))?;
    same!(times(p, "f")?, [(1, 0), (1, 0)])?;
    chmod("f", 0o646)?;
    p.as_user(ALICE, &[], || works!(utimens("f", NOW, NOW)))?;
    // The owner needs none.
    chown("f", BOB, BOB)?;
    chmod("f", 0o000)?;
    p.as_user(BOB, &[], || works!(utimens("f", NOW, NOW)))?;
    holds!(times(p, "f")?[1].0 > 1)
}
