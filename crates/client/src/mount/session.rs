//! Getting through the server's door: which identity, which cache, which connection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use segue_core::host::conflict::{Meeting, meet};
use segue_core::host::log::latest_told;
use segue_core::nouns::{ClientId, Role, Version};
use segue_core::refusal::Refusal;
use segue_core::wire::{Hello, Welcome};
use segue_rpc::identity::{Identities, Identity, IdentityError, MountUrl};
use segue_rpc::{
    CallError, ConnectError, EnrolError, GreetError, Greeting, Incoming, Link, LinkState, Options,
    Peer, Recorder, Target, enrol, greet,
};
use tokio::sync::mpsc;

use crate::disk::files::{FoundLog, Index, KnownServer, LogFile, StateDirectory, known_volume};
use crate::error::MountError;
use crate::mount::MountPlan;
use crate::net::limits::Limiter;
use crate::rank::Ranked;
use crate::shell::promises::{self, Heard, listen};
use crate::shell::told::AtHello;
use crate::write_back::PARTING;

/// An invite is answered within this.
const ENROL_TIMEOUT: Duration = Duration::from_secs(10);
/// The first connection must be there within this. A link gives a silent server up sooner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// A volume of which the cache is here is waited for no longer than this.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The link of a mount to its server, and the cached state of its volume.
pub(super) struct MountSession {
    pub(crate) link: Link,
    /// `None`: the server cannot be reached, and its volume was mounted here before.
    pub(crate) welcome: Option<Arc<Welcome>>,
    pub(crate) uuid: [u8; 16],
    pub(crate) state: State,
}

/// Opens a session as the identity that this host has for the volume. With an invite a host
/// that has none, or whose own is not accepted any more, is enrolled first.
pub(crate) async fn session(
    plan: &MountPlan,
    url: &str,
    base: &Path,
) -> Result<MountSession, MountError> {
    let identities = Identities::at(plan.paths.identities());
    let Some(invite) = plan.url.invite() else {
        let authority = known_authority(plan, &identities)?;
        let identity = load(plan, &identities, &authority)?.ok_or_else(|| not_enrolled(plan))?;
        return open_session(plan, url, base, &target(plan, &authority), identity).await;
    };
    let target = target(plan, &invite.authority);
    // The same line again is harmless on a host that is enrolled, also at a new address.
    let own = match identities.load(&invite.authority, plan.url.volume()) {
        Err(damaged @ IdentityError::Damaged { .. }) => {
            tracing::warn!("enrolling again: {damaged}");
            None
        }
        loaded => loaded.map_err(|error| identity_error(plan, &error))?,
    };
    if let Some(identity) = own {
        match open_session(plan, url, base, &target, identity).await {
            Err(MountError::Denied { reason, .. }) => {
                tracing::info!("enrolling again: {reason}");
            }
            Ok(session) => {
                let remembered = identities.remember(&plan.url, &invite.authority);
                remembered.map_err(|error| identities_error(plan, &error))?;
                return Ok(session);
            }
            other => return other,
        }
    }
    enrol(&plan.url, &identities, &plan.host, ENROL_TIMEOUT)
        .await
        .map_err(|error| enrol_error(&server_name(&plan.url), error))?;
    let identity = load(plan, &identities, &invite.authority)?;
    let identity = identity.ok_or_else(|| not_enrolled(plan))?;
    open_session(plan, url, base, &target, identity).await
}

fn identities_error(plan: &MountPlan, error: &dyn std::fmt::Display) -> MountError {
    MountError::State { path: plan.paths.identities(), reason: error.to_string() }
}

fn load(
    plan: &MountPlan,
    identities: &Identities,
    authority: &str,
) -> Result<Option<Identity>, MountError> {
    let loaded = identities.load(authority, plan.url.volume());
    loaded.map_err(|error| identity_error(plan, &error))
}

