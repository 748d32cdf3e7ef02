use std::time::Duration;

use super::*;
use crate::nouns::{
    Attr, Ino, Kind, Name, NewNode, Record, RenameMode, SetAttr, Time, Timestamp, Touched, Version,
    touched,
};
use crate::testing::attr;
use crate::wire::{History, Node, Page};

fn at(secs: u64) -> Time {
    Time(Duration::from_secs(secs))
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn tree() -> Tree {
    let mut tree = Tree::new(100);
    tree.set_poll(Duration::from_secs(1));
    tree.install_listing(attr(1, Kind::Directory, 1), Vec::new(), at(0));
    tree
}

fn create(ino: u64, text: &str, node: NewNode) -> Record {
    Record::Create {
        parent: Ino::ROOT,
        name: name(text),
        ino: Ino(ino),
        node,
        mode: 0o644,
        uid: 0,
        gid: 0,
    }
}

#[test]
fn a_complete_listing_knows_what_is_not_there_for_its_lifetime() {
    let tree = tree();
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(0)), Known::Fresh(None));
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(2)), Known::Stale(None));
}

#[test]
fn how_long_a_listing_is_is_known() {
    let mut tree = Tree::new(100);
    tree.set_poll(Duration::from_secs(1));
    assert!(!tree.is_listed_within(Ino::ROOT, 9));
    let entries = vec![(name("a"), Node { attr: attr(5, Kind::File, 1), target: None })];
    tree.install_listing(attr(1, Kind::Directory, 1), entries, at(1));
    assert!(tree.is_listed_within(Ino::ROOT, 1) && !tree.is_listed_within(Ino::ROOT, 0));
}

/// A directory was listed without what another host had made in it, while this host had something
/// of that name, which it then removed before the server heard of it.
#[test]
fn what_the_server_named_behind_what_was_taken_back_is_asked_for() {
    let record = create(5, "a", NewNode::File);
    let removal = Record::Unlink { parent: Ino::ROOT, name: name("a"), ino: Ino(5), open: false };
    let root = || attr(1, Kind::Directory, 2);
    let theirs = || Node { attr: attr(7, Kind::File, 2), target: None };
    let taken_back = |mut tree: Tree, told: &dyn Fn(&mut Tree) -> bool| {
        tree.apply(&record, Timestamp::default());
        assert!(told(&mut tree));
        tree.apply(&removal, Timestamp::default());
        [&record, &removal].iter().for_each(|record| tree.cancel(&touched(record)));
        (tree.name(Ino::ROOT, &name("a"), at(1)), tree.listing(Ino::ROOT, at(1)))
    };
    let list = |tree: &mut Tree| tree.install_listing(root(), vec![(name("a"), theirs())], at(1));
    let (known, listing) = taken_back(tree(), &list);
    assert_eq!((known, listing), (Known::Stale(None), Known::Stale(Vec::new())));
    let look = |tree: &mut Tree| tree.install_name(root(), name("a"), Some(theirs()), at(1));
    assert_eq!(taken_back(Tree::new(100), &look).0, Known::Unknown);
    let other = |tree: &mut Tree| tree.install_listing(root(), Vec::new(), at(1));
    let (known, listing) = taken_back(tree(), &other);
    assert_eq!((known, listing), (Known::Fresh(None), Known::Fresh(Vec::new())));
}

#[test]
fn what_is_pending_here_is_not_overwritten_by_the_server() {
    let mut tree = tree();
    let record = create(5, "a", NewNode::File);
    tree.apply(&record, Timestamp::default());
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(9)), Known::Fresh(Some(Ino(5))));
    tree.install_listing(attr(1, Kind::Directory, 1), Vec::new(), at(9));
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(9)), Known::Fresh(Some(Ino(5))));
    tree.settle(&touched(&record), &tree.as_of(None, [at(10); 2]));
    tree.learn(
        &[attr(5, Kind::File, 1), attr(1, Kind::Directory, 1)],
        |_| false,
        &tree.as_of(None, [at(10); 2]),
    );
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(10)), Known::Fresh(Some(Ino(5))));
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(20)), Known::Stale(Some(Ino(5))));
    assert!(tree.install_name(attr(1, Kind::Directory, 1), name("a"), None, at(20)));
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(20)), Known::Fresh(None));
}

