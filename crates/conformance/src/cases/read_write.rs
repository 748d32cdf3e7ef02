//! read and write in all their forms, and the offset.

use std::io::{IoSlice, IoSliceMut};

use rustix::fs::{self, OFlags as O, SeekFrom};
use rustix::io::{pwrite, pwritev, readv, write, writev};

use crate::call::{create, open, pread, read};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit, write_all};
use crate::sys;

cases! { "read_write"
    anyone: what_was_written, at_the_end_is_nothing, moves_the_offset, positioned_does_not,
        duplicates_share_the_offset, opens_do_not, a_child_shares_the_offset, over_the_middle,
        behind_the_end_leaves_zeros, vectors, vectors_positioned, empty, unaligned_pieces,
        a_large_file, by_other_descriptors_at_once, by_other_processes_at_once,
        wrong_descriptors_are_ebadf, of_a_directory_is_eisdir, bad_memory_is_efault,
        negative_offset_is_einval, largest_offset_is_refused, seek, seek_wrongly, many_rounds,
        of_fifos_is_espipe_when_positioned, every_size_around_a_page, synced, advice,
        after_the_cache_forgot;
    root: ;
}

/// Bytes that are never the same twice in a row, and tell where they are.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(31) ^ (at >> 8) ^ seed).to_le_bytes()[0];
    (0..length).map(byte).collect()
}

fn what_was_written(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    same!(works!(write(&file, b"some text"))?, 9)?;
    same!(pread(&file, 0, 100)?, b"some text".to_vec())?;
    same!(pread(&file, 5, 2)?, b"te".to_vec())?;
    p.holds("f", "some text")?;
    p.elsewhere(|| p.holds("f", "some text"))
}

fn at_the_end_is_nothing(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    same!(pread(&file, 4, 10)?, Vec::new())?;
    same!(pread(&file, 1 << 40, 10)?, Vec::new())?;
    same!(pread(&file, 3, 10)?, b"t".to_vec())?;
    p.file("empty", "")?;
    same!(read(open("empty", O::RDONLY)?, 10)?, Vec::new())
}

fn moves_the_offset(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let file = works!(edit("f"))?;
    same!(read(&file, 3)?, b"012".to_vec())?;
    works!(write(&file, b"xx"))?;
    same!(read(&file, 2)?, b"56".to_vec())?;
    same!(fs::tell(&file)?, 7)?;
    same!(read(&file, 100)?, b"789".to_vec())?;
    same!(read(&file, 100)?, Vec::new())?;
    p.holds("f", "012xx56789")
}

fn positioned_does_not(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let file = works!(edit("f"))?;
    same!(read(&file, 2)?, b"01".to_vec())?;
    works!(pwrite(&file, b"xx", 8))?;
    same!(pread(&file, 4, 2)?, b"45".to_vec())?;
    same!(fs::tell(&file)?, 2)
}

fn duplicates_share_the_offset(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let file = works!(edit("f"))?;
    let other = works!(rustix::io::dup(&file))?;
    same!(read(&file, 3)?, b"012".to_vec())?;
    same!(read(&other, 3)?, b"345".to_vec())?;
    works!(fs::seek(&other, SeekFrom::Start(1)))?;
    same!(read(&file, 1)?, b"1".to_vec())
}

fn opens_do_not(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let (one, two) = (works!(edit("f"))?, works!(edit("f"))?);
    same!(read(&one, 3)?, b"012".to_vec())?;
    same!(read(&two, 3)?, b"012".to_vec())
}

fn a_child_shares_the_offset(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let file = works!(edit("f"))?;
    p.elsewhere(|| same!(read(&file, 4)?, b"0123".to_vec()))?;
    same!(read(&file, 1)?, b"4".to_vec())
}

fn over_the_middle(p: &Place) -> Outcome {
    let mut content = pattern(50_000, 1);
    p.file("f", &content)?;
    let file = works!(edit("f"))?;
    for (offset, length) in [(0, 1), (4_095, 2), (10_000, 20_000), (49_999, 1), (12_288, 4_096)] {
        let bytes = pattern(length, 7);
        works!(pwrite(&file, &bytes, offset as u64))?;
        content[offset..offset + length].copy_from_slice(&bytes);
        p.holds("f", &content)?;
    }
    Ok(())
}

fn behind_the_end_leaves_zeros(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    works!(pwrite(&file, b"end", 10_000))?;
    same!(p.stat("f")?.st_size, 10_003)?;
    holds!(pread(&file, 4, 9_996)?.iter().all(|&byte| byte == 0))?;
    same!(pread(&file, 9_999, 10)?, b"\0end".to_vec())?;
    works!(fs::seek(&file, SeekFrom::Start(20_000)))?;
    same!(p.stat("f")?.st_size, 10_003)?;
    works!(write(&file, b"x"))?;
    same!(p.stat("f")?.st_size, 20_001)
}

