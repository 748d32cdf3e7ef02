//! The table of promises, between the sessions and the store thread; and the telling.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use segue_core::nouns::{ClientId, Ino, Stamped, Time, VolumeId};
use segue_core::promise::{
    Ask, Change, Company, Grace, Object, Promises as Table, Promising, SessionId, TERM,
};
use segue_core::sharing::{Awaited, Dirty, Marked, OpenWait};
use segue_core::wire::{BREAK_MAX, Break, Reply, Request};
use segue_rpc::{Body, CloseCode, Peer};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Promises at a time, to all sessions: 213 bytes each where no two have the same.
const PROMISES_MAX: usize = 1 << 20;
/// Of these, to one session.
const OF_SESSION_MAX: usize = 1 << 19;
/// Promises that are given at a time.
const SLICE: usize = 4096;

/// All promises of this server.
pub(crate) struct Promises {
    shared: Mutex<Shared>,
    /// Told when a session has heard of something, is over, or has come back.
    heard: watch::Sender<()>,
    /// Number of the last commit.
    commit: watch::Sender<u64>,
    started: Instant,
}

struct Shared {
    table: Table,
    sessions: BTreeMap<SessionId, Attached>,
    grace: Grace,
    company: Company,
}

/// What is known of a session.
struct Attached {
    client: ClientId,
    wake: Arc<Notify>,
    peer: Peer,
    /// Its host may send chunks.
    brings: bool,
}

/// A session that may be promised something, for as long as it lives.
pub(crate) struct Holder {
    promises: Arc<Promises>,
    /// Which.
    pub(crate) id: SessionId,
    volume: VolumeId,
    client: ClientId,
    /// Who tells it of breaks.
    teller: AbortHandle,
}

/// A question that is being answered, until it is dropped.
pub(crate) struct Asked<'a> {
    promises: &'a Promises,
    ask: Option<Ask>,
}

impl Shared {
    fn wake(&self, told: &BTreeSet<SessionId>) {
        for session in told.iter().filter_map(|id| self.sessions.get(id)) {
            session.wake.notify_one();
        }
    }

    /// `id` relies on what these inodes are now, as far as is returned.
    fn hold(&mut self, id: SessionId, inodes: &[Ino]) -> Promising {
        let promised = self.table.hold(id, inodes);
        self.wake(&promised.told);
        promised.promising
    }
}

impl Promises {
    /// None yet. The server before this one may have promised something to `absent`, of which it
    /// knows nothing any more, and noted whose contents are awaited.
    /// The last commit was number `commit`.
    pub(crate) fn new(absent: BTreeSet<ClientId>, awaited: &[Awaited], commit: u64) -> Promises {
        let mut table = Table::new(PROMISES_MAX, OF_SESSION_MAX, commit);
        table.noted(awaited, Time::default());
        let company = Company::new(absent.iter().copied(), Time::default());
        let grace = Grace::new(absent, Time::default());
        let shared = Mutex::new(Shared { table, sessions: BTreeMap::new(), grace, company });
        let (heard, commit) = (watch::Sender::new(()), watch::Sender::new(commit));
        Promises { shared, heard, commit, started: Instant::now() }
    }