/// A listing asked for before an rmdir was committed arrived after its outcome and brought the
/// directory back: git gc then found a name whose inode was gone (ESTALE).
#[test]
fn a_reply_that_was_overtaken_by_an_outcome_changes_nothing() {
    let mut tree = tree();
    let entries = vec![(name("d"), Node { attr: attr(5, Kind::Directory, 1), target: None })];
    let old = attr(1, Kind::Directory, 1);
    assert!(tree.install_listing(old, entries.clone(), at(0)));
    let record = Record::Rmdir { parent: Ino::ROOT, name: name("d"), ino: Ino(5) };
    tree.apply(&record, Timestamp::default());
    let change = Version { epoch: 1, counter: 2 };
    tree.settle(&touched(&record), &tree.as_of(None, [at(0); 2]));
    tree.learn(&[Attr { change, ..old }], |_| false, &tree.as_of(None, [at(0); 2]));
    assert!(!tree.install_listing(old, entries, at(0)));
    let node = Node { attr: attr(5, Kind::Directory, 1), target: None };
    assert!(!tree.install_name(old, name("d"), Some(node), at(0)));
    assert_eq!(tree.name(Ino::ROOT, &name("d"), at(0)), Known::Fresh(None));
}

/// Two batches were under way: the later one's outcome came first, and the earlier one's was
/// believed (seed 2994).
#[test]
fn an_outcome_that_was_overtaken_by_a_later_one_is_not_believed() {
    let mut tree = tree();
    let known = |counter, size| Attr {
        size,
        change: Version { epoch: 1, counter },
        ..attr(5, Kind::File, counter)
    };
    tree.install_node(Node { attr: known(1, 1), target: None }, at(0));
    let as_of = tree.as_of(None, [at(0); 2]);
    tree.learn(&[known(3, 30)], |_| false, &as_of);
    assert!(matches!(tree.attr(Ino(5), at(0)), Known::Fresh(attr) if attr.size == 30));
    tree.learn(&[known(2, 20)], |_| false, &as_of);
    assert!(matches!(tree.attr(Ino(5), at(0)), Known::Stale(attr) if attr.size == 30));
}

#[test]
fn a_name_is_not_promised_for_longer_than_it_was_checked() {
    let mut tree = tree();
    let node = |ino| Node { attr: attr(ino, Kind::File, 1), target: None };
    tree.install_name(attr(1, Kind::Directory, 1), name("a"), Some(node(5)), at(0));
    let later = Time(Duration::from_millis(900));
    tree.install_node(node(5), later);
    assert_eq!(tree.remaining(Ino(5), later), Duration::from_secs(1));
    let left = tree.name_remaining(Ino::ROOT, &name("a"), Ino(5), later);
    assert_eq!(left, Duration::from_millis(100));
}

#[test]
fn what_a_listing_names_is_known_for_as_long_as_the_listing() {
    let mut tree = tree();
    let entries = vec![(name("a"), Node { attr: attr(5, Kind::File, 1), target: None })];
    tree.install_listing(attr(1, Kind::Directory, 1), entries, at(0));
    let later = Time(Duration::from_millis(600));
    tree.install_node(Node { attr: attr(5, Kind::File, 1), target: None }, later);
    let listed = tree.listed(Ino::ROOT, [Ino(5), Ino(6)].into_iter(), [later; 2]);
    assert_eq!(listed[0].map(|(_, left)| left), Some(Duration::from_millis(400)));
    assert_eq!(listed[1], None);
    assert_eq!(tree.listed(Ino::ROOT, [Ino(5)].into_iter(), [at(9); 2])[0], None);
    let read = tree.listed(Ino::ROOT, [Ino(5)].into_iter(), [at(0), at(9)])[0];
    assert_eq!(read.map(|(_, left)| left), Some(Duration::ZERO), "it was asked for by who reads");
    tree.broken(Ino(5), at(9));
    assert_eq!(tree.attr_since(Ino(5), [at(0), at(9)]), None, "and has changed");
}

