//! The host's machine behind its mutex, and the moments at which it is asked.

use std::ops::{Deref, DerefMut};
use std::thread::panicking;

use segue_core::host::Host;
use segue_core::host::action::{Now, Reach};
use segue_core::nouns::{Time, Timestamp};
use segue_rpc::LinkState;

use crate::clock::wall;
use crate::net::Remote;
use crate::rank::{Held, Rank, Ranked};

/// The host, shared by the threads of a mount.
pub(crate) struct SharedHost {
    host: Ranked<Host>,
    remote: Remote,
}

/// The host, while a thread has it. A thread that may have changed it checks it before it lets go.
pub(crate) struct HeldHost<'a> {
    host: Held<'a, Host>,
    is_changed: bool,
}

impl Deref for HeldHost<'_> {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for HeldHost<'_> {
    fn deref_mut(&mut self) -> &mut Host {
        self.is_changed = true;
        &mut self.host
    }
}

impl Drop for HeldHost<'_> {
    fn drop(&mut self) {
        if self.is_changed && !panicking() {
            self.host.check_in_turn();
        }
    }
}

impl SharedHost {
    /// Shares `host`, of which the promises are those of a session of `remote`.
    pub(crate) fn new(host: Host, remote: Remote) -> SharedHost {
        SharedHost { host: Ranked::new(Rank::Core, host), remote }
    }

    /// The host, which knows which promises count.
    pub(crate) fn lock(&self) -> HeldHost<'_> {
        let mut host = self.host.lock();
        let (session, answered) = self.remote.session();
        host.follow_session(session, answered);
        HeldHost { host, is_changed: false }
    }

    /// The host, which knows what went ahead over the connection that is there now. That is looked
    /// up under the lock: nobody goes back to the round of an earlier one.
    pub(crate) fn lock_ahead(&self) -> HeldHost<'_> {
        let mut host = self.lock();
        host.follow_connection(match self.remote.link().state() {
            LinkState::Online { welcome, .. } => Some(welcome.nonce),
            _ => None,
        });
        host
    }

    /// The moment on this mount's clock.
    pub(crate) fn now(&self) -> Time {
        self.remote.now()
    }

    /// Wall-clock time, for files.
    pub(crate) fn wall(&self) -> Timestamp {
        wall()
    }

    /// The moment of an event.
    pub(crate) fn moment(&self) -> Now {
        let link = match (self.remote.is_offline(), self.remote.is_silent()) {
            (true, _) => Reach::Offline,
            (false, true) => Reach::Silent,
            (false, false) => Reach::Online,
        };
        Now { time: self.now(), wall: self.wall(), link }
    }
}
