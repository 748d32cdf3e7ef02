//! Calls answer on a mount as on a local file system: random calls go to a mount and to a
//! directory of this host. Every answer, errno included, and every tree must be the same.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, Mode, RenameFlags, SeekFrom, XattrFlags, fallocate, seek};
use segue_bed::Rng;

use crate::world::World;

const STEPS: u64 = 8000;
const COMPARE_EVERY: u64 = 400;
const HANDLES: usize = 6;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const ALLOCATIONS: [FallocateFlags; 4] = [
    FallocateFlags::empty(),
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE),
    FallocateFlags::ZERO_RANGE,
    FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE),
];
const MODES: [u32; 4] = [0o644, 0o600, 0o755, 0o1755];

/// One call with everything that was drawn for it.
#[derive(Debug)]
struct Call {
    kind: u64,
    path: String,
    other: String,
    offset: u64,
    bytes: Vec<u8>,
    size: u64,
    mode: u32,
    which: usize,
}

impl Call {
    fn draw(rng: &mut Rng) -> Call {
        let path = |rng: &mut Rng| {
            let depth = 1 + rng.below(3);
            let names: Vec<_> =
                (0..depth).map(|_| NAMES[usize::try_from(rng.below(5)).unwrap()]).collect();
            names.join("/")
        };
        Call {
            kind: rng.below(37),
            path: path(rng),
            other: path(rng),
            offset: rng.below(20_000),
            bytes: vec![b'a' + u8::try_from(rng.below(26)).unwrap(); 1 + pick(rng, 30_000)],
            size: rng.below(40_000),
            mode: MODES[pick(rng, 4)],
            which: pick(rng, HANDLES as u64),
        }
    }
}

fn pick(rng: &mut Rng, below: u64) -> usize {
    usize::try_from(rng.below(below)).unwrap()
}

/// A tree with files that are open in it.
struct Side {
    root: PathBuf,
    open: Vec<File>,
}

impl Side {
    fn handle(&self, which: usize) -> Option<&File> {
        if self.open.is_empty() { None } else { self.open.get(which % self.open.len()) }
    }

    /// Makes the call and says what it answered.
    fn answer(&mut self, call: &Call) -> String {
        match self.make(call) {
            Ok(answer) => answer,
            Err(error) => format!("errno {:?}", error.raw_os_error()),
        }
    }

    /// A call about holes of an open file.
    fn hole(&self, call: &Call) -> io::Result<String> {
        let Some(file) = self.handle(call.which) else { return Ok("done".to_owned()) };
        match ALLOCATIONS.get(usize::try_from(call.kind - 32).unwrap()) {
            Some(mode) => {
                fallocate(file, *mode, call.offset, call.size + 1)?;
                Ok("done".to_owned())
            }
            None => data_of(file, call.offset),
        }
    }

    fn make(&mut self, call: &Call) -> io::Result<String> {
        let (path, other) = (self.root.join(&call.path), self.root.join(&call.other));
        let xattr = format!("user.k{}", call.which);
        let done = |()| "done".to_owned();
        match call.kind {
            0 | 1 => File::options().create(true).append(true).open(&path).map(|_| done(())),
            2 => File::create_new(&path).map(|_| done(())),
            3 | 4 => {
                let file = File::options().write(true).open(&path)?;
                file.write_at(&call.bytes, call.offset).map(|n| n.to_string())
            }
            5 => {
                let mut file = File::options().append(true).open(&path)?;
                io::Write::write_all(&mut file, &call.bytes).map(done)
            }
            6 => fs::write(&path, &call.bytes).map(done),
            7..=9 => fs::rename(&path, &other).map(done),
            10 => {
                let flag = RenameFlags::NOREPLACE;
                Ok(rustix::fs::renameat_with(CWD, &path, CWD, &other, flag).map(done)?)
            }
            11 => {
                let flag = RenameFlags::EXCHANGE;
                Ok(rustix::fs::renameat_with(CWD, &path, CWD, &other, flag).map(done)?)
            }
            12 => fs::hard_link(&path, &other).map(done),
            13 | 14 => fs::remove_file(&path).map(done),
            15..=17 => fs::create_dir(&path).map(done),
            18 => fs::remove_dir(&path).map(done),
            19 => std::os::unix::fs::symlink(&call.path, &other).map(done),
            20 => fs::set_permissions(&path, PermissionsExt::from_mode(call.mode)).map(done),
            21 => fs::symlink_metadata(&path).map(|meta| shown(&meta)),
            22 => names(&path).map(|names| names.join(" ")),
            23 => {
                let value = &call.bytes[..call.bytes.len().min(100)];
                Ok(rustix::fs::setxattr(&path, &*xattr, value, XattrFlags::empty()).map(done)?)
            }
            24 => xattr_of(&path, &xattr).map(|value| format!("{value:?}")),
            25 => Ok(rustix::fs::removexattr(&path, &*xattr).map(done)?),
            26 => File::options().write(true).open(&path)?.set_len(call.size).map(done),
            27 if self.open.len() < HANDLES => {
                self.open.push(File::options().read(true).write(true).open(&path)?);
                Ok(done(()))
            }
            28 => match self.handle(call.which) {
                Some(file) => file.write_at(&call.bytes, call.offset).map(|n| n.to_string()),
                None => Ok(done(())),
            },
            29 => match self.handle(call.which) {
                Some(file) => {
                    let mut bytes = vec![0; call.bytes.len()];
                    let read = file.read_at(&mut bytes, call.offset)?;
                    Ok(format!("{read} {}", blake3::hash(&bytes)))
                }
                None => Ok(done(())),
            },
            30 => match self.handle(call.which) {
                Some(file) => file.set_len(call.size).map(done),
                None => Ok(done(())),
            },
            31 if !self.open.is_empty() => {
                let file = self.open.remove(call.which % self.open.len());
                crate::world::close(file).map(done)
            }
            32.. => self.hole(call),
            _ => fs::read_link(&path).map(|target| target.display().to_string()),
        }
    }
}

