//! What applications do: operations on paths, drawn at random from few names, so that they meet.

use std::ops::Range;

use segue_core::host::cache::XattrMap;
use segue_core::host::call::RenameFlag;
use segue_core::nouns::{Ino, Name};
use segue_core::persist::ATTRIBUTE;

use crate::rng::Rng;

/// A path below the root.
pub(crate) type Path = Vec<Name>;

/// How often each is.
const RENAMES: [RenameFlag; 5] = [
    RenameFlag::Replace,
    RenameFlag::Replace,
    RenameFlag::Replace,
    RenameFlag::NoReplace,
    RenameFlag::Exchange,
];

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
    Rename(Path, Path, RenameFlag),
    Unlink(Path),
    Rmdir(Path),
    Link(Path, Path),
    Chmod(Path, u32),
    List(Path),
    Read(Path),
    /// Makes a hole.
    Punch(Path, Range<u64>),
    SetXattr(Path, Vec<u8>, Vec<u8>),
    RemoveXattr(Path, Vec<u8>),
    Xattrs(Path),
    /// Has the server copy a file into an empty one.
    Clone(Path, Path),
}

/// What an operation answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// It was about this inode.
    Ino(Ino),
    Names(Vec<(Name, Ino)>),
    Bytes(Vec<u8>),
    Xattrs(XattrMap),
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

fn path(rng: &mut Rng, mix: &Mix, leaf: &[&str]) -> Path {
    let depth = rng.pick(&[0, 0, 1, 1, 2]).min(mix.depth);
    let leaf = &leaf[..mix.names.min(leaf.len())];
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

fn xattr(rng: &mut Rng) -> Vec<u8> {
    rng.pick(&[&b"user.a"[..], b"user.b", ATTRIBUTE]).to_vec()
}

/// A value for it; a level is the file's own from then on.
fn value_of(name: &[u8], rng: &mut Rng) -> Vec<u8> {
    match name {
        ATTRIBUTE => {
            rng.pick(&[&b"async"[..], b"delay:20s", b"log:5s", b"close", b"sync"]).to_vec()
        }
        _ => vec![b'x'; index(rng.between(1, 9))],
    }
}

/// Kinds of operations, of which the first so many are usual.
const KINDS: usize = 19;
const USUAL: usize = 14;

/// What operations are like.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// How often each kind is drawn, in the order of [`Op`].
    often: [u64; KINDS],
    /// How deep paths are.
    depth: usize,
    /// Names of files, or of directories, in one directory.
    names: usize,
}

impl Default for Mix {
    fn default() -> Mix {
        let often = [14, 10, 3, 20, 7, 6, 6, 10, 6, 3, 4, 3, 3, 5, 0, 0, 0, 0, 0];
        Mix { often, depth: usize::MAX, names: usize::MAX }
    }
}

impl Mix {
    /// One of its own: some kinds more often, and some hardly ever. Without files there is nothing
    /// to do.
    pub(crate) fn draw(rng: &mut Rng) -> Mix {
        let usual = Mix::default().often;
        let mut often = usual.map(|often| often * rng.pick(&[0, 1, 1, 1, 3, 8]));
        often[0] = often[0].max(usual[0]);
        often[3] = often[3].max(usual[3]);
        let (depth, names) = rng.pick(&[(0, 1), (0, 2), (1, 1), (2, 3), (2, 3)]);
        often[USUAL..].iter_mut().for_each(|often| *often = rng.pick(&[0, 0, 3, 10]));
        // Most files have something already.
        often[KINDS - 1] *= 4;
        Mix { often, depth, names }
    }

    /// The number of a kind.
    fn kind(&self, rng: &mut Rng) -> usize {
        let mut at = rng.below(self.often.iter().sum());
        self.often
            .iter()
            .position(|often| {
                let is_it = at < *often;
                at = at.saturating_sub(*often);
                is_it
            })
            .unwrap_or(0)
    }
}

impl Op {
    /// An operation at random.
    pub(crate) fn draw(rng: &mut Rng, mix: &Mix) -> Op {
        let file = path(rng, mix, &FILES);
        let directory = path(rng, mix, &DIRECTORIES);
        let (offset, len) = extent(rng);
        let fill = rng.between(1, 1 << 40);
        match mix.kind(rng) {
            0 => Op::Create(file),
            1 => Op::Mkdir(directory),
            2 => Op::Symlink(file, vec![b'x'; index(rng.between(1, 9))]),
            3 => Op::Write { path: file, offset, len, fill, keep: rng.chance(300) },
            4 => Op::WriteOpen { which: rng.index(4), offset, len, fill },
            5 => Op::Close(rng.index(4)),
            6 => Op::Truncate(file, rng.pick(&[0, 5, 60, 150, 300])),
            7 => {
                let flag = rng.pick(&RENAMES);
                match rng.chance(300) {
                    true => Op::Rename(directory, path(rng, mix, &DIRECTORIES), flag),
                    false => Op::Rename(file, path(rng, mix, &FILES), flag),
                }
            }
            8 => Op::Unlink(file),
            9 => Op::Rmdir(directory),
            10 => Op::Link(file, path(rng, mix, &FILES)),
            11 => Op::Chmod(file, rng.pick(&[0o600, 0o644, 0o755])),
            12 => Op::List(directory),
            13 => Op::Read(file),
            14 => Op::Punch(file, offset..offset + len),
            15 => {
                let name = xattr(rng);
                let value = value_of(&name, rng);
                Op::SetXattr(file, name, value)
            }
            16 => Op::RemoveXattr(file, xattr(rng)),
            17 => Op::Xattrs(file),
            _ => Op::Clone(file, path(rng, mix, &FILES)),
        }
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(0)
}
