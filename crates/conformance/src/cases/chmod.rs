//! chmod, and the bits that other calls take away.

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags as O};

use crate::call::{chmod, chown, fchmod, mkdir, open};
use crate::expect::{Outcome, fails, same, works};
use crate::place::{ALICE, BOB, Place, STAFF};
use crate::sys;

cases! { "chmod"
    anyone: every_bit, of_every_kind, follows_links, by_descriptor, of_a_read_only_descriptor,
        keeps_times_and_size, bad_descriptor_is_ebadf, counts_from_the_next_open;
    root: only_by_the_owner, a_foreign_group_loses_set_group_id, of_a_directory_keeps_set_group_id,
        sticky_of_a_file, a_write_clears_set_id_bits, a_write_by_root_keeps_set_id_bits,
        opening_for_writing_clears_nothing;
}

fn every_bit(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    for bit in 0..12 {
        let mode = 1_u32 << bit;
        works!(chmod("f", mode))?;
        same!(p.mode("f")?, mode)?;
        works!(chmod("d", mode))?;
        same!(p.mode("d")?, mode)?;
    }
    works!(chmod("f", 0o7777))?;
    same!(p.mode("f")?, 0o7777)?;
    works!(chmod("d", 0o755))
}

fn of_every_kind(p: &Place) -> Outcome {
    p.fifo("fifo")?;
    crate::call::mknod("socket", fs::FileType::Socket, 0o644, 0)?;
    for name in ["fifo", "socket"] {
        let before = p.stat(name)?.st_mode;
        works!(chmod(name, 0o123))?;
        same!(p.stat(name)?.st_mode, before & !0o7777 | 0o123)?;
    }
    Ok(())
}

fn follows_links(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("f", "link")?;
    works!(chmod("link", 0o640))?;
    same!((p.mode("f")?, p.mode("link")?), (0o640, 0o777))
}

fn by_descriptor(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    works!(fchmod(open("f", O::WRONLY)?, 0o600))?;
    works!(fchmod(open("d", O::RDONLY)?, 0o700))?;
    same!((p.mode("f")?, p.mode("d")?), (0o600, 0o700))
}

fn of_a_read_only_descriptor(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    works!(fchmod(&file, 0o000))?;
    same!(fs::fstat(&file)?.st_mode & 0o7777, 0)
}

fn keeps_times_and_size(p: &Place) -> Outcome {
    p.file("f", "text")?;
    crate::call::utimens("f", (11, 1), (12, 2))?;
    works!(chmod("f", 0o600))?;
    let stat = p.stat("f")?;
    same!((stat.st_atime, stat.st_mtime, stat.st_size), (11, 12, 4))
}

fn bad_descriptor_is_ebadf(p: &Place) -> Outcome {
    fails!(fchmod(sys::bad_descriptor(), 0o600), BADF)?;
    let flags = AtFlags::from_bits_retain(0x4000_0000);
    p.file("f", "")?;
    fails!(fs::chmodat(CWD, "f", Mode::from_raw_mode(0o600), flags), INVAL | OPNOTSUPP)
}

fn counts_from_the_next_open(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::WRONLY))?;
    works!(chmod("f", 0o000))?;
    works!(rustix::io::write(&file, b"text"))?;
    works!(chmod("f", 0o644))?;
    p.holds("f", "text")
}

fn only_by_the_owner(p: &Place) -> Outcome {
    p.file("f", "")?;
    chmod("f", 0o666)?;
    p.as_user(ALICE, &[0], || {
        fails!(chmod("f", 0o600), PERM)?;
        fails!(fchmod(open("f", O::RDWR)?, 0o600), PERM)
    })?;
    chown("f", ALICE, STAFF)?;
    p.as_user(ALICE, &[], || works!(chmod("f", 0o640)))?;
    p.as_user(BOB, &[STAFF], || fails!(chmod("f", 0o666), PERM))?;
    same!(p.mode("f")?, 0o640)?;
    works!(chmod("f", 0o600))
}

/// Who is not in a file's group cannot make the file act for that group.
fn a_foreign_group_loses_set_group_id(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, STAFF)?;
    p.as_user(ALICE, &[], || works!(chmod("f", 0o6755)))?;
    same!(p.mode("f")?, 0o4755)?;
    p.as_user(ALICE, &[STAFF], || works!(chmod("f", 0o6755)))?;
    same!(p.mode("f")?, 0o6755)
}

fn of_a_directory_keeps_set_group_id(p: &Place) -> Outcome {
    works!(mkdir("d", 0o755))?;
    chown("d", ALICE, ALICE)?;
    p.as_user(ALICE, &[], || {
        works!(chmod("d", 0o2755))?;
        same!(p.mode("d")?, 0o2755)?;
        works!(chmod("d", 0o755))
    })?;
    same!(p.mode("d")?, 0o755)
}

fn sticky_of_a_file(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, ALICE)?;
    p.as_user(ALICE, &[], || works!(chmod("f", 0o1644)))?;
    same!(p.mode("f")?, 0o1644)
}

/// Set-group-id without the group's execute bit is no set-id, and stays.
fn a_write_clears_set_id_bits(p: &Place) -> Outcome {
    p.file("f", "text")?;
    for (before, after) in [(0o4777, 0o777), (0o2777, 0o777), (0o6777, 0o777), (0o4666, 0o666)] {
        chmod("f", before)?;
        p.as_user(ALICE, &[], || works!(rustix::io::write(open("f", O::WRONLY)?, b"T")).map(drop))?;
        same!((before, p.mode("f")?), (before, after))?;
        chmod("f", before)?;
        p.as_user(ALICE, &[], || {
            works!(rustix::io::pwrite(open("f", O::WRONLY)?, b"x", 9_999)).map(drop)
        })?;
        same!((before, p.mode("f")?), (before, after))?;
    }
    Ok(())
}

fn a_write_by_root_keeps_set_id_bits(p: &Place) -> Outcome {
    p.file("f", "text")?;
    chmod("f", 0o6777)?;
    works!(rustix::io::write(open("f", O::WRONLY)?, b"T"))?;
    same!(p.mode("f")?, 0o6777)
}

/// Only writing does.
fn opening_for_writing_clears_nothing(p: &Place) -> Outcome {
    p.file("f", "text")?;
    chmod("f", 0o6777)?;
    p.as_user(ALICE, &[], || works!(open("f", O::RDWR)).map(drop))?;
    same!(p.mode("f")?, 0o6777)
}