fn vectors(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    let pieces = [b"one ".as_slice(), b"", b"two ", b"three"].map(IoSlice::new);
    same!(works!(writev(&file, &pieces))?, 13)?;
    p.holds("f", "one two three")?;
    works!(fs::seek(&file, SeekFrom::Start(0)))?;
    let (mut head, mut rest) = ([0; 4], [0; 20]);
    let mut into = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut rest)];
    same!(works!(readv(&file, &mut into))?, 13)?;
    same!((&head[..], &rest[..9]), (&b"one "[..], &b"two three"[..]))
}

fn vectors_positioned(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let file = works!(edit("f"))?;
    works!(pwritev(&file, &[IoSlice::new(b"a"), IoSlice::new(b"b")], 3))?;
    let mut got = [0; 4];
    let mut into = [IoSliceMut::new(&mut got)];
    same!(works!(rustix::io::preadv(&file, &mut into, 2))?, 4)?;
    same!(&got, b"2ab5")?;
    same!(fs::tell(&file)?, 0)
}

fn empty(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    same!(works!(write(&file, b""))?, 0)?;
    same!(works!(pwrite(&file, b"", 100))?, 0)?;
    same!(read(&file, 0)?, Vec::new())?;
    p.holds("f", "text")
}

fn unaligned_pieces(p: &Place) -> Outcome {
    let content = pattern(100_003, 3);
    let file = works!(create("f", 0o644))?;
    for piece in content.chunks(997) {
        works!(write_all(&file, piece))?;
    }
    p.holds("f", &content)?;
    let mut got = Vec::new();
    let reader = works!(open("f", O::RDONLY))?;
    loop {
        let piece = read(&reader, 1_013)?;
        if piece.is_empty() {
            break;
        }
        got.extend(piece);
    }
    same!(got, content)
}

fn a_large_file(p: &Place) -> Outcome {
    const PIECE: usize = 1 << 20;
    let file = works!(create("f", 0o644))?;
    for number in 0..24 {
        works!(write_all(&file, &pattern(PIECE, number)))?;
    }
    same!(p.stat("f")?.st_size, 24 << 20)?;
    for number in (0..24).rev() {
        let got = pread(&file, (number * PIECE) as u64, PIECE)?;
        holds!(got == pattern(PIECE, number))?;
    }
    Ok(())
}

fn by_other_descriptors_at_once(_: &Place) -> Outcome {
    let writer = works!(create("f", 0o644))?;
    let reader = works!(open("f", O::RDONLY))?;
    for round in 0..100_u8 {
        works!(write_all(&writer, &[round; 100]))?;
        same!(read(&reader, 1_000)?, vec![round; 100])?;
        same!(fs::fstat(&reader)?.st_size, i64::from(round + 1) * 100)?;
    }
    Ok(())
}

fn by_other_processes_at_once(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    for round in 0..20_u8 {
        works!(pwrite(&file, &[round; 5_000], 0))?;
        p.elsewhere(|| {
            p.holds("f", [round; 5_000])?;
            works!(pwrite(edit("f")?, &[round + 100; 10], 4_990)).map(drop)
        })?;
        same!(pread(&file, 4_989, 100)?, [&[round][..], &[round + 100; 10]].concat())?;
    }
    Ok(())
}

fn wrong_descriptors_are_ebadf(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let (reader, writer) = (open("f", O::RDONLY)?, open("f", O::WRONLY)?);
    fails!(write(&reader, b"x"), BADF)?;
    fails!(pwrite(&reader, b"x", 0), BADF)?;
    fails!(read(&writer, 1), BADF)?;
    fails!(pread(&writer, 0, 1), BADF)?;
    fails!(write(sys::bad_descriptor(), b"x"), BADF)?;
    fails!(read(sys::bad_descriptor(), 1), BADF)?;
    fails!(fs::fsync(sys::bad_descriptor()), BADF)?;
    fails!(fs::fstat(sys::bad_descriptor()), BADF)?;
    fails!(fs::tell(sys::bad_descriptor()), BADF)
}

fn of_a_directory_is_eisdir(p: &Place) -> Outcome {
    p.dir("d")?;
    let dir = works!(open("d", O::RDONLY))?;
    fails!(read(&dir, 1), ISDIR)?;
    fails!(pread(&dir, 0, 1), ISDIR)?;
    fails!(write(&dir, b"x"), BADF)
}

fn bad_memory_is_efault(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    fails!(sys::read_to_nowhere(&file, 4), FAULT)?;
    fails!(sys::write_from_nowhere(&file, 4), FAULT)?;
    p.holds("f", "text")
}

fn negative_offset_is_einval(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    fails!(sys::pread_at(&file, -1), INVAL)?;
    fails!(pwrite(&file, b"x", u64::MAX), INVAL)
}

fn largest_offset_is_refused(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    let last = i64::MAX.cast_unsigned();
    fails!(pwrite(&file, b"xx", last), FBIG | INVAL | OVERFLOW)?;
    same!(pread(&file, last - 1, 1)?, Vec::new())?;
    p.holds("f", "text")
}

