//! A volume on a Segue server: every call, its reply, and what failures mean to a user.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use segue_core::host::action::{Ask, Fact, Query, Told};
use segue_core::host::cache::Promised;
use segue_core::nouns::{Class, Fingerprint, Ino, InoGrant, Name, Time, Version};
use segue_core::refusal::Refusal;
use segue_core::upload::Chunk;
use segue_core::wire::{
    Applied, Apply, Compare, Delta, Dirty, Fetch, Fetched, Leaf, Looked, Lookup, Node, Offer,
    Opened, Outline, Outlined, Page, Put, Readdir, Reply, Request, Seek, Sought, Space, Stage,
    Staged, Watch, WatchedAll, Xattrs,
};
use segue_rpc::codec::{BlockReader, block_from_stored, encode_block};
use segue_rpc::{CallError, Link, LinkState, Response, Rpc};

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::waits::waits;

/// A chunk on its way to the server.
pub(crate) type WireChunk = Chunk<Bytes>;

/// How long a question waits for a new connection if what is known here would do.
const REFRESH_PATIENCE: Duration = Duration::from_secs(1);

/// The server, through a link that heals itself.
#[derive(Clone)]
pub(crate) struct Remote {
    link: Link,
    grace: Duration,
    clock: Clock,
    /// When the last question was put that was answered, in microseconds.
    answered: Arc<AtomicU64>,
    /// Up to which session nothing counts any more that was promised.
    over: Arc<AtomicU64>,
    /// An answer is known here as of earlier.
    refreshes: bool,
    metrics: Metrics,
}

/// Why a reply of the wrong kind is refused.
fn unexpected(request: &Request, reply: &Reply) -> Refusal {
    tracing::warn!("the server answered {} with {}", request.name(), reply.name());
    Refusal::Protocol
}

impl Remote {
    pub(crate) fn new(link: Link, grace: Duration, metrics: Metrics) -> Remote {
        let clock = Clock::start();
        let (answered, over) = Default::default();
        Remote { link, grace, clock, answered, over, refreshes: false, metrics }
    }

    /// For questions whose answer is known here as of earlier: they do not wait for `grace` when
    /// the link goes down under them, nor for a connection that is silent.
    pub(crate) fn to_refresh(&self) -> Remote {
        let grace = self.grace.min(REFRESH_PATIENCE);
        Remote { grace, refreshes: true, ..self.clone() }
    }

    /// The answer to a question of the host, asked as `rpc`.
    pub(crate) async fn query(
        &self,
        rpc: &Rpc,
        Query { ask, is_known }: Query,
    ) -> Result<Told, Refusal> {
        let remote = if is_known { self.to_refresh() } else { self.clone() };
        // From here on it may change: the answer is as old as the question.
        let asked = self.now();
        let (fact, promised) = match ask {
            Ask::Attr(ino) => {
                let (node, promised) = remote.getattr(ino).await?;
                (Fact::Attr(node), promised)
            }
            Ask::Open(ino) => {
                let (opened, promised) = remote.open(ino).await?;
                (Fact::Opened(opened.found.node, opened.is_hidden), promised)
            }
            Ask::Name(at) => {
                let (looked, promised) = remote.lookup(at.parent, &at.name).await?;
                (Fact::Name(looked), promised)
            }
            Ask::Page { directory, after, since, limit } => {
                let (page, promised) = remote.page(rpc, directory, (after, since), limit).await?;
                (Fact::Page(page), promised)
            }
            Ask::Same(files) => (Fact::Same(remote.compare(files.one, files.other).await?), None),
            Ask::Xattrs(ino) => {
                let xattrs = remote.xattrs(ino).await?;
                (Fact::Xattrs(xattrs), None)
            }
        };
        Ok(Told { fact, promised, asked })
    }

    /// The session that there is now, 0 without a connection, and when the last question was put
    /// that was answered.
    pub(crate) fn session(&self) -> (u64, Time) {
        let answered = Duration::from_micros(self.answered.load(Ordering::Relaxed));
        let over = self.over.load(Ordering::Acquire);
        let session = self.link.generation().filter(|session| *session > over);
        (session.unwrap_or(0), Time(answered))
    }

