//! Files in memory: what maps and calls see of each other.

use rustix::fs::{self, OFlags as O};
use rustix::io::pwrite;
use rustix::mm::{MapFlags, MsyncFlags};
use rustix::process::Signal;

use crate::call::{create, open, pread};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::{Place, edit};
use crate::process::Process;
use crate::sys::Map;

cases! { "mmap"
    anyone: shows_the_file, writes_reach_the_file, calls_reach_the_map, private_writes_stay_private,
        shared_between_processes, outlives_its_descriptor, outlives_its_name,
        past_the_end_is_sigbus, after_truncation_is_sigbus, the_last_page_ends_in_zeros,
        growing_under_a_map, truncating_under_a_map, permissions_of_the_descriptor_count,
        of_a_directory_is_enodev, at_an_offset, many_pages, an_unaligned_offset_is_einval,
        unsynced_writes_are_read_by_others;
    root: ;
}

const PAGE: usize = 4_096;

fn shared(file: &std::os::fd::OwnedFd, length: usize) -> Result<Map, rustix::io::Errno> {
    Map::new(file, 0, length, MapFlags::SHARED, true)
}

fn shows_the_file(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let file = works!(open("f", O::RDONLY))?;
    let map = works!(Map::new(&file, 0, 9, MapFlags::SHARED, false))?;
    same!(map.bytes(0..9), b"some text".to_vec())?;
    let map = works!(Map::new(&file, 0, 9, MapFlags::PRIVATE, false))?;
    same!(map.bytes(5..9), b"text".to_vec())
}

fn writes_reach_the_file(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, 9))?;
    map.put(5, b"TEXT");
    same!(pread(&file, 0, 100)?, b"some TEXT".to_vec())?;
    works!(map.sync(MsyncFlags::SYNC))?;
    p.elsewhere(|| p.holds("f", "some TEXT"))?;
    drop(map);
    p.holds("f", "some TEXT")?;
    same!(p.stat("f")?.st_size, 9)
}

fn calls_reach_the_map(p: &Place) -> Outcome {
    p.file("f", [b'a'; 2 * PAGE])?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, 2 * PAGE))?;
    same!(map.byte(PAGE), b'a')?;
    works!(pwrite(&file, b"bcd", PAGE as u64 - 1))?;
    same!(map.bytes(PAGE - 2..PAGE + 3), b"abcda".to_vec())?;
    p.elsewhere(|| works!(pwrite(edit("f")?, b"z", 0)).map(drop))?;
    same!(map.byte(0), b'z')
}

fn private_writes_stay_private(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let file = works!(open("f", O::RDONLY))?;
    let map = works!(Map::new(&file, 0, 9, MapFlags::PRIVATE, true))?;
    map.put(0, b"SOME");
    same!(map.bytes(0..9), b"SOME text".to_vec())?;
    p.holds("f", "some text")?;
    drop(map);
    p.holds("f", "some text")
}

fn shared_between_processes(p: &Place) -> Outcome {
    p.file("f", [0; PAGE])?;
    let map = works!(shared(&works!(edit("f"))?, PAGE))?;
    p.elsewhere(|| {
        let theirs = works!(shared(&works!(edit("f"))?, PAGE))?;
        theirs.put(100, b"from the child");
        Ok(())
    })?;
    same!(map.bytes(100..114), b"from the child".to_vec())?;
    map.put(200, b"from the parent");
    p.elsewhere(|| same!(map.bytes(200..215), b"from the parent".to_vec()))
}

fn outlives_its_descriptor(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, 9))?;
    drop(file);
    map.put(0, b"S");
    works!(map.sync(MsyncFlags::SYNC))?;
    p.holds("f", "Some text")?;
    map.put(5, b"T");
    drop(map);
    p.holds("f", "Some Text")
}

fn outlives_its_name(p: &Place) -> Outcome {
    p.file("f", [b'x'; 2 * PAGE])?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, 2 * PAGE))?;
    works!(fs::unlink("f"))?;
    map.put(PAGE, b"y");
    works!(map.sync(MsyncFlags::SYNC))?;
    same!(pread(&file, PAGE as u64 - 1, 3)?, b"xyx".to_vec())?;
    drop(file);
    same!(map.byte(PAGE), b'y')
}

fn past_the_end_is_sigbus(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let map = works!(shared(&works!(edit("f"))?, 2 * PAGE))?;
    dies_of_sigbus(&map, PAGE)
}

/// Whether another process that looks there is killed for it.
fn dies_of_sigbus(map: &Map, at: usize) -> Outcome {
    let looking = Process::start(|| {
        map.byte(at);
        Ok(())
    })?;
    same!(looking.ending()?.terminating_signal(), Some(Signal::BUS.as_raw()))
}

fn after_truncation_is_sigbus(p: &Place) -> Outcome {
    p.file("f", [b'x'; 3 * PAGE])?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, 3 * PAGE))?;
    same!(map.byte(2 * PAGE), b'x')?;
    works!(fs::ftruncate(&file, PAGE as u64))?;
    same!(map.byte(PAGE - 1), b'x')?;
    dies_of_sigbus(&map, PAGE)?;
    dies_of_sigbus(&map, 2 * PAGE)
}