fn identity_error(plan: &MountPlan, error: &IdentityError) -> MountError {
    match error {
        IdentityError::Damaged { path, words } => {
            let remedy = "on the server, revoke the identity of this host (segue identity revoke) \
                          and make an invite (segue invite); then mount with that";
            MountError::state(path, format!("is damaged ({words}); {remedy}"))
        }
        other => identities_error(plan, other),
    }
}

fn known_authority(plan: &MountPlan, identities: &Identities) -> Result<String, MountError> {
    let known = identities.lookup(&plan.url).map_err(|error| identities_error(plan, &error))?;
    known.ok_or_else(|| not_enrolled(plan))
}

fn not_enrolled(plan: &MountPlan) -> MountError {
    let volume = plan.url.volume();
    MountError::Denied {
        host: server_name(&plan.url),
        reason: format!(
            "this host is not enrolled for volume '{volume}': get an invite from the server (segue \
             invite --volume {volume}) and mount its URL once"
        ),
    }
}

fn server_name(url: &MountUrl) -> String {
    format!("{}:{}", url.host(), url.port())
}

fn enrol_error(host: &str, error: EnrolError) -> MountError {
    let host = host.to_string();
    match error {
        EnrolError::Connect(error) => connect_error(host, &error),
        EnrolError::Late | EnrolError::Call(CallError::Lost(_) | CallError::NoAnswer) => {
            MountError::Offline { host, reason: error.to_string() }
        }
        error => MountError::Denied { host, reason: error.to_string() },
    }
}

fn connect_error(host: String, error: &ConnectError) -> MountError {
    let reason = error.to_string();
    match error {
        ConnectError::Resolve(_) => MountError::Offline { host, reason },
        ConnectError::Unreachable(words) => {
            let reason = words.strip_prefix(&format!("{host}: ")).unwrap_or(words).to_owned();
            MountError::Offline { host, reason }
        }
        ConnectError::OtherVersion(_) => MountError::Protocol { host, reason },
        _ => MountError::Denied { host, reason },
    }
}

/// What each new connection says first.
#[derive(Clone)]
struct HelloPlan {
    volume: String,
    cache: Arc<Ranked<CacheName>>,
    incarnation: u32,
    host: String,
    acked_below: Arc<AtomicU64>,
    fresh: Arc<AtomicBool>,
    /// What the identity may do at most, whatever a server says.
    role: Option<Role>,
    /// The volume that must be there.
    expected: Option<[u8; 16]>,
    /// Another one is.
    is_other: Arc<AtomicBool>,
    /// Where the server's own calls go.
    heard: Heard,
    at_hello: AtHello,
    limiter: Limiter,
    recorder: Option<Recorder>,
}

/// What the server calls this cache.
#[derive(Clone, Copy)]
struct CacheName {
    client: ClientId,
    /// No change has this seq or a later one.
    next: u64,
    /// The latest version of anything that is known.
    known: Option<Version>,
    /// It was another client when the cache directory was opened.
    is_new: bool,
}

/// The open cache directory of a volume, with its log.
pub(super) struct OpenCache {
    pub(crate) directory: StateDirectory,
    pub(crate) log: LogFile,
    pub(crate) found: FoundLog,
}

impl OpenCache {
    /// Opens the cache of volume `uuid`. If there is none, it is made as `client`.
    fn open(
        plan: &MountPlan,
        (base, uuid): (&Path, [u8; 16]),
        client: ClientId,
        target: &Target,
    ) -> Result<OpenCache, MountError> {
        let mut directory =
            StateDirectory::open(base, &uuid, client, &plan.mountpoint, PARTING * 3)?;
        check_server(plan, &mut directory, target)?;
        let log = directory.path.join("update.log");
        let (incarnation, lost_power) = (directory.saved.incarnation, directory.lost_power);
        let (log, found) = LogFile::open(log, incarnation, lost_power)?;
        Ok(OpenCache { directory, log, found })
    }