/// What is found from `offset` on by going from data to hole. Where file systems see holes is
/// theirs to say; what is no data is zeros.
fn data_of(file: &File, offset: u64) -> io::Result<String> {
    let mut found = vec![0; usize::try_from(file.metadata()?.len()).unwrap()];
    let first_hole = seek(file, SeekFrom::Hole(offset)).map(|_| ());
    let mut at = offset;
    while let Ok(start) = seek(file, SeekFrom::Data(at)) {
        let end = seek(file, SeekFrom::Hole(start))?;
        assert!(at <= start && start < end, "{at} {start} {end}");
        let run = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
        file.read_exact_at(&mut found[run], start)?;
        at = end;
    }
    Ok(format!("{first_hole:?} {}", blake3::hash(&found)))
}

fn shown(meta: &fs::Metadata) -> String {
    let size = if meta.is_dir() { 0 } else { meta.len() };
    let ids = (meta.uid(), meta.gid());
    format!("{:o} {} {size} {ids:?}", meta.mode(), meta.nlink())
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(path)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

fn xattr_of(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut value = vec![0; 200];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// Everything below `dir`: attributes, contents, targets.
fn tree(root: &Path, dir: &Path, into: &mut BTreeMap<String, String>) {
    for name in names(dir).unwrap() {
        let path = dir.join(&name);
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() {
            blake3::hash(&fs::read(&path).unwrap()).to_string()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            tree(root, &path, into);
            String::new()
        };
        let rest = path.strip_prefix(root).unwrap().display().to_string();
        into.insert(rest, format!("{} {content}", shown(&meta)));
    }
}

fn trees(sides: &[Side]) -> Vec<BTreeMap<String, String>> {
    let whole = |side: &Side| {
        let mut found = BTreeMap::new();
        tree(&side.root, &side.root, &mut found);
        found
    };
    sides.iter().map(whole).collect()
}

fn agrees(world: &World, options: &str, seed: u64) {
    // Plain write permission for the group and others is the umask's business, not the mount's.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let mount = world.mount_with(&world.a, options);
    let new = |root: PathBuf| {
        fs::create_dir_all(&root).unwrap();
        Side { root, open: Vec::new() }
    };
    let name = format!("reference-{seed}");
    let mut sides = [new(world.local(&name)), new(mount.path().join(&name))];
    let mut rng = Rng::new(seed);
    for step in 1..=STEPS {
        let call = Call::draw(&mut rng);
        let answers = sides.each_mut().map(|side| side.answer(&call));
        let Call { kind, path, other, .. } = &call;
        assert_eq!(answers[0], answers[1], "seed {seed} step {step}: {kind} {path} {other}");
        if step % COMPARE_EVERY == 0 {
            let found = trees(&sides);
            assert_eq!(found[0], found[1], "seed {seed}: trees after step {step}");
        }
    }
    sides.iter_mut().for_each(|side| side.open.clear());
    let mount = world.remount(&world.a, mount);
    let found = trees(&sides);
    assert_eq!(found[0], found[1], "seed {seed}: trees after a remount");
    drop(mount);
    let other = world.mount(&world.b);
    sides[1].root = other.path().join(&name);
    let found = trees(&sides);
    assert_eq!(found[0], found[1], "seed {seed}: trees on another host");
}

/// Proves S1.1.
#[test]
fn random_calls_answer_as_on_a_local_file_system() {
    let Some(world) = World::new() else { return };
    agrees(&world, "", 1);
}

/// Proves S1.1.
#[test]
fn random_calls_answer_as_on_a_local_file_system_when_nothing_waits() {
    let Some(world) = World::new() else { return };
    agrees(&world, "write-back=async", 2);
}
