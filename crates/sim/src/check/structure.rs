//! The server's tree is one: every directory is reached once, links are counted right, extents
//! do not overlap, and everything is what the ledger says.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::namespace::{self, MetaSnapshot, keys, read};
use segue_core::nouns::{Attr, ClientId, Ino, Kind, Name};
use segue_core::upkeep::check::{self, Counts, Finding, Visitor};
use segue_core::wire::{Node, PAGE_MAX, Readdir};

use super::ledger::Ledger;
use crate::Violation;
use crate::server::{Server, content};

/// What is reached from the root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) nodes: BTreeMap<Ino, Node>,
    pub(crate) listings: BTreeMap<Ino, Vec<(Name, Ino)>>,
}

impl Reached {
    /// Walks the server's tree.
    pub(crate) fn walk(server: &mut Server) -> Result<Reached, Violation> {
        let volume = server.volume;
        let mut txn = server.snapshot();
        let failed = |what: &str, ino: Ino| Violation(format!("{what} #{ino} failed"));
        let mut reached = Reached::default();
        let root = read::getattr(&mut txn, volume, Ino::ROOT);
        reached.nodes.insert(Ino::ROOT, root.map_err(|_| failed("reading", Ino::ROOT))?);
        let mut open = vec![Ino::ROOT];
        while let Some(ino) = open.pop() {
            let ask = Readdir { ino, after: None, since: None, limit: PAGE_MAX };
            let page = read::page(&mut txn, volume, &ask).map_err(|_| failed("listing", ino))?;
            let mut names = Vec::new();
            for (name, node) in page.entries {
                let child = node.attr.ino;
                let new = reached.nodes.insert(child, node.clone()).is_none();
                if node.attr.kind == Kind::Directory {
                    if !new {
                        return Err(Violation(format!("directory #{child} has two names")));
                    }
                    open.push(child);
                }
                names.push((name, child));
            }
            reached.listings.insert(ino, names);
        }
        Ok(reached)
    }

    fn links(&self, attr: &Attr) -> usize {
        let is_directory = |ino: &Ino| self.nodes[ino].attr.kind == Kind::Directory;
        match self.listings.get(&attr.ino) {
            Some(names) => 2 + names.iter().filter(|(_, ino)| is_directory(ino)).count(),
            None => {
                let names = self.listings.values().flatten();
                names.filter(|(_, ino)| *ino == attr.ino).count()
            }
        }
    }
}

/// Checks everything on the server.
pub(crate) fn check(server: &mut Server, clients: &[ClientId]) -> Result<Reached, Violation> {
    let reached = Reached::walk(server)?;
    let volume = server.volume;
    for node in reached.nodes.values() {
        let links = reached.links(&node.attr);
        if links != node.attr.nlink as usize {
            let words = format!("#{} has {links} links: {:?}", node.attr.ino, node.attr);
            return Err(Violation(words));
        }
    }
    let mut txn = server.snapshot();
    let mut orphans = BTreeSet::new();
    for client in clients {
        let prefix = keys::orphans(volume, *client);
        let Ok(rows) = txn.range(&prefix, &keys::after(&prefix), usize::MAX);
        orphans.extend(rows.iter().filter_map(|(key, _)| keys::orphan_ino(key)));
    }
    let tally = namespace::tally(&mut txn, volume)?;
    if tally.inodes != (reached.nodes.len() + orphans.len()) as u64 {
        let words = format!("{tally:?}, reached {}, orphans {orphans:?}", reached.nodes.len());
        return Err(Violation(words));
    }
    server.check_rows()?;
    check_ledger(server, &reached)?;
    Ok(reached)
}

impl Server {
    /// Checks whether all rows fit together: links, extents, and what refers to chunks.
    pub(crate) fn check_rows(&mut self) -> Result<(), Violation> {
        let volume = self.volume;
        let mut found = Findings(Vec::new());
        let checked = check::check(&mut self.snapshot(), volume, &mut found);
        match checked.is_ok() && found.0.is_empty() {
            true => Ok(()),
            false => Err(Violation(format!("a check of the volume: {checked:?}, {:?}", found.0))),
        }
    }
}

/// What `segue volume check` would say.
struct Findings(Vec<Finding>);

impl Visitor for Findings {
    fn finding(&mut self, finding: Finding) {
        self.0.push(finding);
    }
    fn progress(&mut self, _: &Counts) -> bool {
        true
    }
}

fn check_ledger(server: &mut Server, reached: &Reached) -> Result<(), Violation> {
    let mut names = BTreeMap::new();
    for (parent, listing) in &reached.listings {
        let of = |(name, ino): &(Name, Ino)| ((*parent, name.as_bytes().to_vec()), *ino);
        names.extend(listing.iter().map(of));
    }
    let Ledger { names: expected, files, .. } = &server.ledger;
    if names != *expected {
        return Err(Violation(format!("names {names:?}, committed {expected:?}")));
    }
    let files = files.clone();
    let is_file = |node: &&Node| node.attr.kind == Kind::File;
    for node in reached.nodes.values().filter(is_file) {
        let ino = node.attr.ino;
        let volume = server.volume;
        let bytes = content(&mut server.snapshot(), volume, ino)?;
        if files.get(&ino).is_none_or(|file| file.content != bytes) {
            return Err(Violation(format!("#{ino} does not hold what was committed")));
        }
    }
    Ok(())
}
