//! Which listings were told whole, with the inodes that they name: who was told so may use them as
//! long as the listing, and need not be told again before.

use super::tree::{Listing, Tree};
use crate::types::{Ino, Time};

impl Tree {
    /// Who asked was told all that `directory` names, and for how long it may be used.
    pub fn tell(&mut self, directory: Ino) {
        if let Some(node) = self.nodes.get_mut(&directory)
            && let Listing::Complete(checked) = node.listing
        {
            node.told = checked;
        }
    }

    /// True if all that `directory` names was told since it was asked for, and may be used still.
    pub fn is_told(&self, directory: Ino, now: Time) -> bool {
        self.nodes.get(&directory).is_some_and(|node| match node.listing {
            Listing::Complete(checked) => node.told == checked && self.is_fresh(checked, now),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::attr;
    use crate::types::Kind;

    const LIFETIME: Duration = Duration::from_secs(1);

    #[test]
    fn what_was_told_is_told_again_once_it_was_asked_for_again_or_is_stale() {
        let mut tree = Tree::new(LIFETIME, 100);
        let attr = attr(7, Kind::Directory, 1);
        let at = |ms| Time(Duration::from_millis(ms));
        tree.tell(Ino(7));
        assert!(tree.install_listing(attr, Vec::new(), at(0)));
        assert!(!tree.is_told(Ino(7), at(10)));
        tree.tell(Ino(7));
        assert!(tree.is_told(Ino(7), at(10)) && !tree.is_told(Ino(7), at(1000)));
        assert!(tree.install_listing(attr, Vec::new(), at(500)));
        assert!(!tree.is_told(Ino(7), at(510)));
        tree.tell(Ino(7));
        tree.distrust_absence(Ino(7));
        tree.tell(Ino(7));
        assert!(!tree.is_told(Ino(7), at(520)));
    }
}