fn the_last_page_ends_in_zeros(p: &Place) -> Outcome {
    p.file("f", [b'x'; 100])?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, PAGE))?;
    holds!(map.bytes(100..PAGE).iter().all(|&byte| byte == 0))?;
    // What is written there is no part of the file.
    map.put(100, b"beyond");
    works!(map.sync(MsyncFlags::SYNC))?;
    same!(p.stat("f")?.st_size, 100)?;
    drop(map);
    p.holds("f", [b'x'; 100])
}

fn growing_under_a_map(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, 3 * PAGE))?;
    works!(fs::ftruncate(&file, 3 * PAGE as u64))?;
    same!(map.byte(2 * PAGE), 0)?;
    works!(pwrite(&file, b"new", 2 * PAGE as u64))?;
    same!(map.bytes(2 * PAGE..2 * PAGE + 3), b"new".to_vec())?;
    map.put(PAGE, b"mapped");
    same!(pread(&file, PAGE as u64, 6)?, b"mapped".to_vec())
}

fn truncating_under_a_map(p: &Place) -> Outcome {
    p.file("f", [b'x'; 2 * PAGE])?;
    let file = works!(edit("f"))?;
    let map = works!(shared(&file, 2 * PAGE))?;
    map.put(0, &[b'y'; 2 * PAGE]);
    works!(fs::ftruncate(&file, 100))?;
    holds!(map.bytes(100..PAGE).iter().all(|&byte| byte == 0))?;
    works!(fs::ftruncate(&file, 2 * PAGE as u64))?;
    same!(map.byte(99), b'y')?;
    holds!(map.bytes(100..2 * PAGE).iter().all(|&byte| byte == 0))
}

fn permissions_of_the_descriptor_count(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let (reader, writer) = (open("f", O::RDONLY)?, open("f", O::WRONLY)?);
    fails!(Map::new(&reader, 0, 9, MapFlags::SHARED, true), ACCESS)?;
    fails!(Map::new(&writer, 0, 9, MapFlags::SHARED, true), ACCESS)?;
    fails!(Map::new(&writer, 0, 9, MapFlags::PRIVATE, false), ACCESS)?;
    works!(Map::new(&reader, 0, 9, MapFlags::PRIVATE, true)).map(drop)
}

fn of_a_directory_is_enodev(p: &Place) -> Outcome {
    p.dir("d")?;
    fails!(Map::new(&works!(open("d", O::RDONLY))?, 0, 9, MapFlags::SHARED, false), NODEV)?;
    p.file("f", "")?;
    fails!(Map::new(&works!(edit("f"))?, 0, 0, MapFlags::SHARED, false), INVAL)
}

fn at_an_offset(p: &Place) -> Outcome {
    let content: Vec<u8> = (0..5_u8).flat_map(|page| vec![b'a' + page; PAGE]).collect();
    p.file("f", content)?;
    let file = works!(edit("f"))?;
    let map = works!(Map::new(&file, 3 * PAGE as u64, PAGE, MapFlags::SHARED, true))?;
    same!((map.byte(0), map.byte(PAGE - 1)), (b'd', b'd'))?;
    map.put(10, b"here");
    same!(pread(&file, 3 * PAGE as u64 + 9, 6)?, b"dhered".to_vec())
}

fn many_pages(p: &Place) -> Outcome {
    const PAGES: usize = 512;
    let file = works!(create("f", 0o644))?;
    works!(fs::ftruncate(&file, (PAGES * PAGE) as u64))?;
    let map = works!(shared(&file, PAGES * PAGE))?;
    for page in (0..PAGES).step_by(3) {
        map.put(page * PAGE, &page.to_le_bytes());
    }
    works!(map.sync(MsyncFlags::SYNC))?;
    let content = p.content("f")?;
    for page in 0..PAGES {
        let wanted = if page % 3 == 0 { page } else { 0 };
        same!(&content[page * PAGE..page * PAGE + 8], &wanted.to_le_bytes()[..])?;
    }
    Ok(())
}

fn an_unaligned_offset_is_einval(p: &Place) -> Outcome {
    p.file("f", [b'x'; 2 * PAGE])?;
    let file = works!(edit("f"))?;
    fails!(Map::new(&file, 100, PAGE, MapFlags::SHARED, false), INVAL)
}

/// Without any msync, other processes read what a map holds.
fn unsynced_writes_are_read_by_others(p: &Place) -> Outcome {
    p.file("f", [b'.'; PAGE])?;
    let map = works!(shared(&works!(edit("f"))?, PAGE))?;
    for round in 0..10_u8 {
        map.put(usize::from(round) * 10, &[b'0' + round]);
        p.elsewhere(|| same!(p.content("f")?[usize::from(round) * 10], b'0' + round))?;
    }
    Ok(())
}
