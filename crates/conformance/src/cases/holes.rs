//! Holes: SEEK_HOLE, SEEK_DATA and fallocate.
//!
//! Which modes of fallocate there are is the file system's to say, by EOPNOTSUPP; `offers` tells.
//! Where a mode is offered, its promise holds. A file system need not know of holes at all: then
//! everything up to the end is data.

use std::os::fd::OwnedFd;

use libc::{FALLOC_FL_COLLAPSE_RANGE as COLLAPSE, FALLOC_FL_INSERT_RANGE as INSERT};
use libc::{FALLOC_FL_KEEP_SIZE as KEEP_SIZE, FALLOC_FL_PUNCH_HOLE as PUNCH};
use libc::{FALLOC_FL_ZERO_RANGE as ZERO, SEEK_DATA, SEEK_HOLE};
use rustix::fs::{self, OFlags as O};
use rustix::io::{Errno, pwrite};

use crate::call::{create, open, pread};
use crate::expect::{Failure, Outcome, fails, holds, same, works};
use crate::place::{Place, edit};
use crate::sys::{self, fallocate, lseek};

cases! { "holes"
    anyone: the_end_is_a_hole, an_empty_file_has_no_data, behind_the_end_is_enxio,
        data_is_found_behind_a_hole, data_is_never_called_a_hole, seeking_moves_the_offset,
        allocating_grows, allocating_keeps_content, allocating_keeps_the_size_when_told,
        punching_reads_as_zeros, punching_across_the_end, zeroing, zeroing_grows, collapsing,
        inserting, allocating_wrongly, allocating_what_is_no_file, a_sparse_file_is_small;
    root: ;
}

/// Whether this mode is offered; any other refusal is a failure.
#[track_caller]
fn offered(call: Result<(), Errno>) -> Result<bool, Failure> {
    match call {
        Err(Errno::OPNOTSUPP) => Ok(false),
        other => works!(other).map(|()| true),
    }
}

fn filled(p: &Place, length: usize) -> Result<OwnedFd, Failure> {
    p.file("f", vec![b'x'; length])?;
    works!(edit("f"))
}

fn the_end_is_a_hole(p: &Place) -> Outcome {
    let file = filled(p, 10_000)?;
    same!(works!(lseek(&file, 0, SEEK_DATA))?, 0)?;
    same!(works!(lseek(&file, 0, SEEK_HOLE))?, 10_000)?;
    same!(works!(lseek(&file, 9_999, SEEK_HOLE))?, 10_000)?;
    same!(works!(lseek(&file, 9_999, SEEK_DATA))?, 9_999)
}

fn an_empty_file_has_no_data(_: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    fails!(lseek(&file, 0, SEEK_DATA), NXIO)?;
    fails!(lseek(&file, 0, SEEK_HOLE), NXIO)
}

fn behind_the_end_is_enxio(p: &Place) -> Outcome {
    let file = filled(p, 100)?;
    for offset in [100, 101, 1 << 40] {
        fails!(lseek(&file, offset, SEEK_DATA), NXIO)?;
        fails!(lseek(&file, offset, SEEK_HOLE), NXIO)?;
    }
    fails!(lseek(&file, -1, SEEK_DATA), NXIO | INVAL)?;
    same!(fs::tell(&file)?, 0)
}

/// A hole of a mebibyte, or a file system without holes.
fn data_is_found_behind_a_hole(_: &Place) -> Outcome {
    const MIB: i64 = 1 << 20;
    let file = works!(create("f", 0o644))?;
    works!(pwrite(&file, b"data", 1 << 20))?;
    let data = works!(lseek(&file, 0, SEEK_DATA))?;
    holds!(data == MIB || data == 0)?;
    let hole = works!(lseek(&file, 0, SEEK_HOLE))?;
    holds!(hole == if data == 0 { MIB + 4 } else { 0 })?;
    same!(works!(lseek(&file, MIB, SEEK_DATA))?, MIB)?;
    same!(works!(lseek(&file, MIB, SEEK_HOLE))?, MIB + 4)?;
    // What ends in a hole has no data after its last.
    works!(fs::ftruncate(&file, 4 << 20))?;
    match lseek(&file, 2 * MIB, SEEK_DATA) {
        Ok(at) => same!(at, 2 * MIB),
        other => fails!(other, NXIO),
    }
}