#[test]
fn a_directory_made_here_needs_no_question_about_its_names() {
    let mut tree = tree();
    tree.apply(&create(5, "d", NewNode::Directory), Timestamp::default());
    assert_eq!(tree.name(Ino(5), &name("x"), at(99)), Known::Fresh(None));
    assert_eq!(tree.listing(Ino(5), at(99)), Known::Fresh(Vec::new()));
    assert_eq!(tree.peek(Ino::ROOT).unwrap().nlink, 2);
}

/// Another copy of this cache may make it again.
#[test]
fn a_removed_file_that_has_a_name_again_is_shown() {
    let mut tree = Tree::new(100);
    let root = attr(1, Kind::Directory, 1);
    let file = |change| Node { attr: attr(7, Kind::File, change), target: None };
    tree.install_name(root, name("f"), Some(file(2)), at(0));
    tree.mark_orphan(Ino(7));
    let meaning = |tree: &Tree| tree.name(Ino::ROOT, &name("f"), at(0)).usable(true).flatten();
    for change in [1, 2] {
        tree.install_name(root, name("f"), Some(file(change)), at(0));
        assert_eq!(meaning(&tree), None);
    }
    tree.install_name(root, name("f"), Some(file(3)), at(0));
    assert_eq!(meaning(&tree), Some(Ino(7)));
}

/// Its server was put back. An outcome tells of it first, while it has a change of this host.
#[test]
fn a_removed_file_that_an_outcome_finds_under_a_name_is_shown() {
    let mut tree = Tree::new(100);
    let file = |change| Node { attr: attr(7, Kind::File, change), target: None };
    tree.install_name(attr(1, Kind::Directory, 1), name("f"), Some(file(9)), at(0));
    tree.mark_orphan(Ino(7));
    tree.forget_lost(&crate::wire::History { epoch: 1, lives: vec![(1, 5)] });
    tree.mark(Ino(7));
    tree.learn(&[file(2).attr], |_| true, &tree.as_of(None, [at(1); 2]));
    tree.undo(&Touched { inodes: vec![Ino(7)], names: Vec::new() });
    tree.install_name(attr(1, Kind::Directory, 1), name("f"), Some(file(2)), at(2));
    let meaning = tree.name(Ino::ROOT, &name("f"), at(2)).usable(true).flatten();
    assert_eq!(meaning, Some(Ino(7)));
}

/// Its server was put back. What its host had written through a handle is in no log.
#[test]
fn a_removed_file_that_has_a_name_again_is_shown_when_it_has_no_changes() {
    let mut tree = Tree::new(100);
    let root = attr(1, Kind::Directory, 1);
    let file = |change| Node { attr: attr(7, Kind::File, change), target: None };
    tree.install_name(root, name("f"), Some(file(9)), at(0));
    tree.mark_orphan(Ino(7));
    tree.mark(Ino(7));
    tree.forget_lost(&crate::wire::History { epoch: 1, lives: vec![(1, 5)] });
    tree.install_name(root, name("f"), Some(file(2)), at(2));
    let meaning = |tree: &Tree| tree.name(Ino::ROOT, &name("f"), at(2)).usable(true).flatten();
    assert_eq!(meaning(&tree), None);
    tree.undo(&Touched { inodes: vec![Ino(7)], names: Vec::new() });
    assert_eq!(meaning(&tree), Some(Ino(7)));
}

