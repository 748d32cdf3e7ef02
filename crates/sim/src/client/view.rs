//! Looking, as `segue-client`'s mount/names.rs does.

use segue_core::host::cache::Known;
use segue_core::nouns::{Attr, Ino, Kind, Name, Time, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::{Found, Lookup, PAGE_MAX, Readdir, Reply, Request};

use super::{Mount, Stop};

impl Mount {
    pub(crate) fn getattr(&mut self, ino: Ino) -> Result<Attr, Stop> {
        if self.core.tree.peek(ino).is_none() {
            self.load_node(ino);
        }
        match self.core.tree.attr(ino, self.now).usable(self.is_offline) {
            Some(attr) => Ok(attr),
            None => self.ask(Request::Getattr(ino)),
        }
    }

    /// The request that the operation waits for, if somebody can answer it.
    pub(super) fn ask<R>(&self, request: Request) -> Result<R, Stop> {
        match self.is_offline {
            true => Err(Refusal::Unreachable.into()),
            false => Err(Stop::Ask(Box::new(request))),
        }
    }

    pub(crate) fn lookup(&mut self, parent: Ino, name: &Name) -> Result<Option<Attr>, Stop> {
        if self.core.tree.name(parent, name, self.now) == Known::Unknown {
            self.load_name(parent, name);
        }
        let known = self.core.tree.name(parent, name, self.now).usable(self.is_offline);
        match known {
            Some(Some(ino)) => {
                let attr = self.getattr(ino)?;
                match self.core.forget_removed(ino, self.now) {
                    // The name means something else by now.
                    true => self.ask(Request::Lookup(Lookup { parent, name: name.clone() })),
                    false => Ok(Some(attr)),
                }
            }
            Some(None) => Ok(None),
            None => self.ask(Request::Lookup(Lookup { parent, name: name.clone() })),
        }
    }

    pub(crate) fn list(&mut self, directory: Ino) -> Result<Vec<(Name, Ino)>, Stop> {
        if self.core.tree.listing(directory, self.now) == Known::Unknown {
            self.load_listing(directory);
        }
        match self.core.tree.listing(directory, self.now).usable(self.is_offline) {
            Some(names) => Ok(names),
            None => {
                let since = self.core.tree.listed_through(directory);
                let ask = Readdir { ino: directory, after: None, since, limit: PAGE_MAX };
                self.ask(Request::Readdir(ask))
            }
        }
    }

    /// What a path means. Every part but the last must be a directory.
    pub(super) fn resolve(&mut self, path: &[Name]) -> Result<Option<Attr>, Stop> {
        let mut at = self.getattr(Ino::ROOT)?;
        for (depth, name) in path.iter().enumerate() {
            if at.kind != Kind::Directory {
                return Err(Refusal::NotDirectory.into());
            }
            match self.lookup(at.ino, name)? {
                Some(attr) => at = attr,
                None if depth + 1 == path.len() => return Ok(None),
                None => return Err(Refusal::NotFound.into()),
            }
        }
        Ok(Some(at))
    }

    pub(super) fn existing(&mut self, path: &[Name]) -> Result<Attr, Stop> {
        Ok(self.resolve(path)?.ok_or(Refusal::NotFound)?)
    }

    /// The directory that holds the last part of a path.
    pub(super) fn parent<'a>(&mut self, path: &'a [Name]) -> Result<(Ino, &'a Name), Stop> {
        let (name, above) = path.split_last().ok_or(Refusal::Invalid)?;
        let parent = self.existing(above)?;
        match parent.kind {
            Kind::Directory => Ok((parent.ino, name)),
            _ => Err(Refusal::NotDirectory.into()),
        }
    }

    /// Takes in what the server said.
    pub(super) fn take_in(&mut self, request: &Request, reply: Reply, body: &[u8], asked: Time) {
        let mut versions: Vec<(Ino, Version)> = Vec::new();
        let promised = self.promised(&reply);
        let as_of = &self.core.tree.as_of(promised, [asked, self.now]);
        match (request, reply) {
            (Request::Getattr(_), Reply::Node(Found { node, .. })) => {
                versions.push((node.attr.ino, node.attr.data_version));
                self.core.tree.install_node(node, as_of);
            }
            (Request::Getattr(ino), Reply::Refused(refused))
                if refused.refusal == Refusal::Stale =>
            {
                self.core.tree.forget(*ino, self.now);
            }
            (Request::Lookup(ask), Reply::Looked(looked)) => {
                let found = looked.node.as_ref();
                versions.extend(found.map(|node| (node.attr.ino, node.attr.data_version)));
                self.core.shrink(self.now);
                let name = ask.name.clone();
                if !self.core.tree.install_name(looked.parent, name, looked.node, as_of) {
                    return;
                }
            }
            (Request::Readdir(_), Reply::Page(page)) => {
                let of = |node: &segue_core::wire::Node| (node.attr.ino, node.attr.data_version);
                versions.extend(page.entries.iter().map(|(_, node)| of(node)));
                self.core.shrink(self.now);
                if !self.core.tree.install_page(page, as_of) {
                    return;
                }
            }
            (Request::Fetch(ask), Reply::Fetched(fetched)) => self.fill(ask, &fetched, body),
            _ => {}
        }
        self.core.tree.promised(as_of);
        for (ino, version) in versions {
            self.core.observe(ino, version);
        }
    }
}
