//! flock: locks of a whole file, held by an open file description.

use rustix::fs::{self, FlockOperation as Lock, OFlags as O};

use crate::call::open;
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit};
use crate::process::Process;
use crate::sys;

cases! { "flock"
    anyone: exclusive_excludes, shared_shares, between_processes, released_by_unlock,
        released_on_last_close, released_on_death, a_duplicate_is_the_same_holder,
        a_child_is_the_same_holder, upgraded_and_downgraded, of_a_read_only_file, of_a_directory,
        waits_until_released, waiting_is_interrupted,
        killed_while_waiting, not_of_the_name, wrong_descriptors;
    root: ;
}

fn exclusive_excludes(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (one, two) = (works!(edit("f"))?, works!(edit("f"))?);
    works!(fs::flock(&one, Lock::NonBlockingLockExclusive))?;
    fails!(fs::flock(&two, Lock::NonBlockingLockExclusive), AGAIN)?;
    fails!(fs::flock(&two, Lock::NonBlockingLockShared), AGAIN)?;
    // Once more by the holder is no conflict; and reading and writing goes on.
    works!(fs::flock(&one, Lock::NonBlockingLockExclusive))?;
    works!(rustix::io::write(&two, b"x")).map(drop)
}

fn shared_shares(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (one, two, three) = (works!(edit("f"))?, works!(edit("f"))?, works!(edit("f"))?);
    works!(fs::flock(&one, Lock::NonBlockingLockShared))?;
    works!(fs::flock(&two, Lock::NonBlockingLockShared))?;
    fails!(fs::flock(&three, Lock::NonBlockingLockExclusive), AGAIN)?;
    works!(fs::flock(&one, Lock::Unlock))?;
    fails!(fs::flock(&three, Lock::NonBlockingLockExclusive), AGAIN)?;
    works!(fs::flock(&two, Lock::Unlock))?;
    works!(fs::flock(&three, Lock::NonBlockingLockExclusive))
}

fn between_processes(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(edit("f"))?;
    works!(fs::flock(&file, Lock::LockExclusive))?;
    p.elsewhere(|| {
        let theirs = works!(edit("f"))?;
        fails!(fs::flock(&theirs, Lock::NonBlockingLockExclusive), AGAIN)?;
        fails!(fs::flock(&theirs, Lock::NonBlockingLockShared), AGAIN)
    })?;
    works!(fs::flock(&file, Lock::LockShared))?;
    p.elsewhere(|| works!(fs::flock(&works!(edit("f"))?, Lock::NonBlockingLockShared)))
}

fn released_by_unlock(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (one, two) = (works!(edit("f"))?, works!(edit("f"))?);
    works!(fs::flock(&one, Lock::LockExclusive))?;
    works!(fs::flock(&one, Lock::Unlock))?;
    works!(fs::flock(&two, Lock::NonBlockingLockExclusive))?;
    // Nothing held is nothing to release.
    works!(fs::flock(&one, Lock::Unlock))?;
    fails!(fs::flock(&one, Lock::NonBlockingLockShared), AGAIN)
}

fn released_on_last_close(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (one, two) = (works!(edit("f"))?, works!(edit("f"))?);
    let duplicate = works!(rustix::io::dup(&one))?;
    works!(fs::flock(&one, Lock::LockExclusive))?;
    drop(one);
    fails!(fs::flock(&two, Lock::NonBlockingLockShared), AGAIN)?;
    drop(duplicate);
    works!(fs::flock(&two, Lock::NonBlockingLockExclusive))
}

fn released_on_death(p: &Place) -> Outcome {
    p.file("f", "")?;
    let holder = Process::start(|| {
        let file = works!(edit("f"))?;
        works!(fs::flock(&file, Lock::LockExclusive))?;
        p.file("held", "")?;
        loop {
            std::thread::park();
        }
    })?;
    while fs::lstat("held").is_err() {
        std::thread::yield_now();
    }
    let file = works!(edit("f"))?;
    fails!(fs::flock(&file, Lock::NonBlockingLockExclusive), AGAIN)?;
    holder.kill();
    // Also by a file system that hears of the death a moment later.
    works!(fs::flock(&file, Lock::LockExclusive))
}

fn a_duplicate_is_the_same_holder(p: &Place) -> Outcome {
    p.file("f", "")?;
    let one = works!(edit("f"))?;
    let duplicate = works!(rustix::io::dup(&one))?;
    works!(fs::flock(&one, Lock::LockExclusive))?;
    works!(fs::flock(&duplicate, Lock::NonBlockingLockExclusive))?;
    works!(fs::flock(&duplicate, Lock::Unlock))?;
    works!(fs::flock(&works!(edit("f"))?, Lock::NonBlockingLockExclusive))
}

