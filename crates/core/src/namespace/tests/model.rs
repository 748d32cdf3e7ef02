//! Random operations of one host, against a tree in memory that was written from the man pages.

mod quotas;
mod shelter;

use proptest::prelude::*;

use super::*;
use crate::nouns::Kind;

/// What an operation should come to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Expected {
    Done,
    Refused(Refusal),
    Conflict,
    NeedsWhole,
}

#[derive(Clone, PartialEq, Debug)]
enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<String, u64>),
    Symlink,
}

#[derive(Clone, PartialEq, Debug)]
struct Node {
    content: Content,
    mode: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Inodes by number; one without a name is open. And the most inodes that may stand in the tree
/// of a directory with a quota, itself included.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Model(BTreeMap<u64, Node>, pub(crate) BTreeMap<u64, u64>);

use Expected::{Conflict, Done, Refused as No};

impl Model {
    pub(crate) fn new() -> Model {
        let root = Node {
            content: Content::Directory(BTreeMap::new()),
            mode: 0o755,
            xattrs: BTreeMap::new(),
        };
        Model(BTreeMap::from([(1, root)]), BTreeMap::new())
    }

    fn directory(&mut self, ino: Ino) -> Result<&mut BTreeMap<String, u64>, Expected> {
        match self.0.get_mut(&ino.0).map(|node| &mut node.content) {
            Some(Content::Directory(entries)) => Ok(entries),
            Some(_) => Err(No(Refusal::NotDirectory)),
            None => Err(No(Refusal::NotFound)),
        }
    }

    fn names(&self, ino: u64) -> usize {
        let entries = self.0.values().filter_map(|node| match &node.content {
            Content::Directory(entries) => Some(entries.values().filter(|&&at| at == ino).count()),
            _ => None,
        });
        entries.sum()
    }

    fn nlink(&self, ino: u64) -> u32 {
        let is_directory = |ino: &u64| matches!(self.0[ino].content, Content::Directory(_));
        match &self.0[&ino].content {
            Content::Directory(entries) => {
                2 + entries.values().filter(|ino| is_directory(ino)).count() as u32
            }
            _ => self.names(ino) as u32,
        }
    }

    fn is_directory(&self, ino: u64) -> bool {
        matches!(self.0[&ino].content, Content::Directory(_))
    }

    /// True if `at` is `top` or reached from it.
    fn below(&self, at: u64, top: u64) -> bool {
        at == top
            || match &self.0[&top].content {
                Content::Directory(entries) => entries.values().any(|&ino| self.below(at, ino)),
                _ => false,
            }
    }

    /// One name of `ino` went.
    fn unnamed(&mut self, ino: u64, open: bool) {
        if self.names(ino) == 0 && !open {
            self.0.remove(&ino);
        }
    }

    pub(crate) fn apply(&mut self, record: &Record) -> Expected {
        let mut after = self.clone();
        let expected = after.try_apply(record).unwrap_or_else(|refused| refused);
        let mut counted = after.clone();
        if expected == Conflict
            && let Record::Create { parent, ino, .. }
            | Record::Link { parent, ino, .. }
            | Record::Rename { to_parent: parent, ino, .. } = record
        {
            counted.counts_conflict(*parent, *ino);
        }
        let is_over = |(quota, most): (&u64, &u64)| {
            counted.within(*quota) > self.within(*quota) && counted.within(*quota) > *most
        };
        if counted.1.iter().any(is_over) {
            return No(Refusal::Quota);
        }
        *self = after;
        self.1.retain(|quota, _| self.0.contains_key(quota));
        expected
    }

