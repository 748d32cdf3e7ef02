//! Record locks of fcntl: of a process, and of an open file description.

use std::os::fd::OwnedFd;

use libc::{F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETLK, F_SETLKW};
use libc::{F_UNLCK, F_WRLCK};
use rustix::fs::{self, OFlags as O};

use crate::call::open;
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit};
use crate::process::Process;
use crate::sys::{self, lock};

cases! { "record_locks"
    anyone: ranges_exclude, readers_share, own_locks_do_not_conflict, asked_who_holds,
        a_range_is_split, to_the_end_and_beyond, upgraded, released_on_any_close,
        released_on_death, not_inherited, waits_until_released, waiting_is_interrupted,
        deadlock_is_edeadlk, need_the_matching_mode, wrongly, ofd_exclude_each_other,
        ofd_are_kept_on_other_closes, ofd_and_process_locks_conflict, ofd_are_inherited,
        ofd_wait, flock_is_another_kind;
    root: ;
}

fn write_lock(file: &OwnedFd, start: i64, length: i64) -> Result<(), rustix::io::Errno> {
    lock(file, F_SETLK, F_WRLCK, start, length).map(drop)
}

fn read_lock(file: &OwnedFd, start: i64, length: i64) -> Result<(), rustix::io::Errno> {
    lock(file, F_SETLK, F_RDLCK, start, length).map(drop)
}

fn unlock(file: &OwnedFd, start: i64, length: i64) -> Result<(), rustix::io::Errno> {
    lock(file, F_SETLK, F_UNLCK, start, length).map(drop)
}

/// Another process tries.
fn free_elsewhere(p: &Place, start: i64, length: i64) -> Outcome {
    p.elsewhere(|| works!(write_lock(&works!(edit("f"))?, start, length)))
}

fn taken_elsewhere(p: &Place, start: i64, length: i64) -> Outcome {
    p.elsewhere(|| fails!(write_lock(&works!(edit("f"))?, start, length), AGAIN | ACCESS))
}

fn file(p: &Place) -> Result<OwnedFd, crate::Failure> {
    p.file("f", [b'x'; 1_000])?;
    works!(edit("f"))
}

fn ranges_exclude(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 100, 100))?;
    taken_elsewhere(p, 100, 100)?;
    taken_elsewhere(p, 199, 1)?;
    taken_elsewhere(p, 0, 101)?;
    taken_elsewhere(p, 0, 0)?;
    free_elsewhere(p, 0, 100)?;
    free_elsewhere(p, 200, 0)?;
    works!(unlock(&file, 100, 100))?;
    free_elsewhere(p, 0, 0)
}

fn readers_share(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(read_lock(&file, 0, 100))?;
    p.elsewhere(|| {
        let theirs = works!(edit("f"))?;
        works!(read_lock(&theirs, 50, 100))?;
        fails!(write_lock(&theirs, 50, 10), AGAIN | ACCESS)?;
        works!(write_lock(&theirs, 100, 10))
    })
}

fn own_locks_do_not_conflict(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 0, 100))?;
    let other = works!(edit("f"))?;
    works!(write_lock(&other, 50, 100))?;
    works!(read_lock(&other, 0, 0))
}

fn asked_who_holds(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 100, 50))?;
    works!(read_lock(&file, 300, 50))?;
    let me = rustix::process::getpid().as_raw_nonzero().get();
    p.elsewhere(|| {
        let theirs = works!(edit("f"))?;
        let found = works!(lock(&theirs, F_GETLK, F_RDLCK, 0, 0))?;
        same!(i32::from(found.l_type), F_WRLCK)?;
        same!((found.l_start, found.l_len, found.l_pid), (100, 50, me))?;
        let found = works!(lock(&theirs, F_GETLK, F_WRLCK, 200, 0))?;
        same!((i32::from(found.l_type), found.l_start), (F_RDLCK, 300))?;
        let found = works!(lock(&theirs, F_GETLK, F_RDLCK, 200, 0))?;
        same!(i32::from(found.l_type), F_UNLCK)
    })?;
    let found = works!(lock(&file, F_GETLK, F_WRLCK, 0, 0))?;
    same!(i32::from(found.l_type), F_UNLCK)
}

