//! A host's way to the server: its requests, and the answers in words of the host.
//!
//! ```text
//!   action of the host ─▶ Asking ─▶ outbox ─▶ (network) ─▶ answer ─▶ Done ─▶ event of the host
//! ```

mod ahead;
mod batch;
mod door;
mod fetch;
mod session;
mod upload;

use std::collections::{BTreeMap, BTreeSet};

use segue_core::host::Host;
use segue_core::host::action::{Ask, CallId, Deliver, Done, Fact, Gap, Told, Undone};
use segue_core::host::log::Lane;
use segue_core::nouns::{Dentry, Ino, Store, Time};
use segue_core::refusal::Refusal;
use segue_core::wire::{Dirty, Hello, Lookup, Readdir, Reply, Request, Resume};

use crate::disk::{Carried, HostDisk, Kept};
use crate::plan::Bug;
use crate::server::Answer;
use crate::{Summary, Violation};
pub(crate) use batch::Sent;
use door::SimDoor;
use session::SimSession;
use upload::Uploading;
pub(crate) use upload::{UploadId, Waits, inline_max, offer_from};

/// The owner of a call of the host: it goes on with the call when the answer is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// An application's thread.
    Thread(usize),
    /// The sending of batches.
    Lane(Lane),
    /// The merging of duplicates.
    Merge,
    /// Nobody waits: the host began the call itself.
    Chore,
    /// The connection: promises are to count over it.
    Connection,
    /// Another host, for which the server asks with this number.
    Pull(u64),
}

/// A request that a call of the host waits for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Asking {
    pub(crate) call: CallId,
    pub(crate) request: Request,
    /// The bytes that go with it.
    body: Vec<u8>,
    /// The batch that it sends, or for which it fetches.
    batch: Option<Deliver>,
}

impl Asking {
    fn new(call: CallId, request: Request) -> Asking {
        Asking { call, request, body: Vec::new(), batch: None }
    }

    /// A question of the host as a request.
    pub(crate) fn query(call: CallId, ask: Ask) -> Asking {
        let request = match ask {
            Ask::Attr(ino) => Request::Getattr(ino),
            Ask::Open(ino) => Request::Open(ino),
            Ask::Name(Dentry { parent, name }) => Request::Lookup(Lookup { parent, name }),
            Ask::Page { directory, after, since, limit } => {
                Request::Readdir(Readdir { ino: directory, after, since, limit })
            }
            Ask::Xattrs(ino) => Request::Xattrs(ino),
            Ask::Same(files) => Request::Compare(files),
        };
        Asking::new(call, request)
    }

    /// The request for missing bytes of a file.
    pub(crate) fn fetch(call: CallId, gap: Gap) -> Asking {
        Asking::new(call, fetch::request(gap))
    }

    /// The request that the server keeps its promises.
    pub(crate) fn renew(call: CallId) -> Asking {
        Asking::new(call, Request::Renew(()))
    }

    /// What the server is to know of changes here.
    pub(crate) fn announce(call: CallId, dirty: Dirty) -> Asking {
        Asking::new(call, Request::Dirty(dirty))
    }

    /// The question which promises count over a new connection.
    pub(crate) fn resume(call: CallId, resume: Resume) -> Asking {
        Asking::new(call, Request::Resume(resume))
    }

    /// True if it is about a batch.
    pub(crate) fn is_of_batch(&self) -> bool {
        self.batch.is_some()
    }
}

/// The use of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Errand {
    /// A new connection.
    Hello(Hello),
    /// A call of the host goes on.
    Call(Whose, Asking),
    /// An upload goes on.
    Upload(UploadId, Waits),
    /// It is known how much a quota has left.
    Room(Option<Ino>),
    /// Data are here for which nobody waits.
    Ahead(Request),
    /// Other hosts have heard of the commits.
    Visible,
}

/// The server, as a host sees it.
pub(crate) struct SimRemote {
    pub(crate) is_offline: bool,
    /// Requests to be sent: the number of each, and the bytes that go with it.
    pub(crate) outbox: Vec<(u64, Request, Vec<u8>)>,
    /// Requests that are not answered.
    errands: BTreeMap<u64, Errand>,
    next_request: u64,
    pub(crate) session: SimSession,
    pub(crate) door: SimDoor,
    /// Stores of so many bytes are made of chunks, if any are.
    pub(crate) least: Option<usize>,
    /// Changes whose stores are being made.
    uploads: BTreeMap<UploadId, Uploading>,
    /// Numbers of uploads ahead.
    aheads: u64,
    /// The bytes of stores that were made over this connection, by their changes.
    spelled: BTreeMap<u64, Store>,
    /// Missing bytes of files that are looked at or changed are fetched before they are read.
    pub(crate) reads_ahead: bool,
    /// Of these outcomes came that could not be logged.
    pub(crate) unsettled: BTreeSet<Lane>,
    /// Other names that the host got, and lost histories that it heard of.
    pub(crate) counts: Summary,
    bug: Option<Bug>,
}

impl SimRemote {
    /// No connection, for a process on this disk. Requests are numbered from `next_request`.
    pub(crate) fn new(kept: &Kept, next_request: u64, bug: Option<Bug>) -> SimRemote {
        SimRemote {
            is_offline: true,
            outbox: Vec::new(),
            errands: BTreeMap::new(),
            next_request,
            session: SimSession::start(next_request, bug),
            door: SimDoor::of(kept),
            least: None,
            uploads: BTreeMap::new(),
            aheads: 0,
            spelled: BTreeMap::new(),
            reads_ahead: false,
            unsettled: BTreeSet::new(),
            counts: Summary::default(),
            bug,
        }
    }

    /// The number of the next request.
    pub(crate) fn next_request(&self) -> u64 {
        self.next_request
    }