    /// There is to be another session: nothing counts any more that is promised to this one.
    pub(crate) fn end_session(&self) {
        self.over.fetch_max(self.link.generation().unwrap_or(0), Ordering::AcqRel);
    }

    /// The moment on this mount's clock.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// True unless the server answered lately.
    pub(crate) fn is_offline(&self) -> bool {
        !matches!(self.link.state(), LinkState::Online { .. })
    }

    /// True if what is known here must do: there is no connection, or it has been silent for a
    /// second, and may be gone.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_offline() || self.link.is_silent()
    }

    async fn call(&self, rpc: &Rpc, request: &Request, body: Bytes) -> Result<Response, Refusal> {
        let asked = self.clock.now();
        let answer = async {
            tokio::select! {
                response = self.link.call_as(rpc, request, body, self.grace) => Some(response),
                () = self.link.silence(), if self.refreshes => None,
            }
        };
        let reason = || match request {
            Request::Open(_) => "the server, and what another host has changed of the file".into(),
            _ => format!("the server's answer to {}", request.name()),
        };
        let response = waits(reason, answer).await;
        let response = response.ok_or(Refusal::Unreachable)?;
        let response = response.map_err(|error| refusal(request, &error))?;
        self.answered(asked);
        self.metrics.answered(rpc.class(), request.name(), self.clock.now().since(asked));
        match response.reply {
            Reply::Refused(refused) => {
                tracing::debug!("{}: {} {}", request.name(), refused.refusal, refused.words);
                Err(refused.refusal)
            }
            _ => Ok(response),
        }
    }

    /// The server has answered a question that was put then.
    pub(crate) fn answered(&self, asked: Time) {
        let asked = u64::try_from(asked.0.as_micros()).unwrap_or(u64::MAX);
        self.answered.fetch_max(asked, Ordering::Relaxed);
    }

    async fn ask(&self, request: Request) -> Result<(Request, Reply), Refusal> {
        self.ask_as(&Rpc::new(request.class()), request).await
    }

    async fn ask_as(&self, rpc: &Rpc, request: Request) -> Result<(Request, Reply), Refusal> {
        let response = self.call(rpc, &request, Bytes::new()).await?;
        Ok((request, response.reply))
    }

    /// The same, with what is promised of the inodes in the answer.
    async fn ask_for(
        &self,
        request: Request,
    ) -> Result<(Request, Reply, Option<Promised>), Refusal> {
        self.ask_for_as(&Rpc::new(request.class()), request, Bytes::new()).await
    }

    async fn ask_for_as(
        &self,
        rpc: &Rpc,
        request: Request,
        body: Bytes,
    ) -> Result<(Request, Reply, Option<Promised>), Refusal> {
        let session = self.link.generation();
        let reply = self.call(rpc, &request, body).await?.reply;
        // Over another connection it may have been promised to another session.
        let session = session.filter(|session| self.link.generation() == Some(*session));
        let promised = session.zip(reply.promised());
        let promised =
            promised.map(|(session, (inodes, marked))| Promised { session, inodes, marked });
        Ok((request, reply, promised))
    }

    pub(crate) async fn getattr(&self, ino: Ino) -> Result<(Node, Option<Promised>), Refusal> {
        match self.ask_for(Request::Getattr(ino)).await? {
            (_, Reply::Node(found), promised) => Ok((found.node, promised)),
            (request, reply, _) => Err(unexpected(&request, &reply)),
        }
    }

    /// The same for a program that opens the file. It may take as long as another host needs to
    /// send what it changed.
    async fn open(&self, ino: Ino) -> Result<(Opened, Option<Promised>), Refusal> {
        match self.ask_for(Request::Open(ino)).await? {
            (_, Reply::Opened(opened), promised) => Ok((opened, promised)),
            (request, reply, _) => Err(unexpected(&request, &reply)),
        }
    }

    /// Says which files have changed here.
    pub(crate) async fn announce(&self, dirty: Dirty) -> Result<(), Refusal> {
        match self.ask(Request::Dirty(dirty)).await? {
            (_, Reply::Marked(())) => Ok(()),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    pub(crate) async fn lookup(
        &self,
        parent: Ino,
        name: &Name,
    ) -> Result<(Looked, Option<Promised>), Refusal> {
        let name = name.clone();
        match self.ask_for(Request::Lookup(Lookup { parent, name })).await? {
            (_, Reply::Looked(looked), promised) => Ok((looked, promised)),
            (request, reply, _) => Err(unexpected(&request, &reply)),
        }
    }

    pub(crate) async fn page(
        &self,
        rpc: &Rpc,
        ino: Ino,
        (after, since): (Option<Name>, Option<u64>),
        limit: u32,
    ) -> Result<(Page, Option<Promised>), Refusal> {
        let request = Request::Readdir(Readdir { ino, after, since, limit });
        match self.ask_for_as(rpc, request, Bytes::new()).await? {
            (_, Reply::Page(page), promised) => Ok((page, promised)),
            (request, reply, _) => Err(unexpected(&request, &reply)),
        }
    }

    /// Has the server keep what it promised. Up to which commit it has told which session of
    /// changes.
    pub(crate) async fn renew(&self) -> Result<(u64, u64), Refusal> {
        let session = self.link.generation();
        match self.ask(Request::Renew(())).await? {
            (_, Reply::Renewed(renewed)) if self.link.generation() == session => {
                Ok((session.unwrap_or(0), renewed.commit))
            }
            (_, Reply::Renewed(_)) => Err(Refusal::Unreachable),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// Changes below `directory` behind commit `since`, or where to begin: it may take a while.
    pub(crate) async fn watch(
        &self,
        directory: Ino,
        since: Option<u64>,
    ) -> Result<WatchedAll, Refusal> {
        let request = Request::Watch(Watch { directory, since, copies: false });
        match self.ask(request).await? {
            (_, Reply::Watched(all)) => Ok(all),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// New conflict copies in the volume beside files whose data this host made, likewise.
    pub(crate) async fn watch_copies(&self, since: Option<u64>) -> Result<WatchedAll, Refusal> {
        let request = Request::Watch(Watch { directory: Ino::ROOT, since, copies: true });
        match self.ask_as(&Rpc::new(Class::Prefetch), request).await? {
            (_, Reply::Watched(all)) => Ok(all),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    pub(crate) async fn xattrs(&self, ino: Ino) -> Result<Xattrs, Refusal> {
        match self.ask(Request::Xattrs(ino)).await? {
            (_, Reply::Xattrs(xattrs)) => Ok(xattrs),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    pub(crate) async fn space(&self, ino: Ino) -> Result<Space, Refusal> {
        match self.ask(Request::Statfs(ino)).await? {
            (_, Reply::Space(space)) => Ok(space),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    pub(crate) async fn grant(&self) -> Result<InoGrant, Refusal> {
        match self.ask(Request::Grant(())).await? {
            (_, Reply::Granted(grant)) => Ok(grant),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// A range of one version: its segments, and a reader of the data ones.
    pub(crate) async fn fetch(
        &self,
        rpc: &Rpc,
        ino: Ino,
        version: Version,
        range: std::ops::Range<u64>,
    ) -> Result<(Fetched, BlockReader), Refusal> {
        let (offset, len) = (range.start, range.end - range.start);
        let request = Request::Fetch(Fetch { ino, version, offset, len });
        let response = self.call(rpc, &request, Bytes::new()).await?;
        match response.reply {
            Reply::Fetched(fetched) => Ok((fetched, BlockReader::new(response.body))),
            reply => Err(unexpected(&request, &reply)),
        }
    }

    /// Where data of one version begin from `offset` on, and end.
    pub(crate) async fn seek(
        &self,
        ino: Ino,
        version: Version,
        offset: u64,
    ) -> Result<Sought, Refusal> {
        match self.ask(Request::Seek(Seek { ino, version, offset })).await? {
            (_, Reply::Sought(sought)) => Ok(sought),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// Which of these chunks the server lacks.
    pub(crate) async fn offer(
        &self,
        rpc: &Rpc,
        nonce: &[u8; 32],
        chunks: &[WireChunk],
    ) -> Result<Vec<u32>, Refusal> {
        let proof = |chunk: &Bytes| segue_core::chunk::possession_proof(nonce, chunk);
        let chunks = chunks.iter().map(|chunk| (chunk.name, proof(&chunk.bytes))).collect();
        match self.ask_as(rpc, Request::Offer(Offer { chunks })).await? {
            (_, Reply::Wanted(wanted)) => Ok(wanted.indexes),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// How one version of a file is cut, from `offset` on.
    pub(crate) async fn outline(
        &self,
        rpc: &Rpc,
        ino: Ino,
        version: Version,
        offset: u64,
    ) -> Result<Outlined, Refusal> {
        match self.ask_as(rpc, Request::Outline(Outline { ino, version, offset })).await? {
            (_, Reply::Outlined(outlined)) => Ok(outlined),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// Whether two files have the same bytes, each in one version.
    pub(crate) async fn compare(
        &self,
        one: (Ino, Version),
        other: (Ino, Version),
    ) -> Result<bool, Refusal> {
        match self.ask(Request::Compare(Compare { one, other })).await? {
            (_, Reply::Compared(are_same)) => Ok(are_same),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// Gives the server chunks for `files`, some of them as differences: which of these lead to
    /// nothing there.
    pub(crate) async fn put(
        &self,
        rpc: &Rpc,
        chunks: &[WireChunk],
        deltas: Vec<(Delta, Vec<u8>)>,
        files: Vec<Ino>,
    ) -> Result<Vec<u32>, Refusal> {
        let (chunks, body) = pack(chunks, &deltas);
        let deltas = deltas.into_iter().map(|(delta, _)| delta).collect();
        let request = Request::Put(Put { chunks, files, deltas });
        let response = self.call(rpc, &request, body).await?;
        match response.reply {
            Reply::Stored(stored) => Ok(stored.lacking),
            reply => Err(unexpected(&request, &reply)),
        }
    }

    /// Has leaves made for `files`.
    pub(crate) async fn stage(
        &self,
        rpc: &Rpc,
        leaves: Vec<Leaf>,
        files: Vec<Ino>,
    ) -> Result<Staged, Refusal> {
        match self.ask_as(rpc, Request::Stage(Stage { leaves, files })).await? {
            (_, Reply::Staged(staged)) => Ok(staged),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }

    /// Has the records of `apply` applied, in order, and brings along chunks that they need.
    pub(crate) async fn apply(
        &self,
        rpc: &Rpc,
        apply: Apply,
        chunks: &[WireChunk],
    ) -> Result<(Applied, Option<Promised>), Refusal> {
        let (chunks, body) = pack(chunks, &[]);
        let request = Request::Apply(Apply { chunks, ..apply });
        match self.ask_for_as(rpc, request, body).await? {
            (_, Reply::Applied(applied), promised) => Ok((applied, promised)),
            (request, reply, _) => Err(unexpected(&request, &reply)),
        }
    }

    /// Waits until no other host relies on what was before the changes that are committed now.
    pub(crate) async fn visible(&self) -> Result<(), Refusal> {
        match self.ask(Request::Visible(())).await? {
            (_, Reply::Visible(())) => Ok(()),
            (request, reply) => Err(unexpected(&request, &reply)),
        }
    }
}

/// Chunks as they are named in a message, and as they stand in its body.
fn pack(chunks: &[WireChunk], deltas: &[(Delta, Vec<u8>)]) -> (Vec<(Fingerprint, u32)>, Bytes) {
    let mut body = Vec::new();
    let mut list = Vec::with_capacity(chunks.len());
    let mut deltas = deltas.iter().peekable();
    for (index, Chunk { name, len, bytes }) in (0..).zip(chunks) {
        list.push((*name, *len));
        body.extend(match deltas.next_if(|(delta, _)| delta.index == index) {
            Some((_, differing)) => block_from_stored(bytes.len(), differing),
            None => encode_block(bytes),
        });
    }
    (list, body.into())
}

fn refusal(request: &Request, error: &CallError) -> Refusal {
    tracing::debug!("{}: {error}", request.name());
    match error {
        CallError::Refused { .. } => Refusal::Access,
        CallError::Protocol(_) => Refusal::Protocol,
        CallError::TooLarge => Refusal::TooLarge,
        CallError::Lost(_)
        | CallError::NoAnswer
        | CallError::Cancelled
        | CallError::Busy
        | CallError::Offline { .. } => Refusal::Unreachable,
    }
}