    fn try_apply(&mut self, record: &Record) -> Result<Expected, Expected> {
        match record {
            Record::Create { parent, name, ino, node, mode, .. } => {
                let gone = !self.0.contains_key(&parent.0);
                let taken = gone || self.directory(*parent)?.contains_key(&name.to_string());
                let content = match node {
                    NewNode::Directory => Content::Directory(BTreeMap::new()),
                    NewNode::Symlink(_) => Content::Symlink,
                    _ => Content::File(Vec::new()),
                };
                let node = Node { content, mode: *mode, xattrs: BTreeMap::new() };
                self.0.insert(ino.0, node);
                self.enter(*parent, name, ino.0, taken)
            }
            Record::Link { ino, parent, name } => {
                let node = self.0.get(&ino.0).ok_or(No(Refusal::Stale))?;
                let is_directory = matches!(node.content, Content::Directory(_));
                let found = self.directory(*parent)?.get(&name.to_string()).copied();
                if is_directory {
                    return Err(No(Refusal::NotPermitted));
                }
                if self.names(ino.0) == 0 {
                    return Err(No(Refusal::NotFound));
                }
                if self.around(ino.0) != self.quota_of(parent.0) {
                    return Err(No(Refusal::OtherQuota));
                }
                match found {
                    Some(found) if found == ino.0 => Ok(Done),
                    found => self.enter(*parent, name, ino.0, found.is_some()),
                }
            }
            Record::Unlink { parent, name, ino, open } => {
                let found = self.directory(*parent)?.get(&name.to_string()).copied();
                match found {
                    None => return Ok(Done),
                    Some(found) if found != ino.0 => return Err(No(Refusal::Changed)),
                    Some(found) if self.is_directory(found) => {
                        return Err(No(Refusal::IsDirectory));
                    }
                    Some(_) => {}
                }
                self.directory(*parent)?.remove(&name.to_string());
                self.unnamed(ino.0, *open);
                Ok(Done)
            }
            Record::Rmdir { parent, name, ino } => {
                let found = self.directory(*parent)?.get(&name.to_string()).copied();
                match found {
                    None => return Ok(Done),
                    Some(found) if found != ino.0 => return Err(No(Refusal::Changed)),
                    Some(_) => {}
                }
                if !self.directory(*ino)?.is_empty() {
                    return Err(No(Refusal::NotEmpty));
                }
                self.directory(*parent)?.remove(&name.to_string());
                self.0.remove(&ino.0);
                Ok(Done)
            }
            Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open } => {
                let (from, to) = ((*from_parent, from_name), (*to_parent, to_name));
                self.rename(from, ino.0, to, *mode, *open)
            }
            other => self.change(other),
        }
    }

    /// A new name, if it is free; otherwise the caller takes the name from the outcome.
    fn enter(
        &mut self,
        parent: Ino,
        name: &Name,
        ino: u64,
        taken: bool,
    ) -> Result<Expected, Expected> {
        if taken {
            return Ok(Conflict);
        }
        self.directory(parent)?.insert(name.to_string(), ino);
        Ok(Done)
    }

