//! A shell tells what happened around a host: to the connection, in the kernel, to quotas and to
//! threads. Nobody waits for that, and no action follows. Whatever needs an answer or an action is
//! an [event](crate::host::action::Event).

use std::collections::BTreeSet;
use std::time::Duration;

use super::cache::{AsOf, NodeNote, Nodes, Reading};
use super::call::Quota;
use super::log::DataChange;
use super::{Host, Settings};
use crate::nouns::{Base, ContainerId, Ino, Name, Time};
use crate::refusal::Refusal;
use crate::wire::Space;

/// The host as its user wants it.
impl Host {
    /// Has the host do as `settings` say from now on.
    pub fn configure(&mut self, settings: Settings) {
        self.settings = settings;
        self.queue.set_inline_max(settings.inline_max);
        self.ahead.set_sizes(settings.inline_max, settings.offer_from);
        self.tree.limit_promises(settings.promises);
    }

    /// Whether the kernel takes containers that it may read by itself. Returns what was believed.
    pub fn passthrough(&mut self, is_taken: bool) -> bool {
        std::mem::replace(&mut self.settings.backs, is_taken)
    }

    /// Answers without a promise are believed for so long.
    pub fn poll(&mut self, every: Duration) {
        self.tree.set_poll(every);
    }
}

/// The connection to the server.
impl Host {
    /// The session is number `session`, and the server `answered` its last question then. Promises
    /// of any other session count no more.
    pub fn follow_session(&mut self, session: u64, answered: Time) {
        self.tree.follow(session, answered);
    }

    /// The connection is the one with this `nonce`: what was uploaded ahead over another one is
    /// uploaded again.
    pub fn follow_connection(&mut self, nonce: Option<[u8; 32]>) {
        self.ahead.follow(nonce);
    }

    /// The connection that is being made begins with `commit` of `epoch`.
    pub fn begin_connection(&mut self, epoch: u32, commit: u64) {
        self.tree.begin_connection(epoch, commit);
    }

    /// This host is another client from now on.
    pub fn become_another(&mut self) {
        self.tree.become_another();
    }

    /// The next announcement says all that has changed here, and that the rest has not.
    pub fn announce_all(&mut self) {
        self.tree.stir_all();
    }

    /// Nobody is sending any change, and what is known here may be of the past.
    pub fn begin_anew(&mut self) {
        self.queue.put_all_back();
        self.tree.expire_all();
    }

    /// No change waits for company any more.
    pub fn release_all(&mut self) {
        self.queue.release_all();
    }

    /// Chunks of data that wait reached the server.
    pub fn sent_ahead(&mut self, bytes: u64) {
        self.ahead.note_sent(bytes);
    }

    /// An answer was taken in that is `as_of` then: what was promised with it counts.
    pub fn promised(&mut self, as_of: &AsOf) {
        self.tree.promised(as_of);
    }

    /// Quotas whose rest is not known. They count as asked about.
    pub fn quotas_to_ask(&mut self) -> BTreeSet<Quota> {
        self.room.wanted()
    }

    /// A quota has `space`.
    pub fn told_space(&mut self, quota: Quota, space: &Space, now: Time) {
        self.room.told(quota, space, now);
    }
}

/// What the kernel knows.
impl Host {
    /// The kernel is told when a promise ends, so it may keep answers for as long as one holds.
    pub fn tell_for_long(&mut self) {
        self.tree.tell_for_long();
    }

    /// An answer tells the kernel all that `directory` names.
    pub fn tell_names(&mut self, directory: Ino, now: Time) {
        self.tree.tell(directory, now);
    }

    /// A process begins to read `directory`, which lists these names.
    pub fn begin_listing(&mut self, directory: Ino, names: Vec<(Name, Ino)>, now: Time) -> Reading {
        let is_present = self.tree.lists(directory, &names);
        self.listings.begin(directory, (names, is_present), now)
    }

    /// What a process reads that goes on at `position` of `directory`, if that is known.
    pub fn listing_goes_on(&self, directory: Ino, position: u64) -> Option<Reading> {
        self.listings.goes_on(directory, position)
    }

    /// The same if these are the names now.
    pub fn listed_again(
        &mut self,
        directory: Ino,
        position: u64,
        names: Vec<(Name, Ino)>,
        now: Time,
    ) -> Reading {
        self.listings.listed_again(directory, position, names, now)
    }

    /// A process has read `directory` to its end at `position`. True if the kernel may use its copy
    /// of the listing.
    pub fn end_listing(&mut self, directory: Ino, position: u64, now: Time) -> bool {
        let may_keep = self.tree.may_keep_listing(directory, now);
        self.listings.end(directory, position, may_keep)
    }

    /// The listing of `directory` is another one. True if the kernel may have a copy.
    pub fn drop_listing(&mut self, directory: Ino) -> bool {
        self.listings.drop_one(directory)
    }

    /// Makes places in listings others than those of other mounts.
    pub fn set_listing_key(&mut self, key: u64) {
        self.listings.set_key(key);
    }

    /// An answer tells the kernel of `node`.
    pub fn tell(&mut self, node: u64) {
        self.nodes.tell(node);
        self.tree.kernel_knows(self.nodes.known().len());
    }

    /// The kernel has not taken in the answer that told of `node`, and will not.
    pub fn untold(&mut self, node: u64) {
        self.nodes.untold(node);
        self.tree.kernel_knows(self.nodes.known().len());
    }

    /// The kernel has forgotten that it was told of `node` so many `times`.
    pub fn kernel_forgot(&mut self, node: u64, times: u64) {
        self.nodes.forgotten(node, times);
        if !self.nodes.is_told(node) {
            self.listings.drop_one(Nodes::ino(node));
        }
        self.tree.kernel_knows(self.nodes.known().len());
    }

    /// Maps may write to the container of `ino` from now on.
    pub fn mapped(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.mapped(true);
        }
    }

    /// No map is left that writes to `container`.
    pub fn unmapped(&mut self, ino: Ino, container: ContainerId) {
        let file = self.files.get_mut(&ino).filter(|file| file.container() == container);
        if let Some(file) = file {
            file.mapped(false);
        }
    }
}

/// Threads and handles.
impl Host {
    /// Thread `pid` opens a file. True if it was told before to look its name up again.
    pub fn ends_second_look(&mut self, pid: u32, now: Time) -> bool {
        self.handles.end_second_look(pid, now)
    }

    /// Thread `pid` is told that its open is stale, and looks the name up again.
    pub fn looks_again(&mut self, pid: u32, now: Time) {
        self.handles.looks_again(pid, now);
    }

    /// Data of `ino` are refused, and no call waits for them.
    pub fn refused(&mut self, ino: Ino, refusal: Refusal) {
        self.handles.refused(ino, refusal);
    }
}

/// What is on this host's disk.
impl Host {
    /// The index has this inode.
    pub fn found_in_index(&mut self, note: NodeNote) {
        self.tree.install_note(note);
    }

    /// After a crash only the log knows of `data`. False if the server has others than these were
    /// made from, or none: a copy of both would be of two hosts. Otherwise they count as here, and
    /// are not fetched.
    pub fn recalls(&mut self, data: &DataChange) -> bool {
        let version = self.tree.peek(data.ino).map(|attr| attr.data_version);
        if version.is_none_or(|version| data.base != Base::Version(version)) {
            return false;
        }
        if let Some(file) = self.file(data.ino) {
            data.ranges.iter().for_each(|range| file.filled(range.clone()));
        }
        true
    }
}
