//! The effect of this host's own changes on its view of the tree, before the server has them.

use super::as_of::{AsOf, When};
use super::tree::{Length, Listing, NameEntry, NodeEntry, Tree};
use crate::namespace::mode_after_write;
use crate::nouns::{
    Attr, Ino, Kind, Name, NewNode, Record, RenameMode, SetAttr, Time, Timestamp, Touched, Version,
    names_after, touched,
};
use crate::wire::Node;

/// What this host changed of an inode of which it knows nothing else: after a restart, where it was
/// not noted yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unsettled {
    /// How many changes.
    pub(super) pending: u32,
    /// How long they made it.
    pub(super) size: Option<u64>,
    /// Whether that is known.
    pub(super) length: Length,
}

impl Unsettled {
    /// `attr`, as somebody else knows the inode, with what was changed here.
    pub(super) fn applied_to(self, mut attr: Attr) -> Attr {
        if self.pending > 0 {
            attr.size = self.size.unwrap_or(attr.size);
        }
        attr
    }
}

impl Tree {
    /// Counts one more unsettled change of `ino`.
    pub fn mark(&mut self, ino: Ino) {
        self.stir(ino);
        match self.nodes.get_mut(&ino) {
            Some(node) => node.pending += 1,
            None => self.unknown.entry(ino).or_default().pending += 1,
        }
    }

    /// Counts one more unsettled change of all of these.
    pub(crate) fn mark_all(&mut self, touched: &Touched) {
        touched.inodes.iter().for_each(|&ino| self.mark(ino));
        for key in &touched.names {
            self.unnoted.names.insert(key.clone());
            let unknown = || NameEntry::new(None, None);
            self.names.entry(key.clone()).or_insert_with(unknown).pending += 1;
        }
    }

    /// Takes in the names that the pending `record` of an earlier life changed, unless the index
    /// had them. It forgets names with a directory that the server has forgotten.
    pub(crate) fn recall_names(&mut self, record: &Record) {
        for (key, ino) in names_after(record) {
            self.names.entry(key).or_insert_with(|| NameEntry::new(ino, None));
        }
    }

    /// Makes `record` part of this host's view. The caller has checked that it can be.
    pub fn apply(&mut self, record: &Record, time: Timestamp) {
        if let Record::Create { parent, ino, node, mode, uid, gid, .. } = record {
            let mut new = new_node(*ino, node, *mode, *uid, *gid, time);
            new.attr.quota = self.quota_of(*parent);
            new.pending = self.unknown.remove(ino).unwrap_or_default().pending;
            self.nodes.insert(*ino, new);
            self.unnoted.nodes.insert(*ino);
        }
        self.mark_all(&touched(record));
        for (key, ino) in names_after(record) {
            self.change_name(key, ino, time);
        }
        match record {
            Record::Create { parent, node, .. } => {
                if *node == NewNode::Directory {
                    self.change_nlink(*parent, 1);
                }
            }
            Record::Link { ino, .. } => {
                self.change_nlink(*ino, 1);
                self.touch_ctime(*ino, time);
            }
            Record::Unlink { ino, .. } => {
                self.change_nlink(*ino, -1);
                self.touch_ctime(*ino, time);
            }
            Record::Rmdir { parent, ino, .. } => {
                self.change_nlink(*parent, -1);
                self.change_nlink(*ino, -2);
            }
            Record::Rename { .. } => self.rename(record, time),
            Record::SetAttr { ino, set } => self.set_attr(*ino, set, time),
            Record::SetXattr { ino, name, value } => {
                self.change_xattr(*ino, time, name, Some(value));
            }
            Record::RemoveXattr { ino, name } => {
                self.change_xattr(*ino, time, name, None);
            }
            Record::Clone { ino, from, version, .. } => {
                match self.peek(*from).filter(|source| source.data_version == *version) {
                    Some(&Attr { size, allocated, .. }) => {
                        self.data_changed(*ino, size, allocated, time);
                    }
                    None => self.lose_length(*ino, Length::AsOutcomeSays),
                }
            }
            Record::Store(_) | Record::Release { .. } => {}
        }
    }