    fn rename(
        &mut self,
        from: (Ino, &Name),
        ino: u64,
        to: (Ino, &Name),
        mode: RenameMode,
        open: bool,
    ) -> Result<Expected, Expected> {
        let (old, new) = (from.1.to_string(), to.1.to_string());
        let source = self.directory(from.0)?.get(&old).copied();
        let target = self.directory(to.0)?.get(&new).copied();
        if source != Some(ino) {
            return Err(No(Refusal::NotFound));
        }
        if self.is_directory(ino) && self.below(to.0.0, ino) {
            return Err(No(Refusal::Invalid));
        }
        if self.crosses(ino, to.0.0) {
            return Err(No(Refusal::OtherQuota));
        }
        let target = match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(No(Refusal::Exists)),
            (RenameMode::Exchange(_), None) => return Err(No(Refusal::NotFound)),
            (RenameMode::Exchange(expected), Some(target)) if expected.0 != target => {
                return Err(No(Refusal::Changed));
            }
            (_, Some(target)) if target == ino => return Ok(Done),
            (RenameMode::Exchange(_), Some(target)) => {
                if self.is_directory(target) && self.below(from.0.0, target) {
                    return Err(No(Refusal::Invalid));
                }
                if self.crosses(target, from.0.0) {
                    return Err(No(Refusal::OtherQuota));
                }
                self.directory(from.0)?.insert(old, target);
                self.directory(to.0)?.insert(new, ino);
                return Ok(Done);
            }
            (RenameMode::Replace(expected), Some(target)) if expected != Some(Ino(target)) => {
                self.directory(from.0)?.remove(&old);
                return Ok(Conflict);
            }
            (_, target) => target,
        };
        if let Some(target) = target {
            match (self.is_directory(ino), self.is_directory(target)) {
                (true, false) => return Err(No(Refusal::NotDirectory)),
                (false, true) => return Err(No(Refusal::IsDirectory)),
                (true, true) if !self.directory(Ino(target))?.is_empty() => {
                    return Err(No(Refusal::NotEmpty));
                }
                _ => {}
            }
        }
        self.directory(from.0)?.remove(&old);
        self.directory(to.0)?.insert(new, ino);
        if let Some(target) = target {
            let open = open && !self.is_directory(target);
            self.unnamed(target, open);
        }
        Ok(Done)
    }

    fn change(&mut self, record: &Record) -> Result<Expected, Expected> {
        if let Record::Release { ino } = record {
            if self.0.contains_key(&ino.0) && ino.0 != 1 {
                self.unnamed(ino.0, false);
            }
            return Ok(Done);
        }
        let node = self.0.get_mut(&record.ino().0);
        if let Record::Store(store) = record {
            let Some(node) = node else { return Ok(Expected::NeedsWhole) };
            let data = match &mut node.content {
                Content::File(data) => data,
                Content::Directory(_) => return Err(No(Refusal::IsDirectory)),
                Content::Symlink => return Err(No(Refusal::Invalid)),
            };
            let PieceBytes::Inline(bytes) = &store.pieces[0].bytes else { panic!("a chunk") };
            let at = store.pieces[0].offset as usize;
            data.truncate(store.cut.unwrap_or(u64::MAX).min(store.size) as usize);
            data.resize(store.size as usize, 0);
            data[at..at + bytes.len()].copy_from_slice(bytes);
            return Ok(Done);
        }
        let node = node.ok_or(No(Refusal::Stale))?;
        let symlink = node.content == Content::Symlink;
        match record {
            Record::SetAttr { .. } if symlink => Err(No(Refusal::NotSupported)),
            Record::SetAttr { set, .. } => {
                node.mode = set.mode.unwrap_or(node.mode);
                Ok(Done)
            }
            Record::SetXattr { .. } | Record::RemoveXattr { .. } if symlink => {
                Err(No(Refusal::NotPermitted))
            }
            Record::SetXattr { name, value, .. } => {
                node.xattrs.insert(name.clone(), value.clone());
                Ok(Done)
            }
            Record::RemoveXattr { name, .. } => match node.xattrs.remove(name) {
                Some(_) => Ok(Done),
                None => Err(No(Refusal::NoAttribute)),
            },
            other => panic!("{other:?}"),
        }
    }

    /// The copy of a conflict has this name.
    pub(crate) fn conflicted(&mut self, txn: &mut MapTxn, parent: Ino, name: &Name, copy: Ino) {
        self.shelter(txn, parent);
        let old = self.directory(parent).unwrap().insert(name.to_string(), copy.0);
        assert_eq!(old, None, "{name} was not free");
    }

    /// Panics where the store holds something else.
    pub(crate) fn compare(&self, txn: &mut MapTxn) {
        for (number, node) in &self.0 {
            let (ino, attr) = (Ino(*number), attr(txn, Ino(*number)));
            assert_eq!((attr.nlink, attr.mode), (self.nlink(*number), node.mode), "{ino}");
            let xattrs = read::xattrs(txn, VOLUME, ino).unwrap().values;
            assert_eq!(xattrs, node.xattrs.clone().into_iter().collect::<Vec<_>>());
            match &node.content {
                Content::File(data) => assert_eq!(&content(txn, ino), data),
                Content::Symlink => assert_eq!(attr.kind, Kind::Symlink),
                Content::Directory(entries) => {
                    let ask = crate::wire::Readdir { ino, after: None, since: None, limit: 4096 };
                    let page = read::page(txn, VOLUME, &ask).unwrap();
                    let found =
                        page.entries.iter().map(|(name, node)| (name.to_string(), node.attr.ino.0));
                    assert_eq!(found.collect::<BTreeMap<_, _>>(), *entries, "{ino}");
                }
            }
        }
        assert_eq!(tally(txn, VOLUME).unwrap().inodes, self.0.len() as u64);
    }
}

/// An operation: what it is, and numbers to choose its objects by.
pub(crate) type Op = (u8, [usize; 3], [usize; 2], u8);

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let index = || 0usize..1 << 16;
    (0u8..20, [index(), index(), index()], [index(), index()], any::<u8>())
}

/// What operations are mostly about: what is there.
struct Chooser<'a> {
    model: &'a Model,
    all: &'a [Ino],
    /// Now and then an operation is about anything.
    wild: bool,
}

impl Chooser<'_> {
    fn inode(&self, index: usize) -> Ino {
        let there: Vec<_> = self.model.0.keys().collect();
        if self.wild { self.all[index % self.all.len()] } else { Ino(*there[index % there.len()]) }
    }

    fn directory(&self, index: usize) -> Ino {
        let directories: Vec<_> =
            self.model.0.keys().filter(|ino| self.model.is_directory(**ino)).collect();
        let found = Ino(*directories[index % directories.len()]);
        if self.wild { self.inode(index) } else { found }
    }

    /// A directory, a name in it, and what the name means.
    fn entry(&self, index: usize, name: &str) -> (Ino, String, Ino) {
        let entries = self.model.0.iter().filter_map(|(ino, node)| match &node.content {
            Content::Directory(entries) => Some(entries.iter().map(|(name, at)| (*ino, name, *at))),
            _ => None,
        });
        let entries: Vec<_> = entries.flatten().collect();
        if self.wild || entries.is_empty() {
            return (self.directory(index), name.to_owned(), self.inode(index / 7));
        }
        let (parent, name, ino) = entries[index % entries.len()];
        (Ino(parent), name.clone(), Ino(ino))
    }

    fn meant(&self, parent: Ino, name: &str) -> Option<Ino> {
        let found = self.model.clone().directory(parent).ok()?.get(name).copied();
        found.map(Ino)
    }
}