    fn send(&mut self, (request, body): (Request, Vec<u8>), errand: Errand, now: Time) {
        let number = self.next_request;
        self.errands.insert(number, errand);
        self.session.asks(number, now);
        self.outbox.push((number, request, body));
        self.next_request += 1;
    }

    /// Asks the server for a call of the host.
    pub(crate) fn ask(&mut self, whose: Whose, asking: Asking, now: Time) {
        let message = (asking.request.clone(), asking.body.clone());
        self.send(message, Errand::Call(whose, asking), now);
    }

    /// Asks the server for the room that these quotas have left.
    pub(crate) fn ask_for_room(&mut self, quotas: BTreeSet<Option<Ino>>, now: Time) {
        for quota in quotas {
            let request = Request::Statfs(quota.unwrap_or(Ino::ROOT));
            self.send((request, Vec::new()), Errand::Room(quota), now);
        }
    }

    /// Asks when other hosts have heard of the commits.
    pub(crate) fn ask_for_visibility(&mut self, now: Time) {
        self.send((Request::Visible(()), Vec::new()), Errand::Visible, now);
    }

    /// An upload is over: nobody waits for answers to its requests.
    fn forget_upload(&mut self, id: UploadId) {
        let is_its = |errand: &Errand| matches!(errand, Errand::Upload(of, _) if *of == id);
        self.errands.retain(|_, errand| !is_its(errand));
    }

    /// True if request `number` is not answered.
    pub(crate) fn awaits(&self, number: u64) -> bool {
        self.errands.contains_key(&number)
    }

    /// True if the outcomes of changes are not known here, and may be known to the server.
    pub(crate) fn awaits_outcomes(&self) -> bool {
        !self.unsettled.is_empty() || Lane::ALL.into_iter().any(|lane| self.is_draining(lane))
    }

    /// True if changes of `lane` are under way.
    pub(crate) fn is_draining(&self, lane: Lane) -> bool {
        let is_it = |errand: &Errand| match errand {
            Errand::Call(whose, _) => *whose == Whose::Lane(lane),
            _ => false,
        };
        let makes = |uploading: &Uploading| uploading.lane() == Some(lane);
        self.errands.values().any(is_it) || self.uploads.values().any(makes)
    }

    /// The lane of the batch that an upload is for.
    pub(crate) fn lane_of(&self, id: UploadId) -> Option<Lane> {
        self.uploads.get(&id).and_then(Uploading::lane)
    }

    /// Which of the server's promises count.
    pub(crate) fn follow(&self, core: &mut Host, now: Time) {
        self.session.follow(core, self.is_offline, now);
    }

    /// The connection broke: nothing that was asked will be answered. Returns the calls of the host
    /// that waited.
    pub(crate) fn lose_link(&mut self, core: &mut Host, now: Time) -> Vec<(Whose, CallId)> {
        self.is_offline = true;
        self.session.forget_questions();
        self.follow(core, now);
        core.put_all_back();
        self.outbox.clear();
        self.spelled.clear();
        let uploads = std::mem::take(&mut self.uploads).into_iter();
        let uploads = uploads.filter_map(|(id, uploading)| match (id, uploading.lane()) {
            (UploadId::Batch(call), Some(lane)) => Some((Whose::Lane(lane), call)),
            _ => None,
        });
        let errands = std::mem::take(&mut self.errands).into_values();
        let call = |errand| match errand {
            Errand::Call(whose, asking) => Some((whose, asking.call)),
            _ => None,
        };
        uploads.chain(errands.filter_map(call)).collect()
    }

    /// Takes the errand whose answer is there, and when it began.
    pub(crate) fn hear(
        &mut self,
        core: &mut Host,
        number: u64,
        now: Time,
    ) -> Option<(Errand, Time)> {
        let errand = self.errands.remove(&number)?;
        let asked = self.session.hears(number, now);
        self.follow(core, now);
        Some((errand, asked))
    }

    /// An answer in the host's words. It was asked for and came at these `times`.
    pub(crate) fn done(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        asking: &Asking,
        (reply, body): Answer,
        times: [Time; 2],
    ) -> Result<Carried, Violation> {
        if let Some(batch) = &asking.batch {
            let [asked, _] = times;
            return self.batch_done(disk, (&asking.request, batch), reply, asked);
        }
        let promised = self.session.promised(&reply);
        let fact = match (&asking.request, reply) {
            (Request::Fetch(ask), Reply::Fetched(fetched)) => {
                let filled = self.fill((core, disk), ask, &fetched, &body);
                return Ok(filled.map(|()| Done::Carried).map_err(Undone::from));
            }
            (Request::Renew(()), reply) => return Ok(self.session.renewed(&reply)),
            (Request::Resume(_), reply) => return Ok(self.session.resumed(reply)),
            (Request::Dirty(_), Reply::Marked(())) => return Ok(Ok(Done::Carried)),
            (_, Reply::Node(found)) => Ok(Fact::Attr(found.node)),
            (_, Reply::Opened(opened)) => Ok(Fact::Opened(opened.found.node, opened.is_hidden)),
            (_, Reply::Looked(looked)) => Ok(Fact::Name(looked)),
            (_, Reply::Page(page)) => Ok(Fact::Page(page)),
            (_, Reply::Compared(is_same)) => Ok(Fact::Same(is_same)),
            (_, Reply::Xattrs(xattrs)) => Ok(Fact::Xattrs(xattrs)),
            (_, Reply::Refused(refused)) => Err(refused.refusal),
            _ => Err(Refusal::Protocol),
        };
        let [asked, _] = times;
        let told = fact.map(|fact| Done::Told(Box::new(Told { fact, promised, asked })));
        Ok(told.map_err(Undone::from))
    }
}
