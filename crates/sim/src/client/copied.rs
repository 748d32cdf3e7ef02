//! The door of the server: what a client says there of its cache, and what it becomes if that is a
//! copy.

use segue_core::host::call::Call;
use segue_core::host::log::latest_told;
use segue_core::nouns::{ClientId, Ino, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::{Hello, Reply, Request, Welcome};

use super::{Mount, Purpose};
use crate::Violation;
use crate::disk::Kept;
use crate::plan::Bug;
use crate::server::host_name;

/// Numbers that a hello says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said {
    /// No record has this seq or a later one.
    next: u64,
    /// The latest version that is known.
    known: Option<Version>,
}

impl Said {
    /// Those of a process that begins.
    pub(super) fn of(kept: &Kept) -> Said {
        let known = kept.latest_noted().max(latest_told(&kept.log));
        Said { next: kept.seq_reserved.max(1), known }
    }
}

/// What runs with copies of disks look at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// There may be copies.
    pub(crate) may_be: bool,
    /// The client that this one becomes if it is a copy.
    pub(crate) spare: ClientId,
    /// It said hello as that.
    pub(crate) took_spare: bool,
    /// The server took its records for those of a copy: the connection is over.
    pub(crate) is_shut_out: bool,
    /// It was welcomed since that was looked at.
    pub(crate) is_welcome: bool,
    /// The last hello was answered: what the server has forgotten is known.
    pub(crate) is_greeted: bool,
    /// It became another client, and was told of a lost history, so often.
    pub(crate) renamed: u64,
    pub(crate) histories: u64,
}

impl Default for Copied {
    fn default() -> Copied {
        Copied {
            may_be: false,
            spare: ClientId([0; 16]),
            took_spare: false,
            is_shut_out: false,
            is_welcome: false,
            is_greeted: false,
            renamed: 0,
            histories: 0,
        }
    }
}

impl Mount {
    /// Connects (again).
    pub(crate) fn say_hello(&mut self) {
        let hello = self.hello();
        self.greet(hello);
    }

    fn hello(&self) -> Hello {
        Hello {
            volume: "home".into(),
            client: self.id,
            incarnation: 1,
            host: host_name(self.id),
            acked_below: self.disk.acked_below(&self.core),
            next: self.said.next,
            known: self.said.known,
            was: None,
            fresh_start: !self.said_hello,
        }
    }

    fn greet(&mut self, hello: Hello) {
        self.session.connection += 1;
        self.copied.is_greeted = false;
        self.chunks.forget();
        self.call(Request::Hello(hello.clone()), Purpose::Hello(hello));
    }

    /// The answer to `hello`.
    pub(super) fn greeted(&mut self, hello: &Hello, reply: Reply) -> Result<(), Violation> {
        let client = hello.client;
        match reply {
            Reply::Welcome(welcome) => self.welcomed_as(client, welcome),
            Reply::Refused(refused)
                if refused.refusal == Refusal::Copied
                    && self.copied.may_be
                    && client == self.id =>
            {
                self.copied.took_spare = true;
                self.greet(hello.clone().as_another(self.copied.spare));
                Ok(())
            }
            reply => Err(Violation(format!("hello: {reply:?}"))),
        }
    }

    fn welcomed_as(&mut self, client: ClientId, welcome: Welcome) -> Result<(), Violation> {
        if client != self.id {
            self.disk.become_client(client, &welcome.grants);
            self.id = client;
            self.core.tree.become_another();
            self.copied.renamed += 1;
        }
        if let Some(history) = &welcome.history {
            self.copied.histories += 1;
            if self.bug != Some(Bug::ClientBelievesForgotten) {
                let forgotten = self.host_call(Call::Forget(history.clone()))?;
                if forgotten.is_err() {
                    // The next connection tells it again.
                    self.copied.is_shut_out = true;
                    return Ok(());
                }
            }
        }
        (self.copied.is_welcome, self.copied.is_greeted) = (true, true);
        self.disk.kept.grants = welcome.grants;
        self.said_hello = true;
        self.resume(welcome.commit)
    }

    /// The numbers that the next hello says.
    pub(crate) fn take_stock(&mut self) {
        let noted = self.disk.kept.latest_noted();
        let known = noted.max(Some(self.core.tree.latest()));
        self.said = Said { next: self.disk.kept.seq_reserved, known };
    }

    /// Versions that are believed, of which inode and where.
    pub(crate) fn believed(&self) -> Vec<(Ino, Version, &'static str)> {
        let mut believed = self.disk.kept.index.versions();
        for attr in self.core.tree.known_inodes().filter_map(|ino| self.core.tree.peek(ino)) {
            believed.push((attr.ino, attr.change, "attributes"));
            believed.push((attr.ino, attr.data_version, "data's version"));
        }
        let files = self.core.files.iter().filter(|(_, file)| !file.is_ahead());
        believed.extend(files.map(|(ino, file)| (*ino, file.version(), "data")));
        believed
    }
}
