//! Copying inside the kernel: copy_file_range, sendfile, splice, and reflinks.

use rustix::fs::{self, OFlags as O};
use rustix::io::{Errno, pwrite, read as read_into};
use rustix::pipe::{SpliceFlags, pipe, splice};

use crate::call::{create, open, pread};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit};

cases! { "copy"
    anyone: a_whole_file, a_range, within_one_file, overlapping_is_einval, past_the_end,
        moves_offsets_or_not, wrong_descriptors, of_what_is_no_file, to_and_from_elsewhere,
        what_was_just_written, sendfile_out, sendfile_in, splice_through_a_pipe, clone_or_refused;
    root: ;
}

/// Copies in as many calls as it takes.
fn copy(
    from: &std::os::fd::OwnedFd,
    to: &std::os::fd::OwnedFd,
    length: usize,
) -> Result<(), Errno> {
    let (mut source, mut target) = (0, 0);
    while target < length as u64 {
        let rest = length - usize::try_from(target).unwrap_or(length);
        if fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), rest)? == 0 {
            break;
        }
    }
    Ok(())
}

fn content() -> Vec<u8> {
    (0..300_000_u32).map(|at| (at ^ (at >> 9)).to_le_bytes()[0]).collect()
}

fn a_whole_file(p: &Place) -> Outcome {
    p.file("f", content())?;
    let (from, to) = (works!(open("f", O::RDONLY))?, works!(create("g", 0o644))?);
    works!(copy(&from, &to, 300_000))?;
    holds!(p.content("g")? == content())?;
    holds!(p.content("f")? == content())
}

fn a_range(p: &Place) -> Outcome {
    p.file("f", content())?;
    p.file("g", vec![b'-'; 50_000])?;
    let (from, to) = (works!(edit("f"))?, works!(edit("g"))?);
    let (mut source, mut target) = (12_345, 10_001);
    let range =
        works!(fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), 20_000))?;
    same!(range, 20_000)?;
    same!((source, target), (32_345, 30_001))?;
    let mut wanted = vec![b'-'; 50_000];
    wanted[10_001..30_001].copy_from_slice(&content()[12_345..32_345]);
    holds!(p.content("g")? == wanted)
}

fn within_one_file(p: &Place) -> Outcome {
    p.file("f", content())?;
    let file = works!(edit("f"))?;
    let copied =
        works!(fs::copy_file_range(&file, Some(&mut 0), &file, Some(&mut 200_000), 50_000))?;
    same!(copied, 50_000)?;
    let mut wanted = content();
    wanted.copy_within(0..50_000, 200_000);
    holds!(p.content("f")? == wanted)
}

fn overlapping_is_einval(p: &Place) -> Outcome {
    p.file("f", [b'x'; 10_000])?;
    let (file, other) = (works!(edit("f"))?, works!(edit("f"))?);
    fails!(fs::copy_file_range(&file, Some(&mut 0), &file, Some(&mut 1), 100), INVAL)?;
    fails!(fs::copy_file_range(&file, Some(&mut 50), &other, Some(&mut 0), 100), INVAL)?;
    works!(fs::copy_file_range(&file, Some(&mut 0), &file, Some(&mut 100), 100)).map(drop)
}

fn past_the_end(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let (from, to) = (works!(edit("f"))?, works!(create("g", 0o644))?);
    same!(works!(fs::copy_file_range(&from, Some(&mut 4), &to, None, 10))?, 0)?;
    same!(works!(fs::copy_file_range(&from, Some(&mut (1 << 30)), &to, None, 10))?, 0)?;
    same!(works!(fs::copy_file_range(&from, Some(&mut 2), &to, Some(&mut 10), 100))?, 2)?;
    same!(works!(fs::copy_file_range(&from, Some(&mut 0), &to, None, 0))?, 0)?;
    p.holds("g", b"\0\0\0\0\0\0\0\0\0\0xt")
}

fn moves_offsets_or_not(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let (from, to) = (works!(edit("f"))?, works!(create("g", 0o644))?);
    works!(fs::copy_file_range(&from, None, &to, None, 4))?;
    works!(fs::copy_file_range(&from, None, &to, None, 4))?;
    same!((fs::tell(&from)?, fs::tell(&to)?), (8, 8))?;
    works!(fs::copy_file_range(&from, Some(&mut 0), &to, Some(&mut 8), 2))?;
    same!((fs::tell(&from)?, fs::tell(&to)?), (8, 8))?;
    p.holds("g", "0123456701")
}