fn a_range_is_split(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 0, 300))?;
    works!(unlock(&file, 100, 100))?;
    taken_elsewhere(p, 99, 1)?;
    free_elsewhere(p, 100, 100)?;
    taken_elsewhere(p, 200, 1)?;
    works!(read_lock(&file, 0, 50))?;
    p.elsewhere(|| works!(read_lock(&works!(edit("f"))?, 0, 50)))?;
    taken_elsewhere(p, 50, 1)
}

fn to_the_end_and_beyond(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 500, 0))?;
    taken_elsewhere(p, 1_000_000, 1)?;
    free_elsewhere(p, 0, 500)?;
    works!(unlock(&file, 0, 0))?;
    // Backwards from where it starts.
    works!(write_lock(&file, 500, -100))?;
    taken_elsewhere(p, 400, 1)?;
    free_elsewhere(p, 500, 1)?;
    free_elsewhere(p, 0, 400)
}

fn upgraded(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(read_lock(&file, 0, 0))?;
    works!(write_lock(&file, 0, 0))?;
    p.elsewhere(|| fails!(read_lock(&works!(edit("f"))?, 0, 1), AGAIN | ACCESS))?;
    works!(read_lock(&file, 0, 0))?;
    p.elsewhere(|| works!(read_lock(&works!(edit("f"))?, 0, 1)))
}

/// The trap of these locks: closing any descriptor of the file releases them all.
fn released_on_any_close(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 0, 100))?;
    taken_elsewhere(p, 0, 100)?;
    drop(works!(open("f", O::RDONLY))?);
    free_elsewhere(p, 0, 100)
}

fn released_on_death(p: &Place) -> Outcome {
    let file = file(p)?;
    let holder = Process::start(|| {
        let held = works!(edit("f"))?;
        works!(write_lock(&held, 0, 0))?;
        p.file("held", "")?;
        loop {
            std::thread::park();
        }
    })?;
    while fs::lstat("held").is_err() {
        std::thread::yield_now();
    }
    fails!(write_lock(&file, 0, 1), AGAIN | ACCESS)?;
    holder.kill();
    works!(lock(&file, F_SETLKW, F_WRLCK, 0, 0)).map(drop)
}

fn not_inherited(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 0, 100))?;
    p.elsewhere(|| fails!(write_lock(&file, 0, 100), AGAIN | ACCESS))?;
    // And the child's end has released nothing of ours.
    taken_elsewhere(p, 0, 100)
}

fn waits_until_released(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 0, 100))?;
    let waiter = Process::start(|| {
        let theirs = works!(edit("f"))?;
        p.file("waiting", "")?;
        works!(lock(&theirs, F_SETLKW, F_WRLCK, 50, 10))?;
        same!(crate::call::pread(&theirs, 0, 7)?, b"written".to_vec())
    })?;
    while fs::lstat("waiting").is_err() {
        std::thread::yield_now();
    }
    works!(rustix::io::pwrite(&file, b"written", 0))?;
    works!(unlock(&file, 0, 100))?;
    waiter.join()
}

fn waiting_is_interrupted(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 0, 100))?;
    p.elsewhere(|| {
        let theirs = works!(edit("f"))?;
        works!(sys::interrupt_after(1))?;
        fails!(lock(&theirs, F_SETLKW, F_WRLCK, 0, 1), INTR)
    })?;
    works!(unlock(&file, 0, 0))?;
    free_elsewhere(p, 0, 0)
}

/// Two that wait for each other: the second is told so at once.
fn deadlock_is_edeadlk(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(write_lock(&file, 0, 1))?;
    let other = Process::start(|| {
        let theirs = works!(edit("f"))?;
        works!(write_lock(&theirs, 1, 1))?;
        p.file("holding", "")?;
        works!(lock(&theirs, F_SETLKW, F_WRLCK, 0, 1)).map(drop)
    })?;
    while fs::lstat("holding").is_err() {
        std::thread::yield_now();
    }
    // Whether the other waits already is not to be seen; whoever comes second is told.
    match lock(&file, F_SETLKW, F_WRLCK, 1, 1) {
        Ok(_) => {
            let told = other.join();
            holds!(told.is_err_and(|failure| failure.0.contains("EDEADLK")))
        }
        refused => {
            fails!(refused, DEADLK)?;
            works!(unlock(&file, 0, 1))?;
            other.join()
        }
    }
}