/// The server knows a file that this host made by another number. To this host, which removes it,
/// it tells nothing of that number.
#[test]
fn what_a_pending_removal_hides_is_not_believed() {
    let mut tree = Tree::new(100);
    tree.follow(1, at(0));
    let root = attr(1, Kind::Directory, 1);
    tree.install_node(Node { attr: root, target: None }, at(0));
    tree.apply(&create(5, "f", NewNode::File), Timestamp::default());
    let unlink = Record::Unlink { parent: Ino::ROOT, name: name("f"), ino: Ino(5), open: false };
    tree.apply(&unlink, Timestamp::default());
    let promised = Promised::unmarked(1, [Ino::ROOT, Ino(7)]);
    let as_of = tree.as_of(Some(promised), [at(1), at(2)]);
    let file = Node { attr: attr(7, Kind::File, 1), target: None };
    tree.install_name(root, name("f"), Some(file), &as_of);
    tree.promised(&as_of);
    assert!(!tree.is_promised(Ino(7), at(3)));
}

/// The file had been renamed, too. It was read as so many zeros, which the server never had.
#[test]
fn the_size_of_refused_data_is_given_up_though_the_file_has_other_changes() {
    let mut tree = Tree::new(100);
    let file = |size| Node { attr: Attr { size, ..attr(7, Kind::File, 2) }, target: None };
    tree.install_node(file(10), at(0));
    tree.mark(Ino(7));
    tree.data_changed(Ino(7), 239, 239, Timestamp::default());
    let size = |tree: &Tree| tree.peek(Ino(7)).map(|attr| attr.size);
    tree.install_node(file(10), at(1));
    assert_eq!(size(&tree), Some(239), "it is this host's");
    tree.lose_size(Ino(7));
    tree.install_node(file(10), at(2));
    assert_eq!(size(&tree), Some(10));
    tree.lose_size(Ino(7));
    tree.data_changed(Ino(7), 300, 300, Timestamp::default());
    tree.install_node(file(10), at(3));
    assert_eq!(size(&tree), Some(300), "it was written again");
}

/// The next process believed the size of the refused data. A write behind that size covered bytes
/// of the server with zeros.
#[test]
fn a_size_that_is_lost_is_unknown_and_not_noted() {
    let mut tree = Tree::new(100);
    let file = Node { attr: attr(7, Kind::File, 2), target: None };
    tree.install_node(file.clone(), at(0));
    let notes = |tree: &mut Tree| tree.take_notes().nodes;
    assert!(matches!(&notes(&mut tree)[..], [(Ino(7), Some(_))]));
    tree.noted(true);
    tree.lose_size(Ino(7));
    assert_eq!(tree.attr(Ino(7), at(0)), Known::Unknown);
    assert_eq!(notes(&mut tree), [(Ino(7), None)]);
    tree.noted(true);
    tree.install_node(file.clone(), at(1));
    assert_eq!(tree.attr(Ino(7), at(1)), Known::Stale(file.attr));
    assert!(matches!(&notes(&mut tree)[..], [(Ino(7), Some(_))]));
}

#[test]
fn a_refused_change_is_asked_for_again() {
    let mut tree = tree();
    let record = create(5, "a", NewNode::File);
    tree.apply(&record, Timestamp::default());
    tree.undo(&touched(&record));
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(0)), Known::Unknown);
}

#[test]
fn a_rename_moves_name_and_path_and_link_counts() {
    let mut tree = tree();
    tree.apply(&create(5, "d", NewNode::Directory), Timestamp::default());
    tree.apply(&create(6, "e", NewNode::Directory), Timestamp::default());
    let rename = Record::Rename {
        from_parent: Ino::ROOT,
        from_name: name("e"),
        ino: Ino(6),
        to_parent: Ino(5),
        to_name: name("f"),
        mode: RenameMode::Replace(None),
        open: false,
    };
    tree.apply(&rename, Timestamp::default());
    assert_eq!(tree.path(Ino(6)), "d/f");
    assert_eq!(tree.name(Ino::ROOT, &name("e"), at(99)), Known::Fresh(None));
    assert_eq!(tree.peek(Ino(5)).unwrap().nlink, 3);
    assert_eq!(tree.peek(Ino::ROOT).unwrap().nlink, 2);
}

