//! Extended attributes: what is known of them. What was known before the inode changed is for when
//! nobody can be asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::lifetime::Known;
use super::tree::{NodeEntry, Tree};
use crate::nouns::{Ino, Time, Timestamp, Version};
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

    /// The server says what the extended attributes of `ino` are as of `change`. An answer that an
    /// outcome has overtaken is old.
    pub fn install_xattrs(&mut self, ino: Ino, change: Version, map: XattrMap) {
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
    use crate::nouns::Kind;
    use crate::testing::attr;

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