fn data_is_never_called_a_hole(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    let offsets = [0, 5_000, 70_000, 100_000, 333_333, 1 << 20];
    for offset in offsets {
        works!(pwrite(&file, b"data", offset))?;
    }
    for offset in offsets {
        let at = offset.cast_signed();
        same!(works!(lseek(&file, at, SEEK_DATA))?, at)?;
        holds!(works!(lseek(&file, at, SEEK_HOLE))? >= at + 4)?;
    }
    // Walking from data to hole and on visits every byte that is not zero.
    let size = p.stat("f")?.st_size;
    let (mut at, mut seen) = (0, Vec::new());
    while let Ok(data) = lseek(&file, at, SEEK_DATA) {
        let hole = works!(lseek(&file, data, SEEK_HOLE))?;
        holds!(data < hole && hole <= size)?;
        let length = usize::try_from(hole - data).unwrap_or_default();
        let bytes = pread(&file, data.cast_unsigned(), length)?;
        seen.extend(bytes.into_iter().filter(|&byte| byte != 0));
        at = hole;
    }
    same!(seen, b"data".repeat(offsets.len()))
}

fn seeking_moves_the_offset(p: &Place) -> Outcome {
    let file = filled(p, 100)?;
    works!(lseek(&file, 10, SEEK_DATA))?;
    same!(fs::tell(&file)?, 10)?;
    works!(lseek(&file, 10, SEEK_HOLE))?;
    same!(fs::tell(&file)?, 100)
}

fn allocating_grows(p: &Place) -> Outcome {
    let file = filled(p, 100)?;
    if !offered(fallocate(&file, 0, 0, 10_000))? {
        return Ok(());
    }
    same!(p.stat("f")?.st_size, 10_000)?;
    same!(pread(&file, 99, 3)?, b"x\0\0".to_vec())?;
    works!(fallocate(&file, 0, 20_000, 1))?;
    same!(p.stat("f")?.st_size, 20_001)
}

fn allocating_keeps_content(p: &Place) -> Outcome {
    let file = filled(p, 10_000)?;
    if !offered(fallocate(&file, 0, 0, 5_000))? {
        return Ok(());
    }
    p.holds("f", [b'x'; 10_000])
}

fn allocating_keeps_the_size_when_told(p: &Place) -> Outcome {
    let file = filled(p, 100)?;
    if !offered(fallocate(&file, KEEP_SIZE, 0, 100_000))? {
        return Ok(());
    }
    same!(p.stat("f")?.st_size, 100)?;
    works!(pwrite(&file, b"y", 50_000))?;
    same!(pread(&file, 49_998, 10)?, b"\0\0y".to_vec())
}

fn punching_reads_as_zeros(p: &Place) -> Outcome {
    for (offset, length) in [(0, 4_096), (4_096, 8_192), (100, 50), (5_000, 20_000), (0, 50_000)] {
        let file = filled(p, 50_000)?;
        if !offered(fallocate(&file, PUNCH | KEEP_SIZE, offset, length))? {
            return Ok(());
        }
        let (from, size) = (usize::try_from(offset), usize::try_from(length));
        let (from, size) = (from.unwrap_or_default(), size.unwrap_or_default());
        let mut wanted = vec![b'x'; 50_000];
        wanted[from..from + size].fill(0);
        holds!(p.content("f")? == wanted)?;
        fs::unlink("f")?;
    }
    Ok(())
}

fn punching_across_the_end(p: &Place) -> Outcome {
    let file = filled(p, 10_000)?;
    if !offered(fallocate(&file, PUNCH | KEEP_SIZE, 8_000, 100_000))? {
        return Ok(());
    }
    same!(p.stat("f")?.st_size, 10_000)?;
    same!(pread(&file, 7_999, 10_000)?, [&b"x"[..], &[0; 2_000]].concat())?;
    works!(fallocate(&file, PUNCH | KEEP_SIZE, 50_000, 10))?;
    same!(p.stat("f")?.st_size, 10_000)?;
    // A hole is only punched where the size is kept.
    fails!(fallocate(&file, PUNCH, 0, 10), OPNOTSUPP | INVAL)
}

