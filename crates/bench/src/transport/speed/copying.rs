//! sshfs: one file copied into the mount, or out of it, with the server's end in memory.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::drive::{Spent, Task};
use super::load::Load;
use super::{System, processor};
use crate::transport::serve::pieces;
use crate::transport::{within, wrong};
use crate::workload::expect;
use segue_bed::peer::{self, Stage};
use segue_bed::{Bed, Doing, Result, run};

/// What is read at once.
const PIECE_BYTES: usize = 128 << 10;
const FILE: &str = "bulk";

/// Measures it on a bed of its own.
pub(super) fn measure(task: Task, limit: Duration) -> Result<Spent> {
    let bed = Bed::new()?;
    let stage = Stage::on(&bed)?;
    within(limit, move || act(task, &stage))
}

fn act(task: Task, stage: &Stage) -> Result<Spent> {
    let kind = peer::named(System::Sshfs.name()).ok_or_else(|| wrong("there is no sshfs"))?;
    let mut peer = kind.start(stage)?;
    peer.seed(&mut |root| {
        run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(root))?;
        if task.load() == Load::Down { write(&root.join(FILE), task.bytes()) } else { Ok(()) }
    })?;
    let file = peer.mount()?.join(FILE);
    let used = || -> Result<_> {
        let ours = processor::of("thread-self")?;
        Ok((ours + processor::of_host(&stage.client)?, processor::of_host(&stage.server)?))
    };
    let (before, start) = (used()?, Instant::now());
    match task.load() {
        Load::Down => read(&file, task.bytes())?,
        _ => write(&file, task.bytes())?,
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), used()?);
    Ok(Spent {
        count: task.bytes(),
        seconds,
        client: (after.0 - before.0).as_secs_f64(),
        server: (after.1 - before.1).as_secs_f64(),
    })
}

/// Its close waits until the server has the data.
fn write(file: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(file).doing("make a file")?;
    for piece in pieces(bytes) {
        file.write_all(&piece).doing("write a file")?;
    }
    Ok(())
}

fn read(file: &Path, bytes: u64) -> Result<()> {
    let mut file = File::open(file).doing("open a file")?;
    let (mut piece, mut came) = (vec![0; PIECE_BYTES], 0);
    loop {
        match file.read(&mut piece).doing("read a file")? {
            0 => return expect(came == bytes, || format!("{came} bytes of {bytes}")),
            some => came += some as u64,
        }
    }
}
