//! The kernel of a host, as far as it keeps names and attributes: each for as long as it was told,
//! on a clock that stands still while the host sleeps.
//!
//! Programs of a run ask the mount past it, so a run is the same with and without. The checker
//! looks at everything that a program could read here.

use std::collections::BTreeMap;
use std::time::Duration;

use segue_core::host::Host;
use segue_core::host::action::{Action, TakenBack};
use segue_core::nouns::{Dentry, Ino, Name, Time, Version};

use crate::plan::Bug;

/// Names and attributes in the kernel, with the ends of their lifetimes.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    /// The kernel's clock.
    pub(crate) now: Time,
    attributes: BTreeMap<Ino, (Version, Time)>,
    names: BTreeMap<(Ino, Name), (Ino, Time)>,
    listings: BTreeMap<Ino, Vec<(Name, Ino)>>,
    /// It forgets only what changed.
    keeps_told: bool,
}

impl Kernel {
    /// It knows nothing.
    pub(super) fn new(bug: Option<Bug>) -> Kernel {
        let keeps_told = bug == Some(Bug::ClientKeepsTold);
        Kernel { keeps_told, ..Kernel::default() }
    }

    /// It is told the attributes of `ino`. This host's own changes it knows by itself.
    pub(crate) fn attributes(&mut self, core: &Host, ino: Ino, now: Time) {
        let lifetime = core.tree().remaining(ino, now);
        if let Some(attr) = core.tree().peek(ino)
            && let Some(end) = self.end(core, ino, lifetime)
        {
            self.attributes.insert(ino, (attr.change, end));
        }
    }

    /// It is told what `name` in `parent` is.
    pub(crate) fn name(&mut self, core: &Host, (parent, name): (Ino, &Name), ino: Ino, now: Time) {
        let lifetime = core.tree().name_remaining(parent, name, ino, now);
        if let Some(end) = self.end(core, parent, lifetime) {
            self.names.insert((parent, name.clone()), (ino, end));
        }
        self.attributes(core, ino, now);
    }

    /// A program reads `directory`, which lists `names`, to its end.
    pub(crate) fn listing(
        &mut self,
        core: &mut Host,
        directory: Ino,
        names: Vec<(Name, Ino)>,
        now: Time,
    ) {
        let reading = core.begin_listing(directory, names.clone(), now);
        match core.end_listing(directory, reading.base, now) {
            true => self.listings.insert(directory, names),
            false => self.listings.remove(&directory),
        };
    }

    fn end(&self, core: &Host, ino: Ino, lifetime: Duration) -> Option<Time> {
        let is_told = !lifetime.is_zero() && !core.tree().is_pending(ino);
        is_told.then_some(Time(self.now.0 + lifetime))
    }

    /// It sees what programs change on this host.
    pub(crate) fn see_changes(&mut self, core: &Host) {
        let is_pending = |ino: Ino| core.tree().is_pending(ino);
        self.attributes.retain(|ino, _| !is_pending(*ino));
        self.names.retain(|(parent, _), (ino, _)| !is_pending(*parent) && !is_pending(*ino));
        self.listings.retain(|directory, _| !is_pending(*directory));
    }

    /// It is to forget something.
    pub(super) fn forget(&mut self, action: &Action) {
        match action {
            Action::TakeBack(_, taken) => self.take_back(taken),
            Action::ForgetData(ino) | Action::ForgetAttributes(ino) | Action::Leave(ino) => {
                self.attributes.remove(ino);
            }
            Action::ForgetName(at) | Action::ForgetPlace(at) => self.forget_name(at),
            Action::ForgetListing(directory) => drop(self.listings.remove(directory)),
            _ => {}
        }
    }

    fn take_back(&mut self, taken: &TakenBack) {
        if taken.everything && !self.keeps_told {
            self.attributes.clear();
            self.names.clear();
            self.listings.clear();
        }
        for ino in &taken.inodes {
            self.attributes.remove(ino);
        }
        if !taken.everything {
            taken.listings.iter().for_each(|directory| drop(self.listings.remove(directory)));
            taken.names.iter().chain(&taken.places).for_each(|at| self.forget_name(at));
            // Names that the host knows no more are gone with all others.
            self.names.retain(|_, _| !taken.all_names);
        }
    }

    fn forget_name(&mut self, at: &Dentry) {
        self.names.remove(&(at.parent, at.name.clone()));
    }

    /// The attributes that a program would read here.
    pub(crate) fn shown_attributes(&self) -> impl Iterator<Item = (Ino, Version)> {
        let shown = self.attributes.iter().filter(|(_, (_, end))| *end > self.now);
        shown.map(|(ino, (change, _))| (*ino, *change))
    }

    /// The listings that a program would read here.
    pub(crate) fn shown_listings(&self) -> impl Iterator<Item = (Ino, &[(Name, Ino)])> {
        self.listings.iter().map(|(directory, names)| (*directory, names.as_slice()))
    }

    /// The names that a program would look up here.
    pub(crate) fn shown_names(&self) -> impl Iterator<Item = (Ino, &Name, Ino)> {
        let shown = self.names.iter().filter(|(_, (_, end))| *end > self.now);
        shown.map(|((parent, name), (ino, _))| (*parent, name, *ino))
    }
}
