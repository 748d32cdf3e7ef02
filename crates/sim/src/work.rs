//! What applications do: operations on paths, drawn at random from few names, so that they meet.

use segue_core::types::{Ino, Name};

use crate::rng::Rng;

/// A path below the root.
pub(crate) type Path = Vec<Name>;

/// How a rename treats its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flag {
    Replace,
    NoReplace,
    Exchange,
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Create(Path),
    Mkdir(Path),
    Symlink(Path, Vec<u8>),
    /// Opens, writes, and closes unless it is to `keep` the file open.
    Write {
        path: Path,
        offset: u64,
        len: u64,
        fill: u64,
        keep: bool,
    },
    /// Writes to a file that is open.
    WriteOpen {
        which: usize,
        offset: u64,
        len: u64,
        fill: u64,
    },
    Close(usize),
    Truncate(Path, u64),
    Rename(Path, Path, Flag),
    Unlink(Path),
    Rmdir(Path),
    Link(Path, Path),
    Chmod(Path, u32),
    List(Path),
    Read(Path),
}

/// What an operation answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// It was about this inode.
    Ino(Ino),
    Names(Vec<(Name, Ino)>),
    Bytes(Vec<u8>),
}

/// The bytes that a write puts: from each one tells where and by which write it was put.
pub(crate) fn bytes_of(offset: u64, len: u64, fill: u64) -> Vec<u8> {
    let byte = |at: u64| {
        let mixed = (at + 1).wrapping_mul(fill | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed.to_be_bytes()[0]
    };
    (offset..offset + len).map(byte).collect()
}

/// All names that there are.
pub(crate) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const FILES: [&str; 3] = ["a", "b", "c"];
const DIRECTORIES: [&str; 2] = ["d", "e"];

fn name(rng: &mut Rng, from: &[&str]) -> Vec<Name> {
    Name::new(rng.pick(from)).into_iter().collect()
}

fn path(rng: &mut Rng, leaf: &[&str]) -> Path {
    let depth = rng.pick(&[0, 0, 1, 1, 2]);
    let mut path: Path = (0..depth).flat_map(|_| name(rng, &DIRECTORIES)).collect();
    let odd = rng.chance(60);
    path.extend(name(rng, if odd { &["a", "d"] } else { leaf }));
    path
}

/// A place in a file and a length there.
pub(crate) fn extent(rng: &mut Rng) -> (u64, u64) {
    if rng.chance(20) {
        return (rng.below(6000), rng.between(5000, 20_000));
    }
    (rng.pick(&[0, 0, 10, 100, 200]), rng.between(1, 120))
}

impl Op {
    /// An operation at random.
    pub(crate) fn draw(rng: &mut Rng) -> Op {
        let file = path(rng, &FILES);
        let directory = path(rng, &DIRECTORIES);
        let (offset, len) = extent(rng);
        let fill = rng.between(1, 1 << 40);
        match rng.below(100) {
            0..14 => Op::Create(file),
            14..24 => Op::Mkdir(directory),
            24..27 => Op::Symlink(file, vec![b'x'; index(rng.between(1, 9))]),
            27..47 => Op::Write { path: file, offset, len, fill, keep: rng.chance(300) },
            47..54 => Op::WriteOpen { which: rng.index(4), offset, len, fill },
            54..60 => Op::Close(rng.index(4)),
            60..66 => Op::Truncate(file, rng.pick(&[0, 5, 60, 150, 300])),
            66..76 => {
                let flag = rng.pick(&[
                    Flag::Replace,
                    Flag::Replace,
                    Flag::Replace,
                    Flag::NoReplace,
                    Flag::Exchange,
                ]);
                match rng.chance(300) {
                    true => Op::Rename(directory, path(rng, &DIRECTORIES), flag),
                    false => Op::Rename(file, path(rng, &FILES), flag),
                }
            }
            76..82 => Op::Unlink(file),
            82..85 => Op::Rmdir(directory),
            85..89 => Op::Link(file, path(rng, &FILES)),
            89..92 => Op::Chmod(file, rng.pick(&[0o600, 0o644, 0o755])),
            92..95 => Op::List(directory),
            _ => Op::Read(file),
        }
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(0)
}