fn wrong_descriptors(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.file("g", "")?;
    let (reader, writer) = (open("f", O::RDONLY)?, open("g", O::WRONLY)?);
    fails!(fs::copy_file_range(&writer, None, &writer, None, 1), BADF)?;
    fails!(fs::copy_file_range(&reader, None, &reader, None, 1), BADF)?;
    let appending = works!(open("g", O::WRONLY | O::APPEND))?;
    fails!(fs::copy_file_range(&reader, None, &appending, None, 1), BADF)
}

fn of_what_is_no_file(p: &Place) -> Outcome {
    p.dir("d")?;
    p.fifo("fifo")?;
    p.file("f", "")?;
    let (dir, fifo, file) = (open("d", O::RDONLY)?, edit("fifo")?, edit("f")?);
    fails!(fs::copy_file_range(&dir, None, &file, None, 1), ISDIR)?;
    fails!(fs::copy_file_range(&fifo, None, &file, None, 1), INVAL)?;
    fails!(fs::copy_file_range(&file, None, &fifo, None, 1), INVAL)
}

/// Between file systems the kernel may refuse, and programs copy by hand then.
fn to_and_from_elsewhere(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let memory = works!(fs::memfd_create("other", fs::MemfdFlags::CLOEXEC))?;
    match fs::copy_file_range(edit("f")?, None, &memory, None, 4) {
        Err(Errno::XDEV) => Ok(()),
        copied => {
            same!(works!(copied)?, 4)?;
            same!(pread(&memory, 0, 10)?, b"text".to_vec())
        }
    }
}

fn what_was_just_written(p: &Place) -> Outcome {
    p.file("f", [b'a'; 100_000])?;
    let (from, to) = (works!(edit("f"))?, works!(create("g", 0o644))?);
    for letter in b'b'..b'h' {
        works!(pwrite(&from, &[letter; 70_000], 10_000))?;
        works!(copy(&from, &to, 100_000))?;
        same!(pread(&to, 9_999, 2)?, vec![b'a', letter])?;
        works!(pwrite(&to, b"!", 50_000))?;
        same!(pread(&to, 49_999, 3)?, vec![letter, b'!', letter])?;
    }
    Ok(())
}

fn sendfile_out(p: &Place) -> Outcome {
    p.file("f", content())?;
    let file = works!(open("f", O::RDONLY))?;
    let (reader, writer) = pipe()?;
    let mut offset = 1_000;
    let sent = works!(fs::sendfile(&writer, &file, Some(&mut offset), 5_000))?;
    holds!(sent > 0 && offset == 1_000 + sent as u64)?;
    let mut got = vec![0; sent];
    works!(read_into(&reader, &mut got[..]))?;
    holds!(got[..] == content()[1_000..1_000 + sent])
}

fn sendfile_in(p: &Place) -> Outcome {
    p.file("f", content())?;
    let (from, to) = (works!(open("f", O::RDONLY))?, works!(create("g", 0o644))?);
    while works!(fs::sendfile(&to, &from, None, 1 << 20))? > 0 {}
    holds!(p.content("g")? == content())
}

fn splice_through_a_pipe(p: &Place) -> Outcome {
    p.file("f", content())?;
    let (from, to) = (works!(open("f", O::RDONLY))?, works!(create("g", 0o644))?);
    let (reader, writer) = pipe()?;
    loop {
        let flags = SpliceFlags::empty();
        let length = works!(splice(&from, None, &writer, None, 30_000, flags))?;
        if length == 0 {
            break;
        }
        let mut rest = length;
        while rest > 0 {
            rest -= works!(splice(&reader, None, &to, None, rest, flags))?;
        }
    }
    holds!(p.content("g")? == content())?;
    // A change afterwards is seen by what reads afterwards.
    works!(pwrite(edit("f")?, b"changed", 0))?;
    same!(&p.content("g")?[..7], &content()[..7])
}

/// Sharing extents is for file systems that can; the others say so.
fn clone_or_refused(p: &Place) -> Outcome {
    p.file("f", content())?;
    let (from, to) = (works!(open("f", O::RDONLY))?, works!(create("g", 0o644))?);
    match fs::ioctl_ficlone(&to, &from) {
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV | Errno::NOSYS) => p.holds("g", ""),
        cloned => {
            works!(cloned)?;
            works!(pwrite(&to, b"!", 0))?;
            same!(p.content("f")?[0], content()[0])
        }
    }
}