    fn name(&self) -> Result<CacheName, MountError> {
        let directory = &self.directory;
        let index = Index::open_to_read(&directory.path.join("index.db"));
        let noted = index.and_then(|index| index.latest().ok()).flatten();
        Ok(CacheName {
            client: directory.client()?,
            next: directory.saved.seq_reserved,
            known: noted.max(latest_told(&self.found.entries)),
            is_new: false,
        })
    }
}

impl HelloPlan {
    fn new(
        plan: &MountPlan,
        cache: CacheName,
        incarnation: u32,
        role: Option<Role>,
        heard: Heard,
    ) -> Result<HelloPlan, MountError> {
        let record =
            |path: &PathBuf| Recorder::open(path).map_err(|error| MountError::state(path, error));
        let recorder = plan.options.record_calls.as_ref().map(record).transpose()?;
        Ok(HelloPlan {
            heard,
            role,
            volume: plan.url.volume().to_string(),
            cache: Arc::new(Ranked::leaf(cache)),
            incarnation,
            host: plan.host.clone(),
            acked_below: Arc::default(),
            fresh: Arc::new(AtomicBool::new(true)),
            expected: None,
            is_other: Arc::default(),
            at_hello: AtHello::default(),
            limiter: Limiter::new(plan.options.bwlimit.clone(), plan.options.background),
            recorder,
        })
    }

    fn greeting(&self) -> Greeting {
        let plan = self.clone();
        Arc::new(move |peer: Peer| {
            let plan = plan.clone();
            Box::pin(async move {
                let cache = *plan.cache.lock();
                let hello = Hello {
                    volume: plan.volume.clone(),
                    client: cache.client,
                    incarnation: plan.incarnation,
                    host: plan.host.clone(),
                    acked_below: plan.acked_below.load(Ordering::Relaxed),
                    next: plan.at_hello.next_seq().unwrap_or(cache.next),
                    known: plan.at_hello.known().unwrap_or(cache.known),
                    was: None,
                    fresh_start: plan.fresh.load(Ordering::Relaxed),
                };
                plan.recorder.iter().for_each(|recorder| peer.record(recorder));
                plan.at_hello.before().await;
                // The limit goes first, and costs no time.
                let greeted = plan.greeted(&peer, hello);
                let ((), welcome) = tokio::join!(plan.limiter.begin(&peer), greeted);
                let welcome = welcome?;
                plan.check_volume(&welcome)?;
                plan.fresh.store(false, Ordering::Relaxed);
                tokio::spawn(listen(peer.calls(), plan.heard));
                let again = |refusal: Refusal| GreetError::Again(refusal.to_string());
                plan.at_hello.after(&peer, &welcome).await.map_err(again)?;
                Ok(welcome)
            })
        })
    }
}

impl HelloPlan {
    /// The server's welcome. If this cache is one of two copies it becomes another client, which
    /// has its own records and inode numbers: nothing that waits is taken for what the other sent.
    async fn greeted(&self, peer: &Peer, hello: Hello) -> Result<Welcome, GreetError> {
        let why = match greet(peer, hello.clone()).await {
            Err(GreetError::Copied(why)) => why,
            greeted => return greeted,
        };
        let again = |error: io::Error| GreetError::Again(format!("{why}: {error}"));
        let client = ClientId(random().map_err(again)?);
        let welcome = greet(peer, hello.as_another(client)).await?;
        self.check_volume(&welcome)?;
        self.at_hello.become_client(client, &welcome.grants).map_err(again)?;
        let mut cache = self.cache.lock();
        *cache = CacheName { client, is_new: true, ..*cache };
        tracing::warn!(
            "{why}: it goes on as another client; pending changes stay, and those that the copy \
             sent already may become conflict copies"
        );
        Ok(welcome)
    }

    fn check_volume(&self, welcome: &Welcome) -> Result<(), GreetError> {
        if self.expected.is_none_or(|uuid| uuid == welcome.volume_uuid) {
            return Ok(());
        }
        self.is_other.store(true, Ordering::Relaxed);
        Err(GreetError::Refused(
            "the server now has another volume at this URL than the mounted one; unmount and mount \
             again (pending changes stay in the cache directory)"
                .into(),
        ))
    }

