//! The server: core's namespace over a map, behind the same messages as the real one.
//!
//! It mirrors the sessions of `segue-server`: a batch is one transaction, ends at the first
//! outcome that is not final, and then raises the floor. Each record that it applies is shown
//! to the [`Ledger`], and applied once more to see that nothing happens.

mod chunks;
mod doors;
mod lives;
mod promises;
mod quotas;
mod uploads;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use segue_core::namespace::changes::{self, Changed};
use segue_core::namespace::{
    self, Admits, ApplyResult, Context, DamagedChunks, Fault, MetaTxn, Rights, Stop, Unwelcome,
    keys, read,
};
use segue_core::nouns::{
    ClientId, Fingerprint, Ino, OpId, Outcome, Role, Stamped, Timestamp, Version, VolumeId,
};
use segue_core::refusal::Refusal;
use segue_core::upkeep::RemnantAges;
use segue_core::wire::{Applied, Apply, Found, Hello, Opened, Refused, Reply, Request, Welcome};

use crate::check::ledger::Ledger;
use crate::plan::{Bug, Options};
use crate::rng::Rng;
use crate::store::{Disk, Txn, Written};
use crate::{Summary, Violation};
pub(crate) use chunks::{content, xattrs};
use doors::Doors;
pub(crate) use doors::{Holder, Origin};
pub(crate) use lives::Image;
use promises::Sessions;
pub(crate) use promises::{Moment, Telling};
pub(crate) use uploads::{NONCE, difference};

/// Which life of a client's log; the simulator's clients never lose theirs.
const INCARNATION: u32 = 1;

/// A reply and its body.
pub(crate) type Answer = (Reply, Vec<u8>);

/// The server with what is on its disk.
pub(crate) struct Server {
    disk: Disk,
    /// Chunks that a client has shown to have.
    proven: BTreeMap<ClientId, BTreeSet<Fingerprint>>,
    /// Its disk takes nothing.
    pub(crate) is_full: bool,
    /// Bytes of notes of commits that are kept, if that is bounded.
    pub(crate) notes_max: Option<u64>,
    rng: Rng,
    pub(crate) volume: VolumeId,
    pub(crate) ledger: Ledger,
    /// Of what the last outcomes told that were repeated.
    repeated: BTreeSet<Ino>,
    /// If it promises anything.
    sessions: Option<Sessions>,
    /// The connections that count, where disks are copied.
    doors: Option<Doors>,
    /// What the last request changed, and what that became.
    changed: BTreeMap<Ino, Option<Version>>,
    /// And what is to be noted of it.
    unnoted: BTreeMap<VolumeId, Changed>,
    /// How long ago remnants were left, or asked for.
    ages: RemnantAges,
    /// The last answer told of this one.
    told_remnant: Option<Ino>,
    /// It knows that its clients are not alone.
    is_shared: bool,
    /// What it did.
    pub(crate) counts: Summary,
    bug: Option<Bug>,
}

impl From<Fault<Infallible>> for Violation {
    fn from(fault: Fault<Infallible>) -> Violation {
        Violation(format!("the server: {fault:?}"))
    }
}

fn refused(refusal: Refusal) -> Answer {
    (Reply::Refused(Refused { refusal, words: refusal.to_string() }), Vec::new())
}

/// The reply to a read, where a refusal is one too.
fn replied(result: Result<Answer, Stop<Infallible>>) -> Result<Answer, Violation> {
    match result {
        Ok(answer) => Ok(answer),
        Err(Stop::Refused(refusal)) => Ok(refused(refusal)),
        Err(Stop::Fault(fault)) => Err(fault.into()),
    }
}

impl Server {
    /// A server with one empty volume.
    pub(crate) fn new(options: &Options, rng: Rng) -> Result<Server, Violation> {
        let mut disk = Disk::default();
        let mut txn = Txn::begin(&mut disk);
        let volume = namespace::create_volume(&mut txn, "home", [7; 16], Timestamp::default())?;
        let volume = volume.map_err(|error| Violation(error.to_string()))?;
        let ledger = Ledger::new(volume);
        let sessions = options.promises.then(Sessions::default);
        Ok(Server {
            disk,
            proven: BTreeMap::new(),
            is_full: false,
            notes_max: None,
            rng,
            volume,
            ledger,
            repeated: BTreeSet::new(),
            sessions,
            doors: None,
            changed: BTreeMap::new(),
            unnoted: BTreeMap::new(),
            ages: RemnantAges::default(),
            told_remnant: None,
            is_shared: options.remnants,
            counts: Summary::default(),
            bug: options.bug,
        })
    }