/// Another host made a file longer; this host had only looked at it, and the kernel went on
/// ending reads at the old size.
#[test]
fn what_moved_on_the_server_is_told_and_what_moved_here_is_not() {
    let mut tree = tree();
    tree.take_moved();
    let node = |counter| {
        let version = Version { epoch: 1, counter };
        let attr = Attr { change: version, data_version: version, ..attr(5, Kind::File, 1) };
        Node { attr, target: None }
    };
    let told = |tree: &mut Tree| {
        tree.take_moved().into_iter().map(|moved| moved.was_known).collect::<Vec<_>>()
    };
    tree.install_node(node(1), at(0));
    assert_eq!(told(&mut tree), [false]);
    tree.install_node(node(1), at(1));
    assert!(told(&mut tree).is_empty());
    tree.install_node(node(2), at(1));
    assert_eq!(told(&mut tree), [true]);
    let chmod = Record::SetAttr { ino: Ino(5), set: crate::nouns::SetAttr::default() };
    tree.apply(&chmod, Timestamp::default());
    tree.settle(&touched(&chmod), &tree.as_of(None, [at(2); 2]));
    tree.learn(&[node(3).attr], |_| false, &tree.as_of(None, [at(2); 2]));
    assert_eq!(tree.peek(Ino(5)).unwrap().data_version.counter, 3);
    assert!(told(&mut tree).is_empty());
}

#[test]
fn a_change_of_what_is_forgotten_is_pending() {
    let (mut tree, ino) = (tree(), Ino(99));
    let touched = Touched { inodes: vec![ino], names: Vec::new() };
    tree.mark_all(&touched);
    assert!(tree.peek(ino).is_none() && tree.is_pending(ino));
    tree.cancel(&touched);
    assert!(!tree.is_pending(ino));
}

#[test]
fn only_what_is_stale_and_settled_is_dropped() {
    let mut tree = Tree::new(2);
    tree.set_poll(Duration::from_secs(1));
    let entries = (10..20)
        .map(|ino| (name(&ino.to_string()), Node { attr: attr(ino, Kind::File, 1), target: None }))
        .collect();
    tree.install_listing(attr(1, Kind::Directory, 1), entries, at(0));
    tree.mark(Ino(15));
    tree.shrink(at(0), |_| false);
    assert!(tree.peek(Ino(10)).is_some());
    tree.shrink(at(5), |_| false);
    assert!(tree.peek(Ino(10)).is_some(), "it is not noted");
    tree.take_notes();
    tree.shrink(at(5), |_| false);
    assert!(tree.peek(Ino(10)).is_some(), "it may not be noted yet");
    tree.noted(true);
    tree.shrink(at(5), |ino| ino == Ino(16));
    assert!(tree.peek(Ino(10)).is_none());
    assert!(tree.peek(Ino(15)).is_some());
    assert!(tree.peek(Ino(16)).is_some());
    assert_eq!(tree.listing(Ino::ROOT, at(5)), Known::Unknown);
}

