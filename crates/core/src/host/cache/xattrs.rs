//! Extended attributes: what is known of them. What was known before the inode changed is for when
//! nobody can be asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::lifetime::Known;
use super::tree::{NodeEntry, Tree};
use crate::host::Host;
use crate::host::log::Change;
use crate::nouns::{Ino, Record, Time, Timestamp, Version};
use crate::persist::{self, Lm};

/// Names and values of extended attributes.
pub type XattrMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Extended attributes as they were at some time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Xattrs {
    /// What they were.
    pub map: XattrMap,
    /// The inode has changed since, on the server.
    pub is_old: bool,
}

impl Host {
    /// The server says that the extended attributes of `ino` are `map` as of `change`. It does not
    /// have the changes in the queue, and these are made to them first.
    pub(in crate::host) fn told_xattrs(&mut self, ino: Ino, change: Version, mut map: XattrMap) {
        for change in self.queue.of(ino) {
            match change {
                Change::Record(Record::SetXattr { name, value, .. }) => {
                    map.insert(name.clone(), value.clone());
                }
                Change::Record(Record::RemoveXattr { name, .. }) => drop(map.remove(name)),
                _ => {}
            }
        }
        self.tree.install_xattrs(ino, change, map);
    }
}

impl Tree {
    /// Extended attributes of `ino`.
    pub fn xattrs(&self, ino: Ino, now: Time) -> Known<&XattrMap> {
        match self.nodes.get(&ino) {
            Some(NodeEntry { xattrs: Some(known), .. }) if known.is_old => Known::Stale(&known.map),
            Some(NodeEntry { xattrs: Some(known), pending, checked, .. }) => {
                self.judge(&known.map, ino, (*pending, *checked), now)
            }
            _ => Known::Unknown,
        }
    }

    /// As of `change` the extended attributes of `ino` were these. An answer that an outcome has
    /// overtaken is old.
    fn install_xattrs(&mut self, ino: Ino, change: Version, map: XattrMap) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let is_known = node.xattrs.as_ref().is_some_and(|known| !known.is_old);
        let is_old = change < node.attr.change;
        let xattrs = Some(Xattrs { map, is_old });
        if (node.pending == 0 && !is_old || !is_known) && node.xattrs != xattrs {
            node.xattrs = xattrs;
            self.unnoted.nodes.insert(ino);
        }
    }

    /// One of them gets a value, or goes.
    pub(super) fn change_xattr(
        &mut self,
        ino: Ino,
        time: Timestamp,
        name: &[u8],
        value: Option<&[u8]>,
    ) {
        let Some(node) = self.node_mut(ino) else { return };
        if let Some(known) = node.xattrs.as_mut() {
            match value {
                Some(value) => known.map.insert(name.to_vec(), value.to_vec()),
                None => known.map.remove(name),
            };
            // This host's own truth until the server has it.
            known.is_old = false;
        }
        if name == persist::ATTRIBUTE {
            node.attr.lm = value.and_then(Lm::of_attribute);
        }
        node.attr.ctime = time;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::nouns::{Caller, Kind};
    use crate::testing::attr;

    /// After a restart nothing was known but the pending change, and its attribute was not seen.
    #[test]
    fn what_waits_for_the_server_is_seen_over_what_that_says() {
        let mut host = Host::new(100, 1);
        host.reserve_seqs(10);
        let (ino, now) = (Ino(5), Time::default());
        let node = crate::wire::Node { attr: attr(5, Kind::File, 1), target: None };
        host.tree.install_node(node, now);
        let records = [
            Record::SetXattr { ino, name: b"user.a".to_vec(), value: b"new".to_vec() },
            Record::RemoveXattr { ino, name: b"user.b".to_vec() },
            Record::SetXattr { ino: Ino(6), name: b"user.c".to_vec(), value: b"other".to_vec() },
        ];
        for record in records {
            let entry = host.draft_change(record, Caller::default(), Timestamp::default());
            host.admit(entry, now);
        }
        let told = [(b"user.b".to_vec(), b"old".to_vec()), (b"user.d".to_vec(), b"old".to_vec())];
        host.told_xattrs(ino, Version { epoch: 1, counter: 1 }, told.into());
        let seen = [(b"user.a".to_vec(), b"new".to_vec()), (b"user.d".to_vec(), b"old".to_vec())];
        assert_eq!(host.tree.xattrs(ino, now), Known::Fresh(&seen.into()));
    }

    #[test]
    fn those_of_an_older_version_are_kept_for_when_nobody_can_be_asked() {
        let mut tree = Tree::new(100);
        tree.set_poll(Duration::from_secs(1));
        let node = |counter| crate::wire::Node { attr: attr(5, Kind::File, counter), target: None };
        let map = |value: &[u8]| XattrMap::from([(b"user.a".to_vec(), value.to_vec())]);
        let now = Time::default();
        tree.install_node(node(1), now);
        assert_eq!(tree.xattrs(Ino(5), now), Known::Unknown);
        let version = |counter| Version { epoch: 1, counter };
        tree.install_xattrs(Ino(5), version(1), map(b"old"));
        assert_eq!(tree.xattrs(Ino(5), now), Known::Fresh(&map(b"old")));
        tree.install_node(node(2), now);
        assert_eq!(tree.xattrs(Ino(5), now), Known::Stale(&map(b"old")));
        tree.install_xattrs(Ino(5), version(2), map(b"new"));
        assert_eq!(tree.xattrs(Ino(5), now), Known::Fresh(&map(b"new")));
        // An answer from before the change comes late.
        tree.install_xattrs(Ino(5), version(1), map(b"old"));
        assert_eq!(tree.xattrs(Ino(5), now), Known::Fresh(&map(b"new")));
    }
}