    /// A view of the store.
    pub(crate) fn snapshot(&mut self) -> Txn<'_> {
        Txn::begin(&mut self.disk)
    }

    /// Answers `request` of `client`.
    pub(crate) fn answer(
        &mut self,
        client: ClientId,
        request: &Request,
        body: &[u8],
    ) -> Result<Answer, Violation> {
        let (volume, forgets) = (self.volume, self.bug == Some(Bug::ServerForgetsGone));
        let mut txn = Txn::begin(&mut self.disk);
        replied(match request {
            Request::Hello(hello) => return self.hello(hello),
            Request::Apply(apply) => return self.apply(client, apply, body),
            Request::Offer(offer) => return self.offer(client, offer),
            Request::Put(put) => return self.put(client, put, body),
            Request::Stage(stage) => return self.stage(client, stage),
            Request::Outline(ask) => namespace::outline::outline(&mut txn, volume, ask)
                .map(|outlined| (Reply::Outlined(outlined), Vec::new())),
            Request::Getattr(ino) | Request::Open(ino) => {
                let found = |node| {
                    let found = Found { node, promised: None };
                    match request {
                        Request::Open(_) => Reply::Opened(Opened { found, is_hidden: false }),
                        _ => Reply::Node(found),
                    }
                };
                let node = read::getattr_or_remnant(&mut txn, volume, *ino);
                node.map(|(node, is_remnant)| {
                    self.told_remnant = is_remnant.then_some(*ino);
                    (found(node), Vec::new())
                })
            }
            Request::Lookup(ask) => read::lookup(&mut txn, volume, ask.parent, &ask.name)
                .map(|looked| (Reply::Looked(looked), Vec::new())),
            Request::Readdir(ask) => {
                let page = read::page(&mut txn, volume, ask).map(|mut page| {
                    page.gone.as_mut().filter(|_| forgets).into_iter().for_each(Vec::clear);
                    page
                });
                page.map(|page| (Reply::Page(page), Vec::new()))
            }
            Request::Xattrs(ino) => read::xattrs(&mut txn, volume, *ino)
                .map(|xattrs| (Reply::Xattrs(xattrs), Vec::new())),
            Request::Compare(ask) => namespace::equal::compare(&mut txn, volume, ask)
                .map(|is_same| (Reply::Compared(is_same), Vec::new())),
            Request::Statfs(ino) => return self.space(*ino),
            Request::Fetch(ask) => return chunks::fetch(&mut txn, volume, ask),
            other => return Err(Violation(format!("nobody asks for {}", other.name()))),
        })
    }

    fn hello(&mut self, hello: &Hello) -> Result<Answer, Violation> {
        self.proven.remove(&hello.client);
        let mut txn = Txn::begin(&mut self.disk);
        let client = hello.client;
        let mut heard = hello.clone();
        if self.bug == Some(Bug::ServerWelcomesCopies) {
            heard.next = u64::MAX;
        }
        let greeted = match namespace::greet(&mut txn, &heard, "host", self.volume)? {
            Ok(greeted) => greeted,
            Err(Unwelcome::Copied) => return Ok(refused(Refusal::Copied)),
            Err(Unwelcome::Unbound(error)) => return Err(Violation(error.to_string())),
        };
        self.ledger.inherits((client, hello.next), hello.was);
        txn.take_written();
        if hello.fresh_start {
            namespace::drop_orphans(&mut txn, (client, self.volume), self.is_shared)?;
            let written = txn.take_written();
            self.ledger.orphans_dropped(&mut txn, client, &written)?;
            note_changes(&mut txn, &written, (&mut self.changed, &mut self.unnoted));
        }
        let namespace::Greeted { grants, history } = greeted;
        let (volume_uuid, epoch, role, nonce) = ([7; 16], 1, Role::Writer, [0; 32]);
        let commit = changes::head(&mut txn, 0)?.last;
        let welcome = Welcome { volume_uuid, epoch, role, grants, nonce, commit, history };
        Ok((Reply::Welcome(welcome), Vec::new()))
    }

    fn apply(&mut self, client: ClientId, apply: &Apply, body: &[u8]) -> Result<Answer, Violation> {
        // A disk that fills up takes the first records.
        let mut left = apply.records.len();
        if self.is_full {
            left = self.rng.index(left + 1);
            if left == 0 {
                return Ok(refused(Refusal::NoSpace));
            }
        }
        self.take_along(client, &apply.chunks, body)?;
        let proven = self.proven.entry(client).or_default();
        let mut txn = Txn::begin(&mut self.disk);
        let host = host_name(client);
        let marked = |all: &Sessions| all.table.awaited_of(self.volume, client, &apply.records);
        let awaited = self.sessions.as_ref().map_or_else(Default::default, marked);
        let context = Context {
            volume: self.volume,
            client,
            incarnation: INCARNATION,
            host: &host,
            rights: Rights { role: Role::Writer, no_root_squash: false },
            is_shared: self.is_shared,
            proven: &|chunk| proven.contains(chunk),
            admits: Admits::All,
            damaged: &DamagedChunks::new(0),
            awaited: &awaited,
        };
        let mut outcomes = Vec::new();
        self.repeated.clear();
        for stamped in apply.records.iter().take(left) {
            let op = OpId { client, incarnation: INCARNATION, seq: stamped.seq };
            let changed = (&mut self.changed, &mut self.unnoted);
            match once(&mut txn, &context, (op, stamped), (&mut self.ledger, changed), self.bug)? {
                ApplyResult::Repeated(outcome) => {
                    self.repeated.extend(outcome.touched().iter().map(|attr| attr.ino));
                    outcomes.push(outcome);
                }
                ApplyResult::Outcome(outcome) => {
                    let last = !outcome.is_final();
                    outcomes.push(outcome);
                    if last {
                        break;
                    }
                }
                ApplyResult::Cloned if self.bug == Some(Bug::ServerWelcomesCopies) => {
                    outcomes.push(Outcome::Done { touched: Vec::new() });
                }
                ApplyResult::Cloned => {
                    // Without copies it is a late message of a connection that is over.
                    if self.doors.is_some() {
                        namespace::copied::retire(&mut txn, client)?;
                    }
                    return Ok(refused(Refusal::Copied));
                }
            }
        }
        namespace::raise_floor(&mut txn, client, INCARNATION, apply.acked_below)?;
        self.ledger.acked(client, apply.acked_below);
        for (stamped, outcome) in apply.records.iter().zip(&outcomes) {
            let op = OpId { client, incarnation: INCARNATION, seq: stamped.seq };
            self.ledger.answered(op, &digest(stamped)?, outcome)?;
        }
        Ok((
            Reply::Applied(Applied { outcomes, visible: true, promised: None, heard: 0 }),
            Vec::new(),
        ))
    }
}

