//! truncate and ftruncate.

use rustix::fs::{self, OFlags as O};

use crate::call::{chmod, chown, open, pread};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{ALICE, Place, edit};
use crate::sys;

cases! { "truncate"
    anyone: shrinks, grows_with_zeros, shrunk_bytes_do_not_come_back, across_page_boundaries,
        same_size, through_a_symbolic_link, of_what_is_no_file, with_a_bad_length,
        needs_a_writable_descriptor, very_large, beyond_the_limit_is_efbig, offset_stays,
        seen_by_every_descriptor;
    root: needs_write_permission, clears_set_id_bits, descriptor_keeps_its_right;
}

fn shrinks(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    works!(sys::truncate(c"f", 4))?;
    p.holds("f", "some")?;
    works!(fs::ftruncate(edit("f")?, 1))?;
    p.holds("f", "s")?;
    works!(sys::truncate(c"f", 0))?;
    p.holds("f", "")
}

fn grows_with_zeros(p: &Place) -> Outcome {
    p.file("f", "text")?;
    works!(sys::truncate(c"f", 10))?;
    p.holds("f", b"text\0\0\0\0\0\0")?;
    let file = works!(edit("f"))?;
    works!(fs::ftruncate(&file, 100_000))?;
    same!(p.stat("f")?.st_size, 100_000)?;
    holds!(pread(&file, 4, 99_996)?.iter().all(|&byte| byte == 0))
}

fn shrunk_bytes_do_not_come_back(p: &Place) -> Outcome {
    for (small, large) in [(1, 10), (100, 4_096), (4_095, 4_097), (5_000, 20_000)] {
        p.file("f", vec![b'x'; 20_000])?;
        let file = works!(edit("f"))?;
        works!(fs::ftruncate(&file, small))?;
        works!(fs::ftruncate(&file, large))?;
        let length = usize::try_from(large - small).unwrap_or_default();
        same!(pread(&file, small, 30_000)?, vec![0; length])?;
        // A write behind the end leaves zeros between, too.
        works!(fs::ftruncate(&file, small))?;
        works!(rustix::io::pwrite(&file, b"y", large))?;
        same!(pread(&file, small, length)?, vec![0; length])?;
        fs::unlink("f")?;
    }
    Ok(())
}