    fn change_name(&mut self, key: (Ino, Name), ino: Option<Ino>, time: Timestamp) {
        self.unnoted.nodes.extend(ino.filter(|ino| self.nodes.contains_key(ino)));
        self.put_at(ino, &key);
        if let Some(entry) = self.names.get_mut(&key) {
            entry.ino = ino;
        }
        self.listed_anew.insert(key.0);
        self.touch_directory(key.0, time);
    }

    fn rename(&mut self, record: &Record, time: Timestamp) {
        let Record::Rename { from_parent, ino, to_parent, mode, .. } = record else { return };
        let moved_directory = self.is_directory(*ino);
        self.touch_ctime(*ino, time);
        self.count_against(*ino, *to_parent);
        if moved_directory && from_parent != to_parent {
            self.change_nlink(*from_parent, -1);
            self.change_nlink(*to_parent, 1);
        }
        match mode {
            RenameMode::Replace(Some(replaced)) if self.is_directory(*replaced) => {
                self.change_nlink(*replaced, -2);
                self.change_nlink(*to_parent, -1);
            }
            RenameMode::Replace(Some(replaced)) => {
                self.change_nlink(*replaced, -1);
                self.touch_ctime(*replaced, time);
            }
            RenameMode::Exchange(other) => {
                self.count_against(*other, *from_parent);
                self.touch_ctime(*other, time);
                if self.is_directory(*other) && from_parent != to_parent {
                    self.change_nlink(*from_parent, 1);
                    self.change_nlink(*to_parent, -1);
                }
            }
            RenameMode::Replace(None) | RenameMode::NoReplace => {}
        }
    }

    fn quota_of(&self, ino: Ino) -> Option<Ino> {
        self.nodes.get(&ino).and_then(|node| node.attr.quota)
    }

    /// A file that moves counts against its new directory's quota; directories move inside of
    /// one only.
    fn count_against(&mut self, ino: Ino, directory: Ino) {
        let quota = self.quota_of(directory);
        if let Some(node) = self.node_mut(ino)
            && node.attr.kind != Kind::Directory
        {
            node.attr.quota = quota;
        }
    }

    fn set_attr(&mut self, ino: Ino, set: &SetAttr, time: Timestamp) {
        let Some(node) = self.node_mut(ino) else { return };
        let attr = &mut node.attr;
        if (set.uid.is_some() || set.gid.is_some()) && attr.kind != Kind::Directory {
            attr.mode = mode_after_write(attr.mode);
        }
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.unwrap_or(attr.atime);
        attr.mtime = set.mtime.unwrap_or(attr.mtime);
        attr.ctime = time;
    }

    /// The data of `ino` changed here.
    pub fn data_changed(&mut self, ino: Ino, size: u64, allocated: u64, time: Timestamp) {
        match self.node_mut(ino) {
            Some(node) => {
                node.attr.size = size;
                node.length = Length::Known;
                node.attr.allocated = allocated.min(size.next_multiple_of(4096));
                node.attr.mtime = time;
                node.attr.ctime = time;
            }
            None => self.note_unknown(ino, size),
        }
    }

    /// Notes that `ino`, of which nothing else is known, was made `size` long here.
    fn note_unknown(&mut self, ino: Ino, size: u64) {
        let unsettled = self.unknown.entry(ino).or_default();
        (unsettled.size, unsettled.length) = (Some(size), Length::Known);
    }

    /// Notes the size at which an earlier life left `ino`, unless the index knows the inode.
    pub(crate) fn note_left(&mut self, ino: Ino, size: u64) {
        if !self.nodes.contains_key(&ino) {
            self.note_unknown(ino, size);
        }
    }

    /// How long `ino` is here. That is known of an inode, too, of which only the log tells.
    pub(in crate::host) fn size_here(&self, ino: Ino) -> Option<u64> {
        let node = self.nodes.get(&ino).map(|node| node.attr.size);
        node.or_else(|| self.unknown.get(&ino)?.size)
    }

    /// Somebody without the right to keep them wrote `ino`, whose change is pending: its set-id
    /// bits are gone.
    pub fn drop_set_ids(&mut self, ino: Ino) {
        if let Some(node) = self.node_mut(ino) {
            node.attr.mode = mode_after_write(node.attr.mode);
        }
    }