/// Applies a record, shows it to the ledger, and applies it again.
fn once(
    txn: &mut Txn<'_>,
    context: &Context<'_>,
    (op, stamped): (OpId, &Stamped),
    (ledger, changed): (&mut Ledger, Changes<'_>),
    bug: Option<Bug>,
) -> Result<ApplyResult, Violation> {
    let digest = digest(stamped)?;
    txn.take_written();
    let result = namespace::apply(txn, context, stamped, &digest)?;
    let written = txn.take_written();
    ledger.applied(txn, (op, stamped, &digest), &result, &written)?;
    note_changes(txn, &written, changed);
    if bug == Some(Bug::ServerLeaksReferences) {
        chunks::leak(txn, written);
        txn.take_written();
    }
    if bug == Some(Bug::ServerForgetsOutcomes) {
        let Ok(()) = txn.remove(&keys::outcome(op));
        return Ok(result);
    }
    let again = namespace::apply(txn, context, stamped, &digest)?;
    if again != result.clone().again() || !txn.take_written().is_empty() {
        let words = format!("{op:?} applied again: {again:?}, at first {result:?}");
        return Err(Violation(words));
    }
    Ok(result)
}

/// What changed, and what that became; and what is to be noted of it.
type Changes<'a> = (&'a mut BTreeMap<Ino, Option<Version>>, &'a mut BTreeMap<VolumeId, Changed>);

fn note_changes(txn: &mut Txn<'_>, written: &Written, (changed, unnoted): Changes<'_>) {
    for (volume, changed) in Changed::of(written.keys().map(Vec::as_slice)) {
        unnoted.entry(volume).or_default().and(changed);
    }
    for (volume, ino) in written.keys().filter_map(|key| keys::inode_of(key)) {
        let became = read::getattr(txn, volume, ino).ok().map(|node| node.attr.change);
        changed.insert(ino, became);
    }
}

/// As the real server's sessions digest a record.
fn digest(stamped: &Stamped) -> Result<[u8; 32], Violation> {
    let bytes = postcard::to_stdvec(&stamped.identity());
    let bytes = bytes.map_err(|error| Violation(error.to_string()))?;
    Ok(*blake3::hash(&bytes).as_bytes())
}

/// A client's host.
pub(crate) fn host_name(client: ClientId) -> String {
    format!("host{}", client.0[0])
}