fn seek(p: &Place) -> Outcome {
    p.file("f", "0123456789")?;
    let file = works!(edit("f"))?;
    same!(works!(fs::seek(&file, SeekFrom::End(-3)))?, 7)?;
    same!(read(&file, 1)?, b"7".to_vec())?;
    same!(works!(fs::seek(&file, SeekFrom::Current(-4)))?, 4)?;
    same!(read(&file, 1)?, b"4".to_vec())?;
    same!(works!(fs::seek(&file, SeekFrom::End(100)))?, 110)?;
    same!(read(&file, 1)?, Vec::new())?;
    same!(works!(fs::seek(&file, SeekFrom::Start(0)))?, 0)?;
    // The end is where other descriptors have moved it.
    works!(pwrite(edit("f")?, b"x", 19))?;
    same!(works!(fs::seek(&file, SeekFrom::End(0)))?, 20)
}

fn seek_wrongly(p: &Place) -> Outcome {
    p.file("f", "text")?;
    p.fifo("fifo")?;
    let file = works!(edit("f"))?;
    fails!(sys::lseek(&file, -1, libc::SEEK_SET), INVAL)?;
    fails!(sys::lseek(&file, -5, libc::SEEK_END), INVAL)?;
    fails!(sys::lseek(&file, -1, libc::SEEK_CUR), INVAL)?;
    fails!(sys::lseek(&file, 0, 99), INVAL)?;
    same!(fs::tell(&file)?, 0)?;
    fails!(sys::lseek(&works!(edit("fifo"))?, 0, libc::SEEK_SET), SPIPE)
}

fn many_rounds(p: &Place) -> Outcome {
    // Overlapping pieces, the later ones shorter: what counts is the last write of each byte.
    let mut model = vec![0; 70_000];
    let file = works!(create("f", 0o644))?;
    works!(fs::ftruncate(&file, 70_000))?;
    let mut at = 12_345_usize;
    for round in 0..200 {
        at = (at * 7_919 + 104_729) % 60_000;
        let bytes = pattern(1 + at % 9_000, round);
        works!(pwrite(&file, &bytes, at as u64))?;
        model[at..at + bytes.len()].copy_from_slice(&bytes);
        if round % 20 == 0 {
            holds!(p.content("f")? == model)?;
        }
    }
    holds!(p.content("f")? == model)
}

fn of_fifos_is_espipe_when_positioned(p: &Place) -> Outcome {
    p.fifo("fifo")?;
    let fifo = works!(edit("fifo"))?;
    fails!(pwrite(&fifo, b"x", 0), SPIPE)?;
    fails!(pread(&fifo, 0, 1), SPIPE)
}

fn every_size_around_a_page(p: &Place) -> Outcome {
    for size in [1, 511, 512, 513, 4_095, 4_096, 4_097, 8_191, 8_192, 8_193, 65_535, 131_073] {
        let content = pattern(size, size);
        p.file("f", &content)?;
        same!(usize::try_from(p.stat("f")?.st_size).ok(), Some(size))?;
        holds!(p.content("f")? == content)?;
        fs::unlink("f")?;
    }
    Ok(())
}

/// `O_SYNC`, `O_DSYNC`, fsync and fdatasync: they succeed, and the bytes are there.
fn synced(p: &Place) -> Outcome {
    p.file("f", "")?;
    for (flags, letter) in [(O::SYNC, b'a'), (O::DSYNC, b'b'), (O::empty(), b'c')] {
        let file = works!(open("f", O::RDWR | flags))?;
        works!(pwrite(&file, &[letter; 10_000], 0))?;
        works!(fs::fsync(&file))?;
        works!(fs::fdatasync(&file))?;
        p.holds("f", [letter; 10_000])?;
    }
    works!(fs::fsync(open("f", O::RDONLY)?))
}

fn advice(p: &Place) -> Outcome {
    p.file("f", vec![b'x'; 100_000])?;
    let file = works!(edit("f"))?;
    for advice in [fs::Advice::Sequential, fs::Advice::WillNeed, fs::Advice::DontNeed] {
        works!(fs::fadvise(&file, 0, None, advice))?;
        same!(pread(&file, 50_000, 3)?, b"xxx".to_vec())?;
    }
    Ok(())
}

/// What was synced is not only in the kernel's cache.
fn after_the_cache_forgot(p: &Place) -> Outcome {
    let mut model = pattern(200_000, 5);
    p.file("f", &model)?;
    let file = works!(edit("f"))?;
    for round in 0..10 {
        let (at, length) = (round * 17_001, 1 + round * 3_333);
        let bytes = pattern(length, round);
        works!(pwrite(&file, &bytes, at as u64))?;
        model.resize(model.len().max(at + length), 0);
        model[at..at + length].copy_from_slice(&bytes);
        works!(fs::fsync(&file))?;
        works!(fs::fadvise(&file, 0, None, fs::Advice::DontNeed))?;
        holds!(p.content("f")? == model)?;
    }
    Ok(())
}