    fn change_nlink(&mut self, ino: Ino, by: i32) {
        if let Some(node) = self.node_mut(ino) {
            node.attr.nlink = node.attr.nlink.saturating_add_signed(by);
        }
    }

    fn touch_ctime(&mut self, ino: Ino, time: Timestamp) {
        if let Some(node) = self.node_mut(ino) {
            node.attr.ctime = time;
        }
    }

    fn touch_directory(&mut self, ino: Ino, time: Timestamp) {
        if let Some(node) = self.node_mut(ino) {
            node.attr.mtime = time;
            node.attr.ctime = time;
        }
    }

    /// A change that touched these is committed, as its outcome says.
    pub fn settle(&mut self, touched: &Touched, as_of: &AsOf) {
        self.unmark(touched, |ino| Some(as_of.of(ino)));
    }

    /// `attrs` are what an outcome says of the server's inodes. Of one that is changed here
    /// only its data are taken over, version and size together, unless the data are what is
    /// `ahead`: then the size is this host's.
    pub fn learn(&mut self, attrs: &[Attr], ahead: impl Fn(Ino) -> bool, as_of: &AsOf) {
        for attr in attrs {
            let Some(node) = self.nodes.get_mut(&attr.ino) else {
                // An answer from before that comes late is not to be believed.
                self.broken(attr.ino, as_of.came());
                continue;
            };
            node.outcome = Some(as_of.came());
            if attr.change < node.attr.change {
                // Of two lanes, one's outcome comes after a later one of the other.
                node.checked = None;
                continue;
            }
            let is_overtaken = attr.change < node.said;
            if node.listing == Listing::Own {
                node.listing = Listing::Complete(Some(as_of.of(attr.ino)));
            }
            if node.pending == 0 {
                self.put_node(Node { attr: *attr, target: None }, as_of);
            } else {
                self.unnoted.nodes.insert(attr.ino);
                self.listed_anew.extend(node.may_be_back(attr));
                node.attr.change = attr.change;
                if !ahead(attr.ino) {
                    node.follow_data(attr);
                }
            }
            self.promised_of(attr.ino, as_of);
            if is_overtaken {
                // A server repeats an outcome, and the inode has changed since.
                self.broken(attr.ino, as_of.came());
            }
        }
    }

    /// The server has refused data of `ino`. Until the server is asked, the size of the file there
    /// is not known.
    pub(crate) fn lose_size(&mut self, ino: Ino) {
        if self.nodes.contains_key(&ino) {
            self.lose_length(ino, Length::AsServerSays);
        }
    }

    /// A copy by the server into `ino` is pending again. If the index has no attributes of `ino`,
    /// only the outcome says how long it is.
    pub(in crate::host) fn clone_goes_on(&mut self, ino: Ino) {
        if !self.nodes.contains_key(&ino) {
            self.lose_length(ino, Length::AsOutcomeSays);
        }
    }

    fn lose_length(&mut self, ino: Ino, until: Length) {
        match self.node_mut(ino) {
            Some(node) => node.length = until,
            None => self.unknown.entry(ino).or_default().length = until,
        }
    }

    /// A change that touched these will never be: the server's view is to be asked for.
    pub fn undo(&mut self, touched: &Touched) {
        self.unmark(touched, |_| None);
        touched.inodes.iter().for_each(|&ino| self.expire(ino));
    }

    /// A change that touched these was taken back before anybody else could hear of it: names are
    /// as they were before, but for those that another host gave meanwhile, which are to be asked
    /// for.
    pub(crate) fn cancel(&mut self, touched: &Touched) {
        self.unmark_inodes(touched);
        for key in &touched.names {
            let Some(entry) = self.names.get_mut(key) else { continue };
            one_less(&mut entry.pending);
            entry.checked = None;
            if entry.pending > 0 {
                continue;
            }
            let (ino, hides) = (entry.ino, entry.hides);
            let is_partial =
                self.nodes.get(&key.0).is_none_or(|node| node.listing == Listing::Partial);
            // Where not all names are known this one is known to be none.
            if ino.is_some() || !is_partial || hides {
                self.drop_name(key.clone());
            }
            if hides {
                self.doubt_listing(key.0, None);
            }
        }
    }