/// The record that `op` is, here and now.
pub(crate) fn record(
    tin: &mut Client,
    txn: &mut MapTxn,
    model: &Model,
    all: &mut Vec<Ino>,
    op: Op,
) -> Record {
    let (what, [first, second, third], names, byte) = op;
    let choose = Chooser { model, all, wild: byte.is_multiple_of(8) };
    let [name, other] = names.map(|index| ["a", "b", "c"][index % 3]);
    let (file, open) = (choose.inode(first), byte & 1 == 0);
    match what {
        0..5 => {
            let node = match byte % 5 {
                0 => NewNode::Symlink(b"target".to_vec()),
                1 | 2 => NewNode::File,
                _ => NewNode::Directory,
            };
            let (ino, parent) = (tin.ino(), choose.directory(first));
            all.push(ino);
            tin.creation(parent, name, ino, node)
        }
        5 => Record::Link { ino: file, parent: choose.directory(second), name: name_of(name) },
        6..9 => {
            let (parent, name, ino) = choose.entry(first, name);
            match model.0.get(&ino.0).is_some_and(|_| model.is_directory(ino.0)) == (what != 8) {
                true => Record::Rmdir { parent, name: name_of(&name), ino },
                false => unlink(parent, &name, ino, open),
            }
        }
        9..14 => {
            let (parent, name, ino) = choose.entry(first, name);
            let (to, other) = match byte % 3 {
                0 => (choose.directory(second), other.to_owned()),
                _ => {
                    let (to, other, _) = choose.entry(second, other);
                    (to, other)
                }
            };
            let meant = choose.meant(to, &other);
            let target = meant.filter(|_| byte % 16 != 3).unwrap_or(choose.inode(third));
            let mode = match byte % 7 {
                0 => RenameMode::NoReplace,
                1 | 2 => RenameMode::Exchange(target),
                3 => RenameMode::Replace(None),
                _ => RenameMode::Replace(Some(target)),
            };
            rename((parent, &name), ino, (to, &other), mode)
        }
        14 => {
            let set = SetAttr { mode: Some(u32::from(byte)), ..SetAttr::default() };
            Record::SetAttr { ino: file, set }
        }
        15 => {
            let (name, value) = (format!("user.{name}").into_bytes(), vec![byte]);
            Record::SetXattr { ino: file, name, value }
        }
        16 => Record::RemoveXattr { ino: file, name: format!("user.{name}").into_bytes() },
        17 => Record::Release { ino: file },
        _ => {
            let base = read::getattr(txn, VOLUME, file).map(|node| node.attr.data_version);
            let (offset, len) = (names[0] as u64 % 300, names[1] % 300 + 1);
            let cut = byte.is_multiple_of(3).then_some(u64::from(byte));
            let size = offset + len as u64 + u64::from(byte);
            let bytes = PieceBytes::Inline(vec![byte; len]);
            let pieces = vec![Piece { offset, bytes }];
            let base = Base::Version(base.unwrap_or_default());
            Record::Store(Store { ino: file, base, cut, size, pieces, mtime: None, whole: false })
        }
    }
}

/// What an outcome is in the model, which learns the name of a conflict's copy.
pub(crate) fn came_to(model: &mut Model, txn: &mut MapTxn, outcome: &Outcome) -> Expected {
    match outcome {
        Outcome::Done { .. } => Expected::Done,
        Outcome::Refused { refusal } => Expected::Refused(*refusal),
        Outcome::NeedsWhole => Expected::NeedsWhole,
        Outcome::Missing { .. } => panic!("{outcome:?}"),
        Outcome::Conflict { parent, name, copy, .. } => {
            model.conflicted(txn, *parent, name, *copy);
            Expected::Conflict
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_volume_is_a_posix_tree(ops in prop::collection::vec(op(), 1..80)) {
        let mut txn = store();
        let mut tin = Client::new(&mut txn, 1, OWNER);
        let (mut model, mut all) = (Model::new(), vec![Ino::ROOT]);
        for op in ops {
            let record = record(&mut tin, &mut txn, &model, &mut all, op);
            let expected = model.apply(&record);
            let stamped = tin.stamp(record.clone());
            let first = tin.send(&mut txn, &stamped);
            let ApplyResult::Outcome(outcome) = &first else { panic!("{first:?}") };
            prop_assert_eq!(came_to(&mut model, &mut txn, outcome), expected, "{:?}", record);
            let before = txn.clone();
            prop_assert_eq!(tin.send(&mut txn, &stamped), first.again());
            prop_assert_eq!(&txn, &before, "a repeat changed something");
            model.compare(&mut txn);
        }
    }
}