/// A reply that was slow came after the outcome of a change made here had come and gone from a
/// full cache: a file that was there was created once more, one was missing in a listing, and
/// a truncation was made on old data and became a conflict copy.
#[test]
fn a_reply_that_was_overtaken_changes_nothing_in_a_full_cache() {
    let mut tree = Tree::new(0);
    tree.set_poll(Duration::from_secs(1));
    let (old, old_file) = (attr(5, Kind::Directory, 1), attr(6, Kind::File, 1));
    tree.install_node(Node { attr: old, target: None }, at(0));
    let record = Record::Link { parent: Ino(5), name: name("a"), ino: Ino(6) };
    tree.install_node(Node { attr: old_file, target: None }, at(0));
    tree.apply(&record, Timestamp::default());
    tree.settle(&touched(&record), &tree.as_of(None, [at(0); 2]));
    let change = Version { epoch: 1, counter: 2 };
    let new_file = Attr { change, nlink: 2, ..old_file };
    tree.learn(&[Attr { change, ..old }, new_file], |_| false, &tree.as_of(None, [at(0); 2]));
    tree.shrink(at(10), |_| false);
    assert!(!tree.install_name(old, name("a"), None, at(10)));
    assert!(!tree.install_listing(old, Vec::new(), at(10)));
    tree.install_node(Node { attr: old_file, target: None }, at(10));
    assert_eq!(tree.attr(Ino(6), at(10)), Known::Stale(new_file));
    tree.take_notes();
    tree.noted(true);
    tree.shrink(at(100), |_| false);
    assert_eq!(tree.peek(Ino(5)), None);
}

/// chown took a set-group-id bit away that stands for no group's program, and the server's
/// answer brought it back.
/// Proves S17.5.
#[test]
fn set_id_bits_go_as_the_server_has_them_go() {
    let mut tree = tree();
    tree.apply(&create(5, "a", NewNode::File), Timestamp::default());
    let set = |set| Record::SetAttr { ino: Ino(5), set };
    let chmod = |mode| set(SetAttr { mode: Some(mode), ..SetAttr::default() });
    let chown = set(SetAttr { gid: Some(7), ..SetAttr::default() });
    for (before, after) in [(0o6777, 0o777), (0o4766, 0o766), (0o2766, 0o2766), (0o755, 0o755)] {
        tree.apply(&chmod(before), Timestamp::default());
        tree.apply(&chown, Timestamp::default());
        assert_eq!(tree.peek(Ino(5)).unwrap().mode, after, "{before:o} after chown");
        tree.apply(&chmod(before), Timestamp::default());
        tree.drop_set_ids(Ino(5));
        assert_eq!(tree.peek(Ino(5)).unwrap().mode, after, "{before:o} after a write");
    }
}

#[test]
fn the_parent_of_a_directory_is_where_it_was_seen_last() {
    let mut tree = tree();
    tree.apply(&create(5, "a", NewNode::Directory), Timestamp::default());
    assert_eq!(tree.parent(Ino(5)), Some(Ino::ROOT));
    assert_eq!((tree.parent(Ino::ROOT), tree.parent(Ino(9))), (None, None));
}

/// A file was learnt of, written and not noted, when the process died. The next one took the
/// server's size for its own, and a truncation kept no bytes beyond that of what was not sent.
#[test]
fn what_is_changed_here_is_as_long_as_it_was_made_though_nothing_else_is_known_of_it() {
    let mut tree = tree();
    let ino = Ino(9);
    tree.data_changed(ino, 118, 118, Timestamp::default());
    tree.mark(ino);
    tree.install_node(Node { attr: attr(9, Kind::File, 3), target: None }, at(0));
    assert_eq!(tree.peek(ino).map(|attr| attr.size), Some(118));
    tree.data_changed(Ino(10), 118, 118, Timestamp::default());
    tree.mark(Ino(10));
    tree.settle(
        &Touched { inodes: vec![Ino(10)], names: Vec::new() },
        &tree.as_of(None, [at(0); 2]),
    );
    tree.install_node(Node { attr: attr(10, Kind::File, 3), target: None }, at(0));
    assert_eq!(tree.peek(Ino(10)).map(|attr| attr.size), Some(attr(10, Kind::File, 3).size));
}