    /// Notes in the cache directory what the first welcome said.
    fn note(&self, directory: &mut StateDirectory, welcome: &Welcome) -> Result<(), MountError> {
        let path = directory.path.clone();
        let cache = *self.cache.lock();
        let noted = match cache.is_new {
            true => directory.become_client(cache.client, &welcome.grants),
            false => Ok(()),
        };
        noted.map_err(|error| MountError::state(&path, error))?;
        self.note_role(directory, welcome.role)
    }

    /// Notes that a server says `role`, as far as the enrolment allows it.
    fn note_role(&self, directory: &mut StateDirectory, role: Role) -> Result<(), MountError> {
        let path = directory.path.clone();
        let role = self.role.map_or(role, |allowed| allowed.min(role));
        directory.set_role(role).map_err(|error| MountError::state(&path, error))
    }
}

/// An open cache, and what each new connection says of it.
pub(crate) struct State {
    pub(crate) cache: OpenCache,
    pub(crate) acked_below: Arc<AtomicU64>,
    /// The server's own calls.
    pub(crate) breaks: mpsc::Receiver<Incoming>,
    pub(crate) at_hello: AtHello,
    pub(crate) limiter: Limiter,
}

impl State {
    fn new(cache: OpenCache, hello: HelloPlan, breaks: mpsc::Receiver<Incoming>) -> State {
        let HelloPlan { acked_below, at_hello, limiter, .. } = hello;
        State { cache, acked_below, breaks, at_hello, limiter }
    }
}

fn target(plan: &MountPlan, authority: &str) -> Target {
    let discipline = plan.options.priorities.clone();
    let options = Options { discipline, ..Options::default() };
    Target { options, ..Target::new(&plan.url, authority) }
}

/// Refuses a server that claims the volume of a cache of another one: it would get what the other
/// was to get, and this host would believe it.
fn check_server(
    plan: &MountPlan,
    directory: &mut StateDirectory,
    target: &Target,
) -> Result<(), MountError> {
    let host = server_name(&plan.url);
    let authority = &target.authority;
    let known = directory.saved.server.as_ref();
    let meeting = meet(known.map(|known| &*known.authority), authority, plan.options.new_server);
    if let (Some(known), Meeting::Refused | Meeting::Replaced) = (known, meeting) {
        let path = directory.path.display();
        let names = format!(
            "the cache of this volume in {path} is of the server at {} ({}), and {host} is another \
             one ({authority})",
            known.address, known.authority
        );
        if meeting == Meeting::Refused {
            let reason = format!(
                "{names}; nothing was sent. If it took the other one's place for good, mount with \
                 -o new-server; to use both, mount with -o cache-dir=DIR"
            );
            return Err(MountError::OtherServer { host, reason });
        }
        tracing::warn!("{names}: it gets the pending changes from now on");
    }
    let server = KnownServer { authority: authority.clone(), address: host };
    let path = directory.path.clone();
    directory.set_server(server).map_err(|error| MountError::state(&path, error))
}