fn across_page_boundaries(p: &Place) -> Outcome {
    let content: Vec<u8> = (0..20_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    for length in [0, 1, 4_095, 4_096, 4_097, 8_191, 8_192, 12_345, 20_000] {
        p.file("f", &content)?;
        works!(sys::truncate(c"f", i64::try_from(length).unwrap_or_default()))?;
        p.holds("f", &content[..length])?;
        fs::unlink("f")?;
    }
    Ok(())
}

fn same_size(p: &Place) -> Outcome {
    p.file("f", "text")?;
    works!(sys::truncate(c"f", 4))?;
    works!(fs::ftruncate(edit("f")?, 4))?;
    p.holds("f", "text")
}

fn through_a_symbolic_link(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.symlink("f", "link")?;
    works!(sys::truncate(c"link", 2))?;
    p.holds("f", "te")
}

fn of_what_is_no_file(p: &Place) -> Outcome {
    p.dir("d")?;
    p.fifo("fifo")?;
    fails!(sys::truncate(c"d", 0), ISDIR)?;
    fails!(sys::truncate(c"fifo", 0), INVAL)?;
    let dir = works!(open("d", O::RDONLY))?;
    fails!(fs::ftruncate(&dir, 0), INVAL)?;
    let fifo = works!(open("fifo", O::RDWR))?;
    fails!(fs::ftruncate(&fifo, 0), INVAL)
}

fn with_a_bad_length(p: &Place) -> Outcome {
    p.file("f", "text")?;
    fails!(sys::truncate(c"f", -1), INVAL)?;
    fails!(sys::truncate(c"f", i64::MIN), INVAL)?;
    fails!(sys::ftruncate(&edit("f")?, -1), INVAL)?;
    p.holds("f", "text")
}

fn needs_a_writable_descriptor(p: &Place) -> Outcome {
    p.file("f", "text")?;
    fails!(fs::ftruncate(open("f", O::RDONLY)?, 0), INVAL | BADF)?;
    fails!(fs::ftruncate(sys::bad_descriptor(), 0), BADF)?;
    works!(fs::ftruncate(open("f", O::WRONLY)?, 2))?;
    works!(fs::ftruncate(open("f", O::WRONLY | O::APPEND)?, 1))?;
    p.holds("f", "t")
}

/// A terabyte of nothing, and the end of it can be read.
fn very_large(p: &Place) -> Outcome {
    const TERABYTE: u64 = 1 << 40;
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    works!(fs::ftruncate(&file, TERABYTE))?;
    same!(u64::try_from(p.stat("f")?.st_size).ok(), Some(TERABYTE))?;
    same!(pread(&file, TERABYTE - 2, 10)?, vec![0, 0])?;
    works!(rustix::io::pwrite(&file, b"end", TERABYTE - 3))?;
    same!(pread(&file, TERABYTE - 4, 10)?, b"\0end".to_vec())?;
    works!(fs::ftruncate(&file, 4))?;
    p.holds("f", "text")
}

/// The process's own limit, and the largest length that there is.
fn beyond_the_limit_is_efbig(p: &Place) -> Outcome {
    use rustix::process::{Resource, Rlimit, setrlimit};
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    if let Err(errno) = sys::ftruncate(&file, i64::MAX) {
        fails!(Err::<(), _>(errno), FBIG | INVAL)?;
    }
    works!(fs::ftruncate(&file, 4))?;
    sys::ignore_signal(libc::SIGXFSZ);
    setrlimit(Resource::Fsize, Rlimit { current: Some(1_000), maximum: None })?;
    works!(fs::ftruncate(&file, 1_000))?;
    fails!(fs::ftruncate(&file, 1_001), FBIG)?;
    fails!(sys::truncate(c"f", 1_001), FBIG)?;
    fails!(rustix::io::pwrite(&file, b"x", 1_000), FBIG)?;
    same!(works!(rustix::io::pwrite(&file, b"four", 998))?, 2)?;
    same!(p.stat("f")?.st_size, 1_000)
}

fn offset_stays(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let file = works!(edit("f"))?;
    same!(crate::call::read(&file, 5)?, b"some ".to_vec())?;
    works!(fs::ftruncate(&file, 0))?;
    same!(fs::tell(&file)?, 5)?;
    same!(crate::call::read(&file, 5)?, Vec::new())?;
    works!(rustix::io::write(&file, b"x"))?;
    p.holds("f", b"\0\0\0\0\0x")
}

fn seen_by_every_descriptor(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let other = works!(open("f", O::RDONLY))?;
    same!(pread(&other, 0, 100)?.len(), 9)?;
    p.elsewhere(|| works!(sys::truncate(c"f", 4)))?;
    same!(pread(&other, 0, 100)?, b"some".to_vec())?;
    same!(fs::fstat(&other)?.st_size, 4)?;
    same!(fs::seek(&other, fs::SeekFrom::End(0))?, 4)
}

fn needs_write_permission(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.as_user(ALICE, &[], || fails!(sys::truncate(c"f", 0), ACCESS))?;
    chmod("f", 0o646)?;
    p.as_user(ALICE, &[], || works!(sys::truncate(c"f", 2)))?;
    p.holds("f", "te")
}

/// Both bits tell of a content that is no longer there.
fn clears_set_id_bits(p: &Place) -> Outcome {
    p.file("f", "text")?;
    chown("f", ALICE, ALICE)?;
    chmod("f", 0o6777)?;
    p.as_user(ALICE, &[], || works!(sys::truncate(c"f", 2)))?;
    same!(p.mode("f")?, 0o777)?;
    chmod("f", 0o6777)?;
    p.as_user(ALICE, &[], || works!(open("f", O::WRONLY | O::TRUNC)).map(drop))?;
    same!(p.mode("f")?, 0o777)
}

fn descriptor_keeps_its_right(p: &Place) -> Outcome {
    p.file("f", "text")?;
    chown("f", ALICE, ALICE)?;
    p.as_user(ALICE, &[], || {
        let file = works!(edit("f"))?;
        chmod("f", 0o000)?;
        works!(fs::ftruncate(&file, 2))
    })?;
    same!(p.stat("f")?.st_size, 2)
}