fn zeroing(p: &Place) -> Outcome {
    let file = filled(p, 50_000)?;
    if !offered(fallocate(&file, ZERO | KEEP_SIZE, 1_000, 30_000))? {
        return Ok(());
    }
    let mut wanted = vec![b'x'; 50_000];
    wanted[1_000..31_000].fill(0);
    holds!(p.content("f")? == wanted)?;
    works!(fallocate(&file, ZERO | KEEP_SIZE, 49_000, 10_000))?;
    same!(p.stat("f")?.st_size, 50_000)?;
    same!(pread(&file, 48_999, 2)?, b"x\0".to_vec())
}

fn zeroing_grows(p: &Place) -> Outcome {
    let file = filled(p, 100)?;
    if !offered(fallocate(&file, ZERO, 50, 10_000))? {
        return Ok(());
    }
    p.holds("f", [&[b'x'; 50][..], &[0; 10_000]].concat())
}

/// Whole blocks only, and not up to the end.
fn collapsing(p: &Place) -> Outcome {
    let block = i64::try_from(works!(fs::statvfs("."))?.f_bsize).unwrap_or(4_096);
    let size = usize::try_from(block).unwrap_or(4_096);
    p.file("f", [vec![b'a'; size], vec![b'b'; size], b"end".to_vec()].concat())?;
    let file = works!(edit("f"))?;
    if !offered(fallocate(&file, COLLAPSE, 0, block))? {
        return Ok(());
    }
    p.holds("f", [vec![b'b'; size], b"end".to_vec()].concat())?;
    fails!(fallocate(&file, COLLAPSE, 0, block + 3), INVAL)?;
    fails!(fallocate(&file, COLLAPSE, 1, block), INVAL)
}

fn inserting(p: &Place) -> Outcome {
    let block = i64::try_from(works!(fs::statvfs("."))?.f_bsize).unwrap_or(4_096);
    let size = usize::try_from(block).unwrap_or(4_096);
    p.file("f", [vec![b'a'; size], b"end".to_vec()].concat())?;
    let file = works!(edit("f"))?;
    if !offered(fallocate(&file, INSERT, block, block))? {
        return Ok(());
    }
    p.holds("f", [vec![b'a'; size], vec![0; size], b"end".to_vec()].concat())
}

fn allocating_wrongly(p: &Place) -> Outcome {
    let file = filled(p, 100)?;
    fails!(fallocate(&file, 0, -1, 10), INVAL)?;
    fails!(fallocate(&file, 0, 0, 0), INVAL)?;
    fails!(fallocate(&file, 0, 0, -1), INVAL)?;
    fails!(fallocate(&file, 0x4000, 0, 10), OPNOTSUPP)?;
    fails!(fallocate(&file, PUNCH | ZERO | KEEP_SIZE, 0, 10), OPNOTSUPP | INVAL)?;
    fails!(fallocate(&file, 0, i64::MAX, 10), FBIG)?;
    fails!(fallocate(&open("f", O::RDONLY)?, 0, 0, 10), BADF)?;
    p.holds("f", [b'x'; 100])
}

fn allocating_what_is_no_file(p: &Place) -> Outcome {
    p.dir("d")?;
    p.fifo("fifo")?;
    fails!(fallocate(&works!(open("d", O::RDONLY))?, 0, 0, 10), BADF | ISDIR)?;
    fails!(fallocate(&works!(edit("fifo"))?, 0, 0, 10), SPIPE)?;
    fails!(fs::fallocate(sys::bad_descriptor(), fs::FallocateFlags::empty(), 0, 10), BADF)
}

fn a_sparse_file_is_small(p: &Place) -> Outcome {
    let file = works!(create("f", 0o644))?;
    works!(fs::ftruncate(&file, 1 << 30))?;
    works!(pwrite(&file, b"x", 1 << 29))?;
    works!(fs::fsync(&file))?;
    // Blocks of 512 bytes: far below the gibibyte that it says it has.
    holds!(p.stat("f")?.st_blocks < (1 << 29) / 512)
}
