//! chown: who may give what to whom, and the bits it clears.

use rustix::fs::{self, AtFlags, CWD, Gid, OFlags as O, Uid};

use crate::call::{chmod, chown, lchown, open};
use crate::expect::{Outcome, fails, same, works};
use crate::place::{ALICE, BOB, Place, STAFF};
use crate::sys;

cases! { "chown"
    anyone: to_the_same_is_allowed, bad_descriptor_is_ebadf;
    root: sets_both, leaves_out_what_is_minus_one, follows_links_or_not, by_descriptor,
        only_root_gives_away, the_owner_may_choose_among_own_groups, clears_set_id_bits,
        of_a_directory_keeps_set_id_bits, by_root_clears_set_id_bits, large_ids,
        set_group_id_without_execute_stays, of_an_open_unlinked_file;
}

fn ids(p: &Place, name: &str) -> Result<(u32, u32), crate::Failure> {
    let stat = p.stat(name)?;
    Ok((stat.st_uid, stat.st_gid))
}

fn to_the_same_is_allowed(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (uid, gid) = ids(p, "f")?;
    works!(chown("f", uid, gid))?;
    works!(chown("f", None, None))?;
    same!(ids(p, "f")?, (uid, gid))
}

fn bad_descriptor_is_ebadf(p: &Place) -> Outcome {
    p.file("f", "")?;
    fails!(fs::fchown(sys::bad_descriptor(), None, None), BADF)?;
    fails!(fs::chownat(CWD, "f", None, None, AtFlags::REMOVEDIR), INVAL)
}

fn sets_both(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    p.fifo("fifo")?;
    for name in ["f", "d", "fifo"] {
        works!(chown(name, ALICE, BOB))?;
        same!(ids(p, name)?, (ALICE, BOB))?;
    }
    Ok(())
}

fn leaves_out_what_is_minus_one(p: &Place) -> Outcome {
    p.file("f", "")?;
    works!(chown("f", ALICE, None))?;
    same!(ids(p, "f")?, (ALICE, 0))?;
    works!(chown("f", None, BOB))?;
    same!(ids(p, "f")?, (ALICE, BOB))?;
    works!(chown("f", None, None))?;
    same!(ids(p, "f")?, (ALICE, BOB))
}

fn follows_links_or_not(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.symlink("f", "link")?;
    p.symlink("nowhere", "dangling")?;
    works!(chown("link", ALICE, ALICE))?;
    same!((ids(p, "f")?, ids(p, "link")?), ((ALICE, ALICE), (0, 0)))?;
    works!(lchown("link", BOB, STAFF))?;
    same!((ids(p, "f")?, ids(p, "link")?), ((ALICE, ALICE), (BOB, STAFF)))?;
    fails!(chown("dangling", ALICE, ALICE), NOENT)?;
    works!(lchown("dangling", ALICE, ALICE))
}

fn by_descriptor(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    works!(fs::fchown(&file, Some(Uid::from_raw(ALICE)), Some(Gid::from_raw(BOB))))?;
    same!(ids(p, "f")?, (ALICE, BOB))?;
    let none: (Option<Uid>, Option<Gid>) = (Some(Uid::from_raw(BOB)), None);
    works!(fs::chownat(&file, "", none.0, none.1, AtFlags::EMPTY_PATH))?;
    same!(ids(p, "f")?, (BOB, BOB))
}

fn only_root_gives_away(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, ALICE)?;
    p.as_user(ALICE, &[STAFF], || {
        fails!(chown("f", BOB, None), PERM)?;
        fails!(chown("f", 0, None), PERM)?;
        fails!(chown("f", BOB, STAFF), PERM)?;
        works!(chown("f", ALICE, None))
    })?;
    p.as_user(BOB, &[], || {
        fails!(chown("f", BOB, None), PERM)?;
        fails!(chown("f", None, BOB), PERM)?;
        fails!(lchown("f", BOB, BOB), PERM)
    })?;
    same!(ids(p, "f")?, (ALICE, ALICE))
}

fn the_owner_may_choose_among_own_groups(p: &Place) -> Outcome {
    p.file("f", "")?;
    p.dir("d")?;
    chown("f", ALICE, ALICE)?;
    chown("d", ALICE, ALICE)?;
    p.as_user(ALICE, &[STAFF], || {
        works!(chown("f", None, STAFF))?;
        works!(chown("d", ALICE, STAFF))?;
        fails!(chown("f", None, BOB), PERM)?;
        fails!(chown("d", None, 0), PERM)
    })?;
    same!((ids(p, "f")?, ids(p, "d")?), ((ALICE, STAFF), (ALICE, STAFF)))?;
    p.as_user(ALICE, &[STAFF], || works!(chown("f", None, ALICE)))?;
    p.as_user(ALICE, &[], || fails!(chown("f", None, STAFF), PERM))
}

fn clears_set_id_bits(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, ALICE)?;
    for before in [0o6777, 0o6755, 0o6711] {
        chmod("f", before)?;
        p.as_user(ALICE, &[STAFF], || works!(chown("f", None, STAFF)))?;
        same!(p.mode("f")?, before & 0o777)?;
        // Also where nothing changes hands.
        chmod("f", before)?;
        p.as_user(ALICE, &[STAFF], || works!(chown("f", ALICE, STAFF)))?;
        same!(p.mode("f")?, before & 0o777)?;
    }
    Ok(())
}

fn of_a_directory_keeps_set_id_bits(p: &Place) -> Outcome {
    p.dir("d")?;
    chown("d", ALICE, ALICE)?;
    chmod("d", 0o6755)?;
    p.as_user(ALICE, &[STAFF], || works!(chown("d", None, STAFF)))?;
    same!(p.mode("d")?, 0o6755)
}

/// POSIX leaves it open for the superuser; Linux clears them for everybody.
fn by_root_clears_set_id_bits(p: &Place) -> Outcome {
    p.file("f", "")?;
    chmod("f", 0o6755)?;
    works!(chown("f", ALICE, ALICE))?;
    same!(p.mode("f")?, 0o755)
}

fn large_ids(p: &Place) -> Outcome {
    p.file("f", "")?;
    for id in [65_534, 65_535, 65_536, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE] {
        works!(chown("f", id, id))?;
        same!(ids(p, "f")?, (id, id))?;
    }
    Ok(())
}

/// Without the group's execute bit it once stood for mandatory locking.
fn set_group_id_without_execute_stays(p: &Place) -> Outcome {
    p.file("f", "")?;
    chown("f", ALICE, ALICE)?;
    chmod("f", 0o2766)?;
    p.as_user(ALICE, &[], || works!(chown("f", ALICE, ALICE)))?;
    same!(p.mode("f")?, 0o2766)
}

fn of_an_open_unlinked_file(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    fs::unlink("f")?;
    works!(fs::fchown(&file, Some(Uid::from_raw(ALICE)), None))?;
    same!(fs::fstat(&file)?.st_uid, ALICE)
}