fn need_the_matching_mode(p: &Place) -> Outcome {
    drop(file(p)?);
    let (reader, writer) = (open("f", O::RDONLY)?, open("f", O::WRONLY)?);
    fails!(write_lock(&reader, 0, 1), BADF)?;
    fails!(read_lock(&writer, 0, 1), BADF)?;
    works!(read_lock(&reader, 0, 1))?;
    works!(write_lock(&writer, 0, 1))
}

fn wrongly(p: &Place) -> Outcome {
    let file = file(p)?;
    fails!(write_lock(&file, -1, 1), INVAL)?;
    fails!(write_lock(&file, 5, -10), INVAL)?;
    fails!(lock(&file, F_SETLK, 99, 0, 1), INVAL)?;
    fails!(lock(&file, F_GETLK, F_UNLCK, 0, 1), INVAL)?;
    fails!(lock(&works!(open("f", O::PATH))?, F_SETLK, F_RDLCK, 0, 1), BADF)
}

fn ofd(file: &OwnedFd, kind: libc::c_int, start: i64) -> Result<(), rustix::io::Errno> {
    lock(file, F_OFD_SETLK, kind, start, 10).map(drop)
}

fn ofd_exclude_each_other(p: &Place) -> Outcome {
    let (one, two) = (file(p)?, works!(edit("f"))?);
    works!(ofd(&one, F_WRLCK, 0))?;
    fails!(ofd(&two, F_WRLCK, 5), AGAIN)?;
    fails!(ofd(&two, F_RDLCK, 5), AGAIN)?;
    works!(ofd(&two, F_WRLCK, 10))?;
    let found = works!(lock(&two, F_OFD_GETLK, F_WRLCK, 0, 1))?;
    same!((i32::from(found.l_type), found.l_start, found.l_pid), (F_WRLCK, 0, -1))?;
    works!(ofd(&one, F_UNLCK, 0))?;
    works!(ofd(&two, F_WRLCK, 0))
}

fn ofd_are_kept_on_other_closes(p: &Place) -> Outcome {
    let (one, two) = (file(p)?, works!(edit("f"))?);
    works!(ofd(&one, F_WRLCK, 0))?;
    drop(works!(edit("f"))?);
    let duplicate = works!(rustix::io::dup(&one))?;
    drop(one);
    fails!(ofd(&two, F_RDLCK, 0), AGAIN)?;
    drop(duplicate);
    works!(ofd(&two, F_RDLCK, 0))
}

fn ofd_and_process_locks_conflict(p: &Place) -> Outcome {
    let (one, two) = (file(p)?, works!(edit("f"))?);
    works!(ofd(&one, F_WRLCK, 0))?;
    fails!(write_lock(&two, 0, 1), AGAIN | ACCESS)?;
    works!(ofd(&one, F_UNLCK, 0))?;
    works!(write_lock(&two, 0, 1))?;
    fails!(ofd(&one, F_RDLCK, 0), AGAIN)
}

fn ofd_are_inherited(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(ofd(&file, F_WRLCK, 0))?;
    p.elsewhere(|| {
        works!(ofd(&file, F_WRLCK, 0))?;
        fails!(ofd(&works!(edit("f"))?, F_WRLCK, 0), AGAIN)
    })
}

fn ofd_wait(p: &Place) -> Outcome {
    let file = file(p)?;
    works!(ofd(&file, F_WRLCK, 0))?;
    let waiter = Process::start(|| {
        let theirs = works!(edit("f"))?;
        p.file("waiting", "")?;
        works!(lock(&theirs, F_OFD_SETLKW, F_RDLCK, 0, 10))?;
        same!(crate::call::pread(&theirs, 0, 7)?, b"written".to_vec())
    })?;
    while fs::lstat("waiting").is_err() {
        std::thread::yield_now();
    }
    works!(rustix::io::pwrite(&file, b"written", 0))?;
    works!(ofd(&file, F_UNLCK, 0))?;
    waiter.join()
}

fn flock_is_another_kind(p: &Place) -> Outcome {
    let (one, two) = (file(p)?, works!(edit("f"))?);
    works!(ofd(&one, F_WRLCK, 0))?;
    works!(fs::flock(&two, fs::FlockOperation::NonBlockingLockExclusive))?;
    fails!(fs::flock(sys::bad_descriptor(), fs::FlockOperation::Unlock), BADF)
}