fn a_child_is_the_same_holder(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(edit("f"))?;
    works!(fs::flock(&file, Lock::LockExclusive))?;
    p.elsewhere(|| works!(fs::flock(&file, Lock::NonBlockingLockExclusive)))?;
    // The child's end has not released it; its unlock would have.
    fails!(fs::flock(&works!(edit("f"))?, Lock::NonBlockingLockShared), AGAIN)?;
    p.elsewhere(|| works!(fs::flock(&file, Lock::Unlock)))?;
    works!(fs::flock(&works!(edit("f"))?, Lock::NonBlockingLockExclusive))
}

fn upgraded_and_downgraded(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (one, two) = (works!(edit("f"))?, works!(edit("f"))?);
    works!(fs::flock(&one, Lock::LockShared))?;
    works!(fs::flock(&one, Lock::NonBlockingLockExclusive))?;
    fails!(fs::flock(&two, Lock::NonBlockingLockShared), AGAIN)?;
    works!(fs::flock(&one, Lock::NonBlockingLockShared))?;
    works!(fs::flock(&two, Lock::NonBlockingLockShared))?;
    fails!(fs::flock(&one, Lock::NonBlockingLockExclusive), AGAIN)
}

fn of_a_read_only_file(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (reader, writer) = (open("f", O::RDONLY)?, open("f", O::WRONLY)?);
    works!(fs::flock(&reader, Lock::NonBlockingLockExclusive))?;
    fails!(fs::flock(&writer, Lock::NonBlockingLockShared), AGAIN)
}

fn of_a_directory(p: &Place) -> Outcome {
    p.dir("d")?;
    let (one, two) = (open("d", O::RDONLY)?, open("d", O::RDONLY)?);
    works!(fs::flock(&one, Lock::NonBlockingLockExclusive))?;
    fails!(fs::flock(&two, Lock::NonBlockingLockShared), AGAIN)
}

/// What the holder wrote before it released is what the one who waited reads.
fn waits_until_released(p: &Place) -> Outcome {
    p.file("f", "not yet")?;
    let file = works!(edit("f"))?;
    works!(fs::flock(&file, Lock::LockExclusive))?;
    let waiter = Process::start(|| {
        let theirs = works!(edit("f"))?;
        p.file("waiting", "")?;
        works!(fs::flock(&theirs, Lock::LockExclusive))?;
        p.holds("f", "written")
    })?;
    while fs::lstat("waiting").is_err() {
        std::thread::yield_now();
    }
    works!(rustix::io::pwrite(&file, b"written", 0))?;
    works!(fs::flock(&file, Lock::Unlock))?;
    waiter.join()
}

fn waiting_is_interrupted(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (one, two) = (works!(edit("f"))?, works!(edit("f"))?);
    works!(fs::flock(&one, Lock::LockExclusive))?;
    works!(sys::interrupt_after(1))?;
    fails!(fs::flock(&two, Lock::LockExclusive), INTR)?;
    works!(fs::flock(&one, Lock::Unlock))?;
    works!(fs::flock(&two, Lock::NonBlockingLockExclusive))
}

/// Who dies waiting gets no lock later.
fn killed_while_waiting(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(edit("f"))?;
    works!(fs::flock(&file, Lock::LockExclusive))?;
    let waiter = Process::start(|| {
        let theirs = works!(edit("f"))?;
        p.file("waiting", "")?;
        works!(fs::flock(&theirs, Lock::LockExclusive))
    })?;
    while fs::lstat("waiting").is_err() {
        std::thread::yield_now();
    }
    waiter.kill();
    works!(fs::flock(&file, Lock::Unlock))?;
    works!(fs::flock(&works!(edit("f"))?, Lock::NonBlockingLockExclusive))
}

fn not_of_the_name(p: &Place) -> Outcome {
    p.file("f", "")?;
    fs::link("f", "g")?;
    let one = works!(edit("f"))?;
    works!(fs::flock(&one, Lock::LockExclusive))?;
    fails!(fs::flock(&works!(edit("g"))?, Lock::NonBlockingLockShared), AGAIN)?;
    works!(fs::unlink("f"))?;
    p.file("f", "")?;
    works!(fs::flock(&works!(edit("f"))?, Lock::NonBlockingLockExclusive))?;
    holds!(fs::flock(&works!(edit("g"))?, Lock::NonBlockingLockShared).is_err())
}

fn wrong_descriptors(p: &Place) -> Outcome {
    p.file("f", "")?;
    fails!(fs::flock(sys::bad_descriptor(), Lock::LockShared), BADF)?;
    fails!(fs::flock(works!(open("f", O::PATH))?, Lock::LockShared), BADF)?;
    same!(fs::lstat("f")?.st_nlink, 1)
}
