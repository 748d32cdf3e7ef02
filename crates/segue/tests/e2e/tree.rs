//! A directory tree as it must be found again: contents by hash, modes, times, links.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is compared of one file. Inode numbers stand for which names are one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    kind: &'static str,
    mode: u32,
    nlink: u64,
    mtime: (i64, i64),
    /// Size and hash of a file, target of a link.
    contents: String,
}

/// Everything below a directory, by its path from there.
pub(crate) type Tree = BTreeMap<PathBuf, Node>;

/// Reads the whole tree below `dir`.
pub(crate) fn read(dir: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let node = look(&path);
        if node.kind == "directory" {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        tree.insert(path.strip_prefix(dir).unwrap().to_owned(), node);
    }
    tree
}

/// The same without the times and modes of directories, the top included.
pub(crate) fn read_contents(dir: &Path) -> BTreeMap<PathBuf, String> {
    read(dir).into_iter().map(|(path, node)| (path, node.contents)).collect()
}

/// The files alone: mode, links and contents of each.
pub(crate) fn read_files(dir: &Path) -> BTreeMap<PathBuf, (u32, u64, String)> {
    let files = read(dir).into_iter().filter(|(_, node)| node.kind == "file");
    files.map(|(path, node)| (path, (node.mode, node.nlink, node.contents))).collect()
}

fn look(path: &Path) -> Node {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let (kind, contents) = if kind.is_dir() {
        ("directory", String::new())
    } else if kind.is_symlink() {
        ("link", format!("{:?}", fs::read_link(path).unwrap()))
    } else if kind.is_file() {
        ("file", hash(path))
    } else if kind.is_fifo() {
        ("fifo", String::new())
    } else {
        ("special", String::new())
    };
    // Directories count their links as they like.
    let nlink = if kind == "directory" { 0 } else { meta.nlink() };
    Node { kind, mode: meta.mode(), nlink, mtime: (meta.mtime(), meta.mtime_nsec()), contents }
}

/// Size and BLAKE3 of a file.
pub(crate) fn hash(path: &Path) -> String {
    let mut file = fs::File::open(path).unwrap();
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer).unwrap();
        if read == 0 {
            return format!("{} {}", hasher.count(), hasher.finalize().to_hex());
        }
        hasher.update(&buffer[..read]);
    }
}

/// Size and BLAKE3 of bytes, as [`hash`] has it of a file.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    format!("{} {}", bytes.len(), blake3::hash(bytes).to_hex())
}

/// Fails with the first differences, if there are any.
pub(crate) fn assert_same<V: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &BTreeMap<PathBuf, V>,
    expected: &BTreeMap<PathBuf, V>,
) {
    let paths = found.keys().chain(expected.keys().filter(|path| !found.contains_key(*path)));
    let different: Vec<_> = paths
        .filter(|path| found.get(*path) != expected.get(*path))
        .map(|path| {
            let (found, expected) = (found.get(path), expected.get(path));
            format!("{}: {found:?} instead of {expected:?}", path.display())
        })
        .collect();
    let first = different.iter().take(10).cloned().collect::<Vec<_>>().join("\n  ");
    assert!(different.is_empty(), "{what}: {} differ:\n  {first}", different.len());
}

/// Bytes that no compressor makes smaller, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    segue_bed::Rng::new(seed).fill(&mut bytes);
    bytes
}