    /// The time since the start, for how long the grace lasts.
    fn now(&self) -> Time {
        Time(self.started.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session of `client` on `volume` begins: breaks are told to `peer` as long as that lives.
    /// `brings` says whether its host may send chunks.
    pub(crate) fn enter(
        self: &Arc<Self>,
        volume: VolumeId,
        (client, brings): (ClientId, bool),
        peer: &Peer,
    ) -> Holder {
        let wake = Arc::new(Notify::new());
        let mut shared = self.lock();
        let id = shared.table.enter(volume, client);
        let attached = Attached { client, wake: wake.clone(), peer: peer.clone(), brings };
        shared.sessions.insert(id, attached);
        shared.company.enter(volume, client);
        drop(shared);
        let teller = tokio::spawn(tell(Arc::clone(self), id, wake, peer.clone())).abort_handle();
        Holder { promises: Arc::clone(self), id, volume, client, teller }
    }

    /// Something is about to be read that will be answered.
    pub(crate) fn ask(&self) -> Asked<'_> {
        Asked { promises: self, ask: Some(self.lock().table.ask()) }
    }

    /// `author` committed `change`, or nobody who has a session, and is told what `inodes` are now.
    /// What it may rely on.
    pub(crate) fn committed_by(
        &self,
        author: Option<SessionId>,
        change: &Change,
        inodes: &[Ino],
    ) -> Promising {
        let mut shared = self.lock();
        let promised = shared.table.committed_by(author, change, inodes);
        shared.wake(&promised.told);
        promised.promising
    }

    /// All that commit `number` changed was told of.
    pub(crate) fn committed(&self, number: u64) {
        self.lock().table.committed(number);
        self.commit.send_replace(number);
    }

    /// The last commit of which all has been told to `holder` that was promised to it.
    pub(crate) fn heard_through(&self, holder: &Holder) -> u64 {
        self.lock().table.heard_through(holder.id)
    }

    /// Waits until there is a commit behind number `since`, and `holder` has heard of all that was
    /// promised to it and changed until then.
    pub(crate) async fn heard_beyond(&self, holder: &Holder, since: u64) {
        let (mut commit, mut heard) = (self.commit.subscribe(), self.heard.subscribe());
        // An error means that the server is ending.
        commit.wait_for(|commit| *commit > since).await.ok();
        let commit = *commit.borrow();
        while self.heard_through(holder) < commit && heard.changed().await.is_ok() {}
    }

    /// `holder` relies on what these inodes were at some commit. If it will hear of changes from
    /// here on: those that another host has marked.
    pub(crate) fn resume(&self, holder: &Holder, inodes: &[Ino]) -> Option<Vec<Ino>> {
        let mut marked = Vec::new();
        // Others wait for the table.
        for slice in inodes.chunks(SLICE) {
            let promising = self.lock().hold(holder.id, slice);
            if !promising.but.is_empty() {
                return None;
            }
            marked.extend(promising.marked.keys());
        }
        Some(marked)
    }

    /// The host of `holder` says which files it has changed.
    pub(crate) fn dirty(&self, holder: &Holder, dirty: &Dirty) {
        let mut shared = self.lock();
        let told = shared.table.dirty(holder.id, dirty);
        shared.wake(&told);
    }

    /// The host of `holder` is about to create these files, and their contents come later.
    pub(crate) fn awaited(&self, holder: &Holder, awaited: Marked) {
        if !awaited.is_empty() {
            self.dirty(holder, &Dirty { changed: awaited, ..Dirty::default() });
        }
    }

    /// See [`Table::awaited_of`].
    pub(crate) fn awaited_of(
        &self,
        volume: VolumeId,
        client: ClientId,
        records: &[Stamped],
    ) -> Marked {
        self.lock().table.awaited_of(volume, client, records)
    }

    /// Files that hosts have marked.
    pub(crate) fn marks(&self) -> usize {
        self.lock().table.marks()
    }

    /// The wait of `holder` for the hosts that have changes of `ino` which the server lacks, and
    /// their connections.
    pub(crate) fn open_wait(&self, holder: &Holder, ino: Ino) -> (OpenWait, Vec<(ClientId, Peer)>) {
        let now = self.now();
        let mut shared = self.lock();
        let writers = shared.table.writers(holder.id, ino, now);
        let peer = |client: &ClientId| {
            let mut sessions = shared.sessions.values().rev();
            sessions.find(|session| session.client == *client).map(|session| session.peer.clone())
        };
        let wait = OpenWait::new(writers, |client| peer(client).is_some());
        let peers = wait.left().filter_map(|client| Some((client, peer(&client)?))).collect();
        (wait, peers)
    }

    /// `client`, which was let in, believes nothing any more that an earlier server promised.
    pub(crate) fn came_back(&self, client: ClientId) {
        self.lock().grace.came_back(client);
        self.heard.send_replace(());
    }

    /// True if `client` has a session besides `but`.
    pub(crate) fn is_attached(&self, client: ClientId, but: Option<SessionId>) -> bool {
        let shared = self.lock();
        let mut sessions = shared.sessions.iter();
        sessions.any(|(id, session)| session.client == client && Some(*id) != but)
    }

    /// True if another client than this one may know files of the volume.
    pub(crate) fn has_others(&self, volume: VolumeId, client: ClientId) -> bool {
        let now = self.now();
        self.lock().company.has_others(volume, client, now)
    }

    /// Waits for the end of the grace period: no client believes an earlier server's promises then,
    /// and changes may begin. Returns the clients of that server that have not come back.
    pub(crate) async fn await_grace(&self) -> BTreeSet<ClientId> {
        let mut heard = self.heard.subscribe();
        loop {
            let left = {
                let shared = self.lock();
                let Some(left) = shared.grace.left(self.now()) else {
                    return shared.grace.absent().clone();
                };
                left
            };
            // Whichever it is, it is looked again.
            timeout(left, heard.changed()).await.ok();
        }
    }

    /// True if nobody but `holder` relies on what was before any commit on its volume.
    pub(crate) fn is_visible(&self, volume: VolumeId, holder: &Holder) -> bool {
        let shared = self.lock();
        shared.table.is_visible(volume, holder.id, shared.table.now())
    }

    /// Waits until nobody but `holder` relies on what was before the commits of before this call:
    /// as long as the slowest of them takes to hear of it, or to be given up.
    pub(crate) async fn visible(&self, volume: VolumeId, holder: &Holder) {
        self.await_grace().await;
        let mut heard = self.heard.subscribe();
        let moment = self.lock().table.now();
        while !self.lock().table.is_visible(volume, holder.id, moment) {
            if heard.changed().await.is_err() {
                return;
            }
        }
    }

    /// At most `most` sessions whose hosts probably have `object` in their caches, and may send
    /// chunks; the likeliest first.
    pub(crate) fn likely_holders(&self, object: Object, most: usize) -> Vec<(SessionId, Peer)> {
        let shared = self.lock();
        let likely = shared.table.likely_holders(object).into_iter();
        let attached = likely.filter_map(|id| Some((id, shared.sessions.get(&id)?)));
        let bring = attached.filter(|(_, session)| session.brings);
        bring.map(|(id, session)| (id, session.peer.clone())).take(most).collect()
    }

    /// Promises that are held now.
    pub(crate) fn held(&self) -> usize {
        self.lock().table.held()
    }
}

impl Asked<'_> {
    /// The answer says what `inodes` are. On what of that `holder` may rely.
    pub(crate) fn answered(mut self, holder: &Holder, inodes: &[Ino]) -> Option<Promising> {
        let ask = self.ask.take()?;
        let mut shared = self.promises.lock();
        let promised = shared.table.answered(ask, holder.id, inodes);
        shared.wake(&promised.told);
        Some(promised.promising)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(ask) = self.ask.take() {
            self.promises.lock().table.unanswered(ask);
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.teller.abort();
        let now = self.promises.now();
        let mut shared = self.promises.lock();
        shared.table.leave(self.id, now);
        shared.sessions.remove(&self.id);
        shared.company.leave(self.volume, self.client, now);
        drop(shared);
        self.promises.heard.send_replace(());
    }
}

/// Tells a session of its breaks, one call at a time: what breaks meanwhile goes with the next.
async fn tell(promises: Arc<Promises>, id: SessionId, wake: Arc<Notify>, peer: Peer) {
    let telling = async {
        loop {
            wake.notified().await;
            loop {
                let inodes = promises.lock().table.take_breaks(id, BREAK_MAX);
                if inodes.is_empty() {
                    break;
                }
                let request = Request::Break(Break { inodes });
                let told = timeout(TERM, peer.call(&request, Body::Empty)).await;
                if !matches!(
                    told.map(|told| told.map(|told| told.reply)),
                    Ok(Ok(Reply::Broken(())))
                ) {
                    // What it was promised would not be so any more.
                    return peer.close(CloseCode::Protocol, "a break was not taken in");
                }
                promises.lock().table.heard(id);
                promises.heard.send_replace(());
            }
        }
    };
    tokio::select! {
        () = telling => {}
        _ = peer.closed() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use segue_rpc::identity::{Authority, MountUrl};
    use segue_rpc::{Listener, Options, Target, dial};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A connection whose hellos were refused had kept a task for each.
    #[tokio::test]
    async fn a_teller_ends_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        let listen = ([127, 0, 0, 1], 0).into();
        let listener = Listener::bind(listen, &authority, &Options::default()).unwrap();
        let url: MountUrl = format!("segue://{}/home", listener.local_address()).parse().unwrap();
        let target = Target::new(&url, authority.fingerprint());
        let (peer, host) = tokio::join!(listener.accept(), dial(&target, None, PATIENCE));
        let (peer, _host) = (peer.unwrap(), host.unwrap());
        let promises = Arc::new(Promises::new(BTreeSet::new(), &[], 0));
        let holder = promises.enter(VolumeId(1), (ClientId([1; 16]), true), &peer);
        assert_eq!(promises.lock().sessions.len(), 1);
        tokio::task::yield_now().await;
        drop(holder);
        assert!(promises.lock().sessions.is_empty());
        let ended = timeout(PATIENCE, async {
            while Arc::strong_count(&promises) > 1 {
                tokio::task::yield_now().await;
            }
        });
        assert!(ended.await.is_ok(), "the teller goes on without its holder");
        assert!(!peer.is_over());
    }
}
