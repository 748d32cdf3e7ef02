//! What a file system may offer or not. A case here fails where it is not offered: name it then.

use libc::{FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE};
use libc::{FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
use rustix::fs::{self, CWD, FileType, OFlags as O, RenameFlags, XattrFlags};
use rustix::io::pwrite;

use crate::call::{create, open};
use crate::expect::{Outcome, holds, same, works};
use crate::place::{Place, edit};
use crate::sys::{Map, fallocate, fcntl, lseek};

cases! { "offers"
    anyone: allocation, punching, zeroing, collapsing, inserting, holes, tmpfile, direct, noreplace,
        exchange, user_attributes, birth_time, access_times, counted_directories, leases;
    root: whiteout, access_lists, trusted_attributes, capabilities;
}

fn allocation(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(fallocate(&edit("f")?, 0, 0, 8_192))
}

fn punching(p: &Place) -> Outcome {
    p.file("f", [b'x'; 8_192])?;
    works!(fallocate(&edit("f")?, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4_096))
}

fn zeroing(p: &Place) -> Outcome {
    p.file("f", [b'x'; 8_192])?;
    works!(fallocate(&edit("f")?, FALLOC_FL_ZERO_RANGE, 0, 4_096))
}

fn collapsing(p: &Place) -> Outcome {
    p.file("f", [b'x'; 8_192])?;
    works!(fallocate(&edit("f")?, FALLOC_FL_COLLAPSE_RANGE, 0, 4_096))
}

fn inserting(p: &Place) -> Outcome {
    p.file("f", [b'x'; 8_192])?;
    works!(fallocate(&edit("f")?, FALLOC_FL_INSERT_RANGE, 0, 4_096))
}

fn holes(_: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    works!(pwrite(&file, b"x", 1 << 20))?;
    same!(works!(lseek(&file, 0, libc::SEEK_DATA))?, 1 << 20)
}

fn tmpfile(_: &Place) -> Outcome {
    works!(open(".", O::TMPFILE | O::RDWR)).map(drop)
}

fn direct(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDWR | O::DIRECT))?;
    let map = works!(Map::anonymous(4_096))?;
    same!(works!(map.write_to(&file))?, 4_096)
}

fn noreplace(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(fs::renameat_with(CWD, "f", CWD, "g", RenameFlags::NOREPLACE))
}

fn exchange(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.file("g", "")?;
    works!(fs::renameat_with(CWD, "f", CWD, "g", RenameFlags::EXCHANGE))
}

fn user_attributes(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(fs::setxattr("f", "user.a", b"value", XattrFlags::empty()))
}

fn birth_time(p: &Place) -> Outcome {
    p.file("f", "")?;
    let wanted = fs::StatxFlags::BTIME;
    let stat = works!(fs::statx(CWD, "f", fs::AtFlags::empty(), wanted))?;
    holds!(stat.stx_mask & wanted.bits() != 0)
}

/// Reading a file whose access is older than its change marks the access.
fn access_times(p: &Place) -> Outcome {
    p.file("f", "text")?;
    works!(crate::call::utimens("f", (1_000, 0), (2_000, 0)))?;
    p.content("f")?;
    holds!(p.stat("f")?.st_atime > 2_000)
}

fn counted_directories(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    same!(p.stat("d")?.st_nlink, 3)
}

fn leases(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(fcntl(&open("f", O::RDONLY)?, libc::F_SETLEASE, libc::F_RDLCK)).map(drop)
}

fn whiteout(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(fs::renameat_with(CWD, "f", CWD, "g", RenameFlags::WHITEOUT))?;
    same!(FileType::from_raw_mode(p.stat("f")?.st_mode), FileType::CharacterDevice)
}

/// A POSIX access list as the kernel has it: version 2, then entries of tag, bits and id.
fn access_lists(p: &Place) -> Outcome {
    p.file("f", "")?;
    let list = super::access::list(&[(1, 6, 0), (2, 4, 1_000), (4, 4, 0), (16, 4, 0), (32, 4, 0)]);
    works!(fs::setxattr("f", "system.posix_acl_access", &list, XattrFlags::empty()))
}

fn trusted_attributes(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(fs::setxattr("f", "trusted.a", b"value", XattrFlags::empty()))
}

fn capabilities(p: &Place) -> Outcome {
    p.file("f", "")?;
    let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    works!(fs::setxattr("f", "security.capability", &value, XattrFlags::empty()))
}
