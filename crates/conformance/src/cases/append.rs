//! O_APPEND: every write goes to the end, wherever that is by then.

use rustix::fs::{self, OFlags as O, SeekFrom};
use rustix::io::{pwrite, write};

use crate::call::{create, open, read};
use crate::expect::{Outcome, holds, same, works};
use crate::place::{Place, edit};
use crate::process::Process;

cases! { "append"
    anyone: goes_to_the_end, moves_the_offset, from_several_descriptors, from_several_processes,
        after_truncation, positioned_writes_go_to_the_end_too, turned_on_and_off,
        by_the_flag_of_one_write, reading_begins_at_the_beginning, together_with_a_plain_writer;
    root: ;
}

fn goes_to_the_end(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(open("f", O::RDWR | O::APPEND))?;
    works!(write(&file, b" one"))?;
    works!(fs::seek(&file, SeekFrom::Start(0)))?;
    works!(write(&file, b" two"))?;
    p.holds("f", "text one two")
}

fn moves_the_offset(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(open("f", O::RDWR | O::APPEND))?;
    works!(write(&file, b"more"))?;
    same!(fs::tell(&file)?, 8)?;
    same!(read(&file, 10)?, Vec::new())
}

fn from_several_descriptors(p: &Place) -> Outcome {
    p.file("f", "")?;
    let (one, two) = (open("f", O::WRONLY | O::APPEND)?, open("f", O::WRONLY | O::APPEND)?);
    for _ in 0..50 {
        works!(write(&one, b"one "))?;
        works!(write(&two, b"two "))?;
    }
    p.holds("f", "one two ".repeat(50))
}

/// No line is lost, and none is torn.
fn from_several_processes(p: &Place) -> Outcome {
    const LINES: usize = 100;
    p.file("f", "")?;
    let writers: Result<Vec<Process>, _> = (b'a'..b'd')
        .map(|letter| {
            Process::start(move || {
                let file = works!(open("f", O::WRONLY | O::APPEND))?;
                let mut line = vec![letter; 79];
                line.push(b'\n');
                for _ in 0..LINES {
                    same!(works!(write(&file, &line))?, 80)?;
                }
                Ok(())
            })
        })
        .collect();
    for writer in writers? {
        writer.join()?;
    }
    let content = p.content("f")?;
    same!(content.len(), 3 * LINES * 80)?;
    for letter in b'a'..b'd' {
        let line = [&vec![letter; 79][..], b"\n"].concat();
        same!(content.chunks(80).filter(|&found| found == line).count(), LINES)?;
    }
    Ok(())
}

fn after_truncation(p: &Place) -> Outcome {
    p.file("f", "some text")?;
    let file = works!(open("f", O::WRONLY | O::APPEND))?;
    works!(write(&file, b"!"))?;
    works!(fs::ftruncate(edit("f")?, 4))?;
    works!(write(&file, b"!"))?;
    p.holds("f", "some!")?;
    works!(fs::ftruncate(&file, 6))?;
    works!(write(&file, b"?"))?;
    p.holds("f", b"some!\0?")
}

/// POSIX wants the offset honoured; Linux appends, and says so in pwrite(2).
fn positioned_writes_go_to_the_end_too(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(open("f", O::WRONLY | O::APPEND))?;
    works!(pwrite(&file, b"end", 0))?;
    p.holds("f", "textend")
}

/// RWF_APPEND, and with an offset of -1 the descriptor's own offset moves.
fn by_the_flag_of_one_write(p: &Place) -> Outcome {
    use std::io::IoSlice;

    use rustix::io::{ReadWriteFlags, pwritev2};
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    works!(pwritev2(&file, &[IoSlice::new(b" one")], 0, ReadWriteFlags::APPEND))?;
    same!(fs::tell(&file)?, 0)?;
    works!(pwritev2(&file, &[IoSlice::new(b" two")], u64::MAX, ReadWriteFlags::APPEND))?;
    same!(fs::tell(&file)?, 12)?;
    works!(pwritev2(&file, &[IoSlice::new(b"T")], 0, ReadWriteFlags::DSYNC))?;
    p.holds("f", "Text one two")
}

fn turned_on_and_off(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(edit("f"))?;
    works!(fs::fcntl_setfl(&file, O::APPEND))?;
    works!(write(&file, b"1"))?;
    works!(fs::fcntl_setfl(&file, O::empty()))?;
    works!(fs::seek(&file, SeekFrom::Start(0)))?;
    works!(write(&file, b"T"))?;
    p.holds("f", "Text1")
}

fn reading_begins_at_the_beginning(p: &Place) -> Outcome {
    p.file("f", "text")?;
    let file = works!(open("f", O::RDWR | O::APPEND))?;
    same!(read(&file, 2)?, b"te".to_vec())?;
    works!(write(&file, b"more"))?;
    works!(fs::seek(&file, SeekFrom::Start(2)))?;
    same!(read(&file, 10)?, b"xtmore".to_vec())
}

fn together_with_a_plain_writer(p: &Place) -> Outcome {
    let plain = works!(create("f", 0o644))?;
    let appending = works!(open("f", O::WRONLY | O::APPEND))?;
    for round in 0..50_u64 {
        works!(pwrite(&plain, b"plain", round * 10))?;
        works!(write(&appending, b"added"))?;
        holds!(p.stat("f")?.st_size == i64::try_from(round * 10 + 10).unwrap_or_default())?;
    }
    p.holds("f", "plainadded".repeat(50))
}