/// After a break only names that changed are asked for, by who was told all in the same session.
#[test]
fn a_listing_goes_on_with_what_changed() {
    let mut tree = Tree::new(100);
    tree.set_poll(Duration::from_secs(1));
    tree.follow(1, at(0));
    let node = |ino| Node { attr: attr(ino, Kind::File, 1), target: None };
    let page = |change, entries, commit, gone| Page {
        directory: attr(1, Kind::Directory, change),
        entries,
        more: false,
        promised: None,
        commit,
        gone,
    };
    let all = || vec![(name("a"), node(5)), (name("b"), node(6))];
    let gone = || Some(vec![name("a"), name("never known")]);
    assert!(!tree.install_page(page(1, all(), 40, gone()), at(0)), "no names were known");
    assert_eq!(tree.listed_through(Ino::ROOT), None);
    assert!(tree.install_page(page(1, all(), 40, None), at(0)));
    assert_eq!(tree.listed_through(Ino::ROOT), Some(40));
    assert!(!tree.install_page(page(0, Vec::new(), 39, gone()), at(1)), "it is older");
    assert_eq!(tree.listed_through(Ino::ROOT), Some(40));
    tree.broken(Ino::ROOT, at(5));
    tree.apply(&create(9, "mine", NewNode::File), Timestamp::default());
    let entries = vec![(name("c"), node(7)), (name("mine"), node(8))];
    assert!(tree.install_page(page(3, entries, 45, gone()), at(6)));
    let expected = [("b", 6), ("c", 7), ("mine", 9)].map(|(text, ino)| (name(text), Ino(ino)));
    assert_eq!(tree.listing(Ino::ROOT, at(6)), Known::Fresh(expected.to_vec()));
    assert_eq!(tree.name(Ino::ROOT, &name("b"), at(6)), Known::Fresh(Some(Ino(6))));
    assert_eq!(tree.listed_through(Ino::ROOT), Some(40), "a name was not taken");
    tree.settle(&touched(&create(9, "mine", NewNode::File)), &tree.as_of(None, [at(6); 2]));
    assert!(tree.install_page(page(3, Vec::new(), 45, gone()), at(6)));
    assert_eq!(tree.listed_through(Ino::ROOT), Some(45));
    tree.forget(Ino(6), at(7));
    assert_eq!(tree.listing(Ino::ROOT, at(7)), Known::Unknown);
    assert_eq!(tree.listed_through(Ino::ROOT), None, "what one of them names is not known");
    tree.expire(Ino::ROOT);
    assert_eq!(tree.listed_through(Ino::ROOT), None, "not all names are known");
    assert!(tree.install_page(page(4, all(), 50, None), at(8)));
    tree.follow(2, at(9));
    assert_eq!(tree.listed_through(Ino::ROOT), None, "it is another session");
    assert!(!tree.install_page(page(5, Vec::new(), 60, gone()), at(9)));
}

/// Two listings of a directory were asked for, and the older answer came last. This host had a
/// change of the directory pending, so nothing said that the answer was old. A name was gone for as
/// long as the promise held.
#[test]
fn an_older_answer_changes_nothing_in_a_directory_with_pending_changes() {
    let mut tree = tree();
    tree.apply(&create(9, "mine", NewNode::File), Timestamp::default());
    let node = |ino| Node { attr: attr(ino, Kind::File, 1), target: None };
    let root = |change| attr(1, Kind::Directory, change);
    assert!(tree.install_listing(root(3), vec![(name("a"), node(5))], at(1)));
    assert!(!tree.install_listing(root(2), Vec::new(), at(1)));
    assert!(!tree.install_name(root(2), name("a"), None, at(1)));
    assert_eq!(tree.name(Ino::ROOT, &name("a"), at(1)), Known::Fresh(Some(Ino(5))));
    assert!(tree.install_name(root(4), name("a"), None, at(1)));
    let lost = History { epoch: 1, lives: vec![(0, 2)] };
    tree.forget_lost(&lost);
    assert!(tree.install_listing(root(2), Vec::new(), at(2)), "the volume was put back");
}
