//! The door of the server: a client tells it of its cache, and becomes another client if the cache
//! is a copy.

use segue_core::host::Host;
use segue_core::host::log::latest_told;
use segue_core::nouns::{ClientId, InoGrant, Time, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::{Hello, Reply, Request, Welcome};

use super::{Errand, SimRemote, Whose};
use crate::Violation;
use crate::disk::{HostDisk, Kept};
use crate::server::host_name;

/// The connections of a process to the server.
#[derive(Debug, Default)]
pub(crate) struct SimDoor {
    /// No record has this seq or a later one, as the next hello says.
    next: u64,
    /// The latest version that is known, likewise.
    known: Option<Version>,
    /// The process was welcomed before.
    was_welcome: bool,
    /// The client that this one becomes if it is a copy. `None`: nothing is copied.
    pub(crate) spare: Option<ClientId>,
    /// It said hello as that.
    pub(crate) took_spare: bool,
    /// The server took its records for those of a copy: the connection is over.
    pub(crate) is_shut_out: bool,
    /// It was welcomed since that was looked at.
    pub(crate) is_welcome: bool,
    /// The last hello was answered: it is known which versions the server has forgotten.
    pub(crate) is_greeted: bool,
}

impl SimDoor {
    /// The door for a process that begins on this disk.
    pub(super) fn of(kept: &Kept) -> SimDoor {
        let known = kept.latest_noted().max(latest_told(&kept.log));
        SimDoor { next: kept.seq_reserved.max(1), known, ..SimDoor::default() }
    }
}

impl SimRemote {
    /// Makes another connection, unless there is one, or one is being made: an earlier process may
    /// have waited for this.
    pub(crate) fn reconnect(&mut self, core: &Host, disk: &HostDisk, now: Time) {
        let is_greeting = |errand: &Errand| {
            matches!(errand, Errand::Hello(_) | Errand::Call(Whose::Connection, _))
        };
        if self.is_offline && !self.errands.values().any(is_greeting) {
            self.door.next = disk.kept.seq_reserved;
            self.door.known = disk.kept.latest_noted().max(Some(core.tree().latest()));
            self.connect(core, disk, now);
        }
    }

    /// Connects (again).
    pub(crate) fn connect(&mut self, core: &Host, disk: &HostDisk, now: Time) {
        let client = disk.kept.client();
        let hello = Hello {
            volume: "home".into(),
            client,
            incarnation: 1,
            host: host_name(client),
            acked_below: disk.acked_below(core),
            next: self.door.next,
            known: self.door.known,
            was: None,
            fresh_start: !self.door.was_welcome,
        };
        self.say(hello, now);
    }

    fn say(&mut self, hello: Hello, now: Time) {
        self.session.connection += 1;
        self.door.is_greeted = false;
        let message = (Request::Hello(hello.clone()), Vec::new());
        self.send(message, Errand::Hello(hello), now);
    }

    /// Takes in the answer to `hello`. `None`: the host, which is a copy, says hello again.
    pub(crate) fn greeted(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        hello: &Hello,
        reply: Reply,
        now: Time,
    ) -> Result<Option<Welcome>, Violation> {
        let is_new = hello.client != disk.kept.client();
        match (reply, self.door.spare) {
            (Reply::Welcome(welcome), _) => {
                if is_new {
                    disk.become_client(hello.client, &welcome.grants);
                    core.become_another();
                    self.counts.renamed += 1;
                }
                self.counts.histories += u64::from(welcome.history.is_some());
                Ok(Some(welcome))
            }
            (Reply::Refused(refused), Some(spare))
                if refused.refusal == Refusal::Copied && !is_new =>
            {
                self.door.took_spare = true;
                self.say(hello.clone().as_another(spare), now);
                Ok(None)
            }
            (reply, _) => Err(Violation(format!("hello: {reply:?}"))),
        }
    }

    /// The host knows which versions the server has forgotten, and may use its numbers.
    pub(crate) fn let_in(&mut self, disk: &mut HostDisk, grants: Vec<InoGrant>) {
        (self.door.is_welcome, self.door.is_greeted) = (true, true);
        disk.kept.grants = grants;
        self.door.was_welcome = true;
    }

    /// The connection is there, and the promises that count over it are known.
    pub(crate) fn begin_session(&mut self, core: &mut Host, now: Time) {
        self.is_offline = false;
        self.session.begin();
        self.follow(core, now);
    }
}