    /// One change less of these is unsettled; names with none are known since `checked`, which
    /// depends on their directory.
    fn unmark(&mut self, touched: &Touched, checked: impl Fn(Ino) -> Option<Time>) {
        self.unmark_inodes(touched);
        for key in &touched.names {
            let Some(entry) = self.names.get_mut(key) else { continue };
            one_less(&mut entry.pending);
            if entry.pending == 0 {
                let checked = checked(key.0);
                (entry.checked, entry.hides) = (checked, false);
                if checked.is_none() {
                    self.drop_name(key.clone());
                }
                self.doubt_listing(key.0, checked);
            }
        }
    }

    /// Panics if an unsettled change counts, of which there are none.
    pub(in crate::host) fn check_settled(&self) {
        let node = self.nodes.iter().find(|(_, node)| node.pending > 0);
        assert!(node.is_none(), "{:?} has unsettled changes", node.map(|(ino, _)| ino));
        let name = self.names.iter().find(|(_, name)| name.pending > 0);
        assert!(name.is_none(), "{:?} has unsettled changes", name.map(|(key, _)| key));
    }

    fn unmark_inodes(&mut self, touched: &Touched) {
        for ino in &touched.inodes {
            self.stir(*ino);
            if let Some(node) = self.nodes.get_mut(ino) {
                one_less(&mut node.pending);
                if node.pending == 0 {
                    // The outcome's attributes follow; without them, ask.
                    node.checked = None;
                    self.listed_anew.extend(node.settled());
                }
            } else if let Some(unsettled) = self.unknown.get_mut(ino) {
                one_less(&mut unsettled.pending);
                if unsettled.pending == 0 {
                    self.unknown.remove(ino);
                }
            }
        }
    }

    /// A name in `directory` was ours until now, and is what the server made of it when it was
    /// asked at `checked`. A listing that came since may have it as it was before, or as another
    /// host made it afterwards.
    fn doubt_listing(&mut self, directory: Ino, checked: Option<Time>) {
        if let Some(node) = self.nodes.get_mut(&directory)
            && matches!(node.listing, Listing::Complete(Some(at)) if checked < Some(at))
        {
            node.listing = Listing::Complete(None);
        }
    }
}

fn new_node(ino: Ino, node: &NewNode, mode: u32, uid: u32, gid: u32, time: Timestamp) -> NodeEntry {
    let (kind, rdev) = match node {
        NewNode::File => (Kind::File, 0),
        NewNode::Directory => (Kind::Directory, 0),
        NewNode::Symlink(_) => (Kind::Symlink, 0),
        NewNode::Fifo => (Kind::Fifo, 0),
        NewNode::Socket => (Kind::Socket, 0),
        NewNode::CharDevice(rdev) => (Kind::CharDevice, *rdev),
        NewNode::BlockDevice(rdev) => (Kind::BlockDevice, *rdev),
    };
    let target = match node {
        NewNode::Symlink(target) => Some(target.clone()),
        _ => None,
    };
    let attr = Attr {
        ino,
        kind,
        mode,
        nlink: if kind == Kind::Directory { 2 } else { 1 },
        uid,
        gid,
        rdev,
        size: target.as_ref().map_or(0, |target| target.len() as u64),
        allocated: 0,
        atime: time,
        mtime: time,
        ctime: time,
        change: Version::default(),
        data_version: Version::default(),
        quota: None,
        lm: None,
    };
    let listing = if kind == Kind::Directory { Listing::Own } else { Listing::Partial };
    NodeEntry {
        attr,
        target,
        checked: None,
        pending: 0,
        listing,
        xattrs: Some(super::xattrs::Xattrs::default()),
        place: None,
        is_orphan: false,
        is_named_again: false,
        length: Length::Known,
        outcome: None,
        told: None,
        said: Version::default(),
        promise: None,
        listed: None,
    }
}

/// A pending change ends. One that was not counted would leave an answer of the server on top of
/// what this host changed.
fn one_less(pending: &mut u32) {
    assert!(*pending > 0, "a change that ends was counted as pending");
    *pending -= 1;
}
