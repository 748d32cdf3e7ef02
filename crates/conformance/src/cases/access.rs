//! access and faccessat, and access lists.

use rustix::fs::{self, Access, AtFlags, CWD, Gid, OFlags as O, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::call::{chmod, chown, create, mkdir, open};
use crate::expect::{Outcome, fails, same, works};
use crate::place::{ALICE, BOB, Place, STAFF};
use crate::sys;

cases! { "access"
    anyone: of_what_is_there, bad_modes_are_einval, by_descriptor;
    root: each_class_and_bit, effective_and_real_ids, root_may_all_but_execute,
        a_directory_without_read_or_search, lists_grant_and_refuse, lists_are_inherited,
        lists_follow_chmod;
}

/// An access list as the kernel takes it: version 2, then tag, bits and id of each entry.
pub(super) fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for &(tag, bits, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        // Entries for the owner and the others name nobody.
        bytes.extend(if tag == USER { id } else { u32::MAX }.to_le_bytes());
    }
    bytes
}

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";

fn of_what_is_there(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("nowhere", "link")?;
    works!(fs::access("f", Access::EXISTS))?;
    works!(fs::access("f", Access::READ_OK))?;
    works!(fs::access(".", Access::READ_OK | Access::EXEC_OK))?;
    fails!(fs::access("missing", Access::EXISTS), NOENT)?;
    fails!(fs::access("link", Access::EXISTS), NOENT)
}

fn bad_modes_are_einval(p: &Place) -> Outcome {
    p.file("f", "")?;
    fails!(fs::access("f", Access::from_bits_retain(0x40)), INVAL)?;
    let flags = AtFlags::from_bits_retain(0x4000_0000);
    fails!(fs::accessat(CWD, "f", Access::EXISTS, flags), INVAL)
}

fn by_descriptor(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "")?;
    let dir = works!(open("d", O::PATH))?;
    works!(fs::accessat(&dir, "f", Access::READ_OK, AtFlags::empty()))?;
    fails!(fs::accessat(&dir, "missing", Access::EXISTS, AtFlags::empty()), NOENT)?;
    fails!(fs::accessat(sys::bad_descriptor(), "f", Access::EXISTS, AtFlags::empty()), BADF)
}

fn each_class_and_bit(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, STAFF)?;
    let tries = [(4, Access::READ_OK), (2, Access::WRITE_OK), (1, Access::EXEC_OK)];
    for (user, groups, shift) in [(ALICE, &[][..], 6), (BOB, &[STAFF], 3), (BOB, &[], 0)] {
        for bits in 0..8_u32 {
            chmod("f", bits << shift)?;
            p.as_user(user, groups, || {
                for (bit, access) in tries {
                    let call = fs::access("f", access);
                    if bits & bit != 0 { works!(call) } else { fails!(call, ACCESS) }?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// access asks for the real user, so that a set-user-id program may ask for its caller.
fn effective_and_real_ids(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, ALICE)?;
    chmod("f", 0o600)?;
    let (alice, bob) = (Uid::from_raw(ALICE), Uid::from_raw(BOB));
    let group = Gid::from_raw(BOB);
    set_thread_res_gid(group, group, Gid::ROOT)?;
    set_thread_res_uid(bob, alice, Uid::ROOT)?;
    fails!(fs::access("f", Access::READ_OK), ACCESS)?;
    works!(fs::accessat(CWD, "f", Access::READ_OK, AtFlags::EACCESS))?;
    works!(open("f", O::RDWR))?;
    set_thread_res_uid(alice, bob, Uid::ROOT)?;
    works!(fs::access("f", Access::READ_OK))?;
    fails!(fs::accessat(CWD, "f", Access::READ_OK, AtFlags::EACCESS), ACCESS)?;
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
    Ok(())
}

fn root_may_all_but_execute(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, ALICE)?;
    chmod("f", 0o000)?;
    works!(fs::access("f", Access::READ_OK | Access::WRITE_OK))?;
    fails!(fs::access("f", Access::EXEC_OK), ACCESS)?;
    chmod("f", 0o001)?;
    works!(fs::access("f", Access::EXEC_OK))?;
    works!(open("f", O::RDWR)).map(drop)
}

fn a_directory_without_read_or_search(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/f", "text")?;
    chmod("d", 0o711)?;
    p.as_user(ALICE, &[], || {
        fails!(open("d", O::RDONLY), ACCESS)?;
        p.holds("d/f", "text")?;
        fails!(create("d/g", 0o644), ACCESS)
    })?;
    chmod("d", 0o744)?;
    p.as_user(ALICE, &[], || {
        same!(p.names("d")?, vec!["f".to_owned()])?;
        fails!(fs::lstat("d/f"), ACCESS)?;
        fails!(rustix::process::chdir("d"), ACCESS)
    })?;
    chmod("d", 0o733)?;
    p.as_user(ALICE, &[], || {
        works!(create("d/g", 0o644))?;
        works!(fs::unlink("d/f"))?;
        fails!(open("d", O::RDONLY), ACCESS)
    })
}

/// Whether the file system has access lists; `offers::access_lists` tells.
fn set_list(path: &str, kind: &str, entries: &[(u16, u16, u32)]) -> Result<bool, crate::Failure> {
    match fs::setxattr(path, kind, &list(entries), XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => Ok(false),
        other => works!(other).map(|()| true),
    }
}

fn lists_grant_and_refuse(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let entries = [(OWNER, 6, 0), (USER, 6, ALICE), (GROUP, 0, 0), (MASK, 6, 0), (OTHER, 0, 0)];
    if !set_list("f", ACCESS_LIST, &entries)? {
        return Ok(());
    }
    p.as_user(ALICE, &[], || works!(open("f", O::RDWR)).map(drop))?;
    p.as_user(BOB, &[], || fails!(open("f", O::RDONLY), ACCESS))?;
    // The mask stands where the group's bits are shown, and cuts.
    same!(p.mode("f")?, 0o660)?;
    chmod("f", 0o640)?;
    p.as_user(ALICE, &[], || {
        works!(open("f", O::RDONLY))?;
        fails!(open("f", O::RDWR), ACCESS)
    })
}

fn lists_are_inherited(p: &Place) -> Outcome {
    p.dir("d")?;
    chmod("d", 0o755)?;
    let entries = [(OWNER, 7, 0), (USER, 6, ALICE), (GROUP, 5, 0), (MASK, 7, 0), (OTHER, 0, 0)];
    if !set_list("d", DEFAULT_LIST, &entries)? {
        return Ok(());
    }
    // Instead of the umask.
    works!(create("d/f", 0o666))?;
    same!(p.mode("d/f")?, 0o660)?;
    p.as_user(ALICE, &[], || works!(open("d/f", O::RDWR)).map(drop))?;
    works!(mkdir("d/e", 0o777))?;
    works!(create("d/e/f", 0o666))?;
    p.as_user(BOB, &[], || fails!(open("d/f", O::RDONLY), ACCESS))
}

fn lists_follow_chmod(p: &Place) -> Outcome {
    p.file("f", "")?;
    let entries = [(OWNER, 6, 0), (GROUP, 4, 0), (OTHER, 4, 0)];
    if !set_list("f", ACCESS_LIST, &entries)? {
        return Ok(());
    }
    same!(p.mode("f")?, 0o644)?;
    chmod("f", 0o600)?;
    p.as_user(BOB, &[], || fails!(open("f", O::RDONLY), ACCESS))?;
    set_list("f", ACCESS_LIST, &[(OWNER, 6, 0), (GROUP, 6, 0), (OTHER, 6, 0)])?;
    same!(p.mode("f")?, 0o666)
}