/// Connects, and opens the cache directory of the volume: of the one that was found there before,
/// whether it can be reached or not, or of the one that is found there now.
async fn open_session(
    plan: &MountPlan,
    url: &str,
    base: &Path,
    target: &Target,
    identity: Identity,
) -> Result<MountSession, MountError> {
    if let Some(uuid) = known_volume(base, url)
        && let Some(session) = known_session(plan, (base, uuid), target, identity.clone()).await?
    {
        return Ok(session);
    }
    let new_client = ClientId(random().map_err(|error| MountError::state("/dev/urandom", error))?);
    let (heard, breaks) = promises::channel();
    let new = CacheName { client: new_client, next: 1, known: None, is_new: false };
    let hello = HelloPlan::new(plan, new, 1, identity.role(), heard.clone())?;
    let link = Link::open(target.clone(), identity.clone(), hello.greeting());
    let welcome = connected(&link, &plan.url, CONNECT_TIMEOUT).await?;
    let uuid = welcome.volume_uuid;
    let mut cache = OpenCache::open(plan, (base, uuid), new_client, target)?;
    let name = cache.name()?;
    if name.client != new_client {
        // The volume is known here under another URL: go on as the cache that it has.
        drop(link);
        let hello = HelloPlan {
            expected: Some(uuid),
            ..HelloPlan::new(plan, name, cache.directory.saved.incarnation, identity.role(), heard)?
        };
        let link = Link::open(target.clone(), identity, hello.greeting());
        let welcome = connected(&link, &plan.url, CONNECT_TIMEOUT).await?;
        hello.note(&mut cache.directory, &welcome)?;
        let state = State::new(cache, hello, breaks);
        return Ok(MountSession { link, welcome: Some(welcome), uuid, state });
    }
    hello.note(&mut cache.directory, &welcome)?;
    let state = State::new(cache, hello, breaks);
    Ok(MountSession { link, welcome: Some(welcome), uuid, state })
}

/// A session of the volume that was mounted here before; `None` if there is another one now.
async fn known_session(
    plan: &MountPlan,
    (base, uuid): (&Path, [u8; 16]),
    target: &Target,
    identity: Identity,
) -> Result<Option<MountSession>, MountError> {
    let nobody = ClientId([0; 16]);
    let mut cache = OpenCache::open(plan, (base, uuid), nobody, target)?;
    let (name, incarnation) = (cache.name()?, cache.directory.saved.incarnation);
    let (heard, breaks) = promises::channel();
    let hello = HelloPlan {
        expected: Some(uuid),
        ..HelloPlan::new(plan, name, incarnation, identity.role(), heard)?
    };
    let link = Link::open(target.clone(), identity, hello.greeting());
    let welcome = match connected(&link, &plan.url, KNOWN_TIMEOUT).await {
        Ok(welcome) => {
            hello.note(&mut cache.directory, &welcome)?;
            Some(welcome)
        }
        Err(MountError::Denied { .. }) if hello.is_other.load(Ordering::Relaxed) => {
            let path = cache.directory.path.display();
            tracing::warn!(
                "the server now has another volume at this URL; the cache of the old one stays in \
                 {path}"
            );
            return Ok(None);
        }
        // An earlier identity of this host may have been allowed more.
        Err(error @ MountError::Offline { .. }) => {
            let Some(role) = cache.directory.saved.role else { return Err(error) };
            hello.note_role(&mut cache.directory, role)?;
            None
        }
        Err(error) => return Err(error),
    };
    let state = State::new(cache, hello, breaks);
    Ok(Some(MountSession { link, welcome, uuid, state }))
}

fn random() -> io::Result<[u8; 16]> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Waits for the first welcome.
async fn connected(
    link: &Link,
    url: &MountUrl,
    patience: Duration,
) -> Result<Arc<Welcome>, MountError> {
    let host = server_name(url);
    let mut watch = link.watch();
    let waiting = async {
        loop {
            let state = watch.borrow_and_update().clone();
            match state {
                LinkState::Online { welcome, .. } => return Ok(welcome),
                LinkState::Refused { why } => {
                    return Err(MountError::Denied { host: host.clone(), reason: why });
                }
                LinkState::OtherVersion { why } => {
                    return Err(MountError::Protocol { host: host.clone(), reason: why });
                }
                LinkState::Offline { why, .. } => {
                    return Err(MountError::Offline { host: host.clone(), reason: why });
                }
                LinkState::Connecting => {}
            }
            if watch.changed().await.is_err() {
                let reason = "the connection attempt was abandoned".into();
                return Err(MountError::Offline { host: host.clone(), reason });
            }
        }
    };
    tokio::time::timeout(patience, waiting).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", patience.as_secs());
        Err(MountError::Offline { host: host.clone(), reason })
    })
}
