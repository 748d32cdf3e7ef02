//! What a run is like: how many clients, how bad the network, which bug is planted.

use segue_core::host::Fault;
use segue_core::persist::Lm;
use std::time::Duration;

use crate::rng::Rng;
use crate::work::Mix;

/// A bug in a simulated shell, to prove that the checkers see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Bug {
    /// The server does not keep what became of a record.
    ServerForgetsOutcomes,
    /// A client takes some changes in without writing them to its log.
    ClientSkipsLog,
    /// A client says that it needs outcomes no more before its log says so durably.
    ClientAcksUnsynced,
    /// A client empties a file's container whenever one of its changes is settled.
    ClientDropsDirtyData,
    /// A client overwrites what it has not sent yet without keeping it.
    ClientOverwritesPending,
    /// A client notes what it knows before the log is durable up to there.
    ClientNotesUnsynced,
    /// A client notes no names.
    ClientForgetsNames,
    /// A client notes a directory as listed without the names that it changed and has not sent.
    ClientForgetsPendingNames,
    /// A client keeps no word of what the server has settled.
    ClientForgetsSettled,
    /// A client does not write again what the log has of data.
    ClientRedoesNothing,
    /// A client believes after a loss of power that all data are here that were noted.
    ClientBelievesNotedData,
    /// A client believes after a loss of power that files have what it wrote and nothing else.
    ClientTrustsDoubtful,
    /// A client doubts after a loss of power, and its next process does not.
    ClientForgetsDoubt,
    /// A client sends what is not what it was logged as, before its disk says so durably.
    ClientSendsRewritten,
    /// A client forgets what a sync covered.
    ClientForgetsSyncs,
    /// A client takes each change for that of another process group.
    ClientMixesGroups,
    /// A client does not say that a loss of power may have taken what it did since.
    ClientHidesItsLoss,
    /// A client logs large writes as checksums, also where they are over what only it has.
    ClientSumsWhatOnlyItHas,
    /// A client takes a write that was torn out of its log, and does not note what it spoiled.
    ClientBelievesTorn,
    /// A client notes nothing of a file in which a write was torn, and takes that out of its log.
    ClientForgetsTorn,
    /// A client evicts files that have changes.
    ClientEvictsPending,
    /// A client removes evicted containers before the index hears of it, and does not look later
    /// whether they are there.
    ClientBelievesEvicted,
    /// The server tells nobody of changes.
    ServerLosesBreaks,
    /// A client believes what it was promised by any session and for ever.
    ClientKeepsPromises,
    /// A client takes in breaks, and believes older answers that come behind them.
    ClientForgetsBreaks,
    /// The server says that a change is visible before others have heard of it.
    ServerShowsUnheard,
    /// The server changes things at once after it was started again.
    ServerForgetsSessions,
    /// The server does not look what changed while a host was away.
    ServerResumesUnread,
    /// The server takes for heard what it has told and what was not answered.
    ServerCountsUnheard,
    /// A client that comes back believes what changed while it was away.
    ClientResumesAll,
    /// The server promises what it repeats.
    ServerPromisesRepeated,
    /// The server does not say which names are gone of a directory of which it tells what changed.
    ServerForgetsGone,
    /// A client does not count its lease while its host sleeps.
    ClientSleepsOnLease,
    /// A client's kernel uses what it was told until its lifetime ends, whatever becomes of the
    /// lease and the session.
    ClientKeepsTold,
    /// A client puts fetched bytes into files that have another version by then.
    ClientFillsStale,
    /// A client does not log that a change of a file failed half-way.
    ClientForgetsSpoiled,
    /// The server does not count that files let go of chunks.
    ServerLeaksReferences,
    /// The server does not look whether a difference leads to the chunk that is named.
    ServerBelievesDifferences,
    /// The server welcomes a copied cache, and takes its records for those that it knows.
    ServerWelcomesCopies,
    /// A client sends its changes to any server that claims its volume.
    ClientGreetsAnyServer,
    /// The server counts on at each start, also where its directory was put back.
    ServerBeginsNoLife,
    /// A client believes versions that the server has forgotten.
    ClientBelievesForgotten,
    /// A client merges files that nobody has compared.
    ClientMergesUnlike,
    /// A client does not look whether memory maps wrote to its files.
    ClientForgetsMaps,
    /// A client lets its kernel read on in a container that a file has no more.
    ClientKeepsBacking,
    /// A client makes a change longer whose chunks it has uploaded ahead.
    ClientAmendsUploaded,
    /// The server does not note which files a host says that it has changed.
    ServerForgetsMarks,
    /// The server notes once of a file what a host has made of it.
    ServerKeepsAnnounced,
    /// The server takes a host that sends nothing for one that has sent everything.
    ServerOpensUnsent,
    /// A client says that it has sent what another host waits for, and has not.
    ClientPullsNothing,
}

impl Bug {
    /// The fault of the host that it is, if core has it.
    pub fn fault(self) -> Option<Fault> {
        match self {
            Bug::ClientOverwritesPending => Some(Fault::OverwritesPending),
            Bug::ClientSumsWhatOnlyItHas => Some(Fault::SumsWhatOnlyItHas),
            Bug::ClientForgetsSpoiled => Some(Fault::ForgetsSpoiled),
            Bug::ClientForgetsSyncs => Some(Fault::ForgetsSyncs),
            Bug::ClientRedoesNothing => Some(Fault::RedoesNothing),
            Bug::ClientTrustsDoubtful => Some(Fault::TrustsDoubtful),
            Bug::ClientForgetsDoubt => Some(Fault::ForgetsDoubt),
            Bug::ClientHidesItsLoss => Some(Fault::HidesItsLoss),
            Bug::ClientBelievesTorn => Some(Fault::BelievesBegun),
            Bug::ClientForgetsTorn => Some(Fault::ForgetsBegun),
            Bug::ClientMergesUnlike => Some(Fault::MergesUnlike),
            Bug::ClientKeepsBacking => Some(Fault::KeepsBacking),
            Bug::ClientAmendsUploaded => Some(Fault::AmendsUploaded),
            Bug::ClientEvictsPending => Some(Fault::EvictsPending),
            _ => None,
        }
    }

    /// True if it is about what the server promises.
    pub fn needs_promises(self) -> bool {
        matches!(
            self,
            Bug::ServerLosesBreaks
                | Bug::ClientKeepsPromises
                | Bug::ClientForgetsBreaks
                | Bug::ServerShowsUnheard
                | Bug::ServerForgetsSessions
                | Bug::ServerResumesUnread
                | Bug::ServerCountsUnheard
                | Bug::ClientResumesAll
                | Bug::ServerPromisesRepeated
                | Bug::ClientKeepsTold
                | Bug::ServerForgetsMarks
                | Bug::ServerKeepsAnnounced
                | Bug::ServerOpensUnsent
                | Bug::ClientPullsNothing
        )
    }

    /// True if only a run shows it in which disks, clocks and links fail as they may.
    pub fn needs_swarm(self) -> bool {
        matches!(
            self,
            Bug::ServerForgetsGone
                | Bug::ClientSleepsOnLease
                | Bug::ClientFillsStale
                | Bug::ClientForgetsSpoiled
                | Bug::ServerLeaksReferences
                | Bug::ServerBelievesDifferences
                | Bug::ClientMergesUnlike
                | Bug::ClientAmendsUploaded
                | Bug::ClientForgetsMaps
                | Bug::ServerKeepsAnnounced
                | Bug::ServerOpensUnsent
                | Bug::ClientPullsNothing
        )
    }

    /// True if only a run with copies of disks shows it.
    pub fn needs_copies(self) -> bool {
        matches!(
            self,
            Bug::ServerWelcomesCopies
                | Bug::ClientGreetsAnyServer
                | Bug::ServerBeginsNoLife
                | Bug::ClientBelievesForgotten
        )
    }

    /// True if only a run shows it in which sessions differ.
    pub fn needs_sessions(self) -> bool {
        matches!(self, Bug::ClientForgetsSyncs | Bug::ClientMixesGroups)
    }

    /// True if only a host that lost power shows it.
    pub fn needs_power_loss(self) -> bool {
        matches!(
            self,
            Bug::ClientAcksUnsynced
                | Bug::ClientNotesUnsynced
                | Bug::ClientRedoesNothing
                | Bug::ClientBelievesNotedData
                | Bug::ClientTrustsDoubtful
                | Bug::ClientForgetsDoubt
                | Bug::ClientSendsRewritten
                | Bug::ClientHidesItsLoss
        )
    }
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Operations that applications begin before the faults stop.
    pub steps: u64,
    /// Print each step as it happens.
    pub trace: bool,
    /// A planted bug.
    pub bug: Option<Bug>,
    /// Hosts that go down lose power: what was not synced is there in part.
    pub power_loss: bool,
    /// No process dies in the middle of a change of its disk, and caches hold everything.
    pub plain: bool,
    /// The server promises to tell of changes.
    pub promises: bool,
    /// The threads of a host are process groups and sessions of their own, and sync files.
    pub sessions: bool,
    /// Disks of hosts are put back and cloned, and that of the server is put back.
    pub copies: bool,
    /// Each run draws more: narrow links, clocks that are wrong, hosts that sleep, disks that are
    /// full or cannot be read, chunks.
    pub swarm: bool,
    /// What hosts remove can be read for a while: the server knows that they are not alone.
    pub remnants: bool,
}

impl Options {
    /// What `seed` draws of all that can be asked for.
    #[must_use]
    pub fn swarm(self, seed: u64) -> Options {
        let mut rng = Rng::new(seed.rotate_left(32) ^ SWARM);
        Options {
            steps: if rng.chance(100) { self.steps * 5 } else { self.steps },
            power_loss: rng.chance(300),
            promises: rng.chance(700),
            swarm: true,
            // Drawn from nothing else, so that all other seeds mean what they meant.
            remnants: seed % 3 == 2,
            ..self
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            steps: 150,
            trace: false,
            bug: None,
            power_loss: false,
            plain: false,
            promises: false,
            sessions: false,
            copies: false,
            swarm: false,
            remnants: false,
        }
    }
}

/// The circumstances that a seed stands for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) clients: usize,
    /// Messages that vanish, of a thousand.
    pub(crate) loss: u64,
    /// Messages that arrive twice, of a thousand.
    pub(crate) duplication: u64,
    /// Messages that take seconds, of a thousand.
    pub(crate) slow: u64,
    /// Longest usual delay.
    pub(crate) delay_micros: u64,
    /// Mean time between faults of each kind; none where the kind does not happen.
    pub(crate) partition_every: Option<Duration>,
    pub(crate) client_crash_every: Option<Duration>,
    pub(crate) server_crash_every: Option<Duration>,
    pub(crate) mix: Mix,
    pub(crate) more: More,
    pub(crate) copies: Copies,
}

/// Mean time between faults that copy disks; none where a kind does not happen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) put_back_every: Option<Duration>,
    pub(crate) clone_every: Option<Duration>,
    pub(crate) server_save_every: Option<Duration>,
    pub(crate) server_put_back_every: Option<Duration>,
    /// Starts of a host that find another server, of a thousand.
    pub(crate) other_servers: u64,
}

/// What only some runs have.
#[derive(Clone, Debug, Default)]
pub(crate) struct More {
    /// Bytes that a link takes in a second, each way.
    pub(crate) bandwidth: Option<u64>,
    /// Hosts' clocks run fast or slow by so many millionths at most.
    pub(crate) drift: u64,
    /// Mean time between these.
    pub(crate) sleep_every: Option<Duration>,
    pub(crate) jump_every: Option<Duration>,
    pub(crate) full_every: Option<Duration>,
    pub(crate) server_full_every: Option<Duration>,
    pub(crate) collect_every: Option<Duration>,
    /// Reads of a host's disk that fail, of a thousand.
    pub(crate) read_errors: u64,
    /// Stored pieces that have so many bytes are chunks.
    pub(crate) chunks: Option<usize>,
    /// Hosts fetch more than is waited for.
    pub(crate) reads_ahead: bool,
    /// Hosts send what was changed a while later.
    pub(crate) lingers: bool,
    /// How soon changes must be with the server.
    pub(crate) lm: Lm,
    /// An administrator sets limits so often.
    pub(crate) limits_every: Option<Duration>,
    /// Bytes of notes of commits that the server keeps.
    pub(crate) notes_max: Option<u64>,
}

impl Plan {
    /// What a seed stands for. What only some runs have is drawn from numbers of its own: so the
    /// others stay what they were.
    pub(crate) fn of(seed: u64, rng: &mut Rng, options: Options) -> Plan {
        let mut plan = Plan::draw(rng);
        if options.copies {
            plan.copies = Copies::draw(&mut Rng::new(seed ^ COPIES));
        }
        if options.swarm {
            let mut rng = Rng::new(seed ^ SWARM);
            plan.clients = rng.pick(&[1, 1, 2, 2, 3, 3, 4, 5]);
            plan.mix = if rng.chance(700) { Mix::draw(&mut rng) } else { Mix::default() };
            plan.more = More::draw(&mut rng);
        }
        plan
    }

    fn draw(rng: &mut Rng) -> Plan {
        Plan {
            clients: rng.pick(&[1, 1, 2, 2, 3, 4]),
            loss: rng.pick(&[0, 0, 5, 30]),
            duplication: rng.pick(&[0, 20, 100]),
            slow: rng.pick(&[0, 10, 50]),
            delay_micros: rng.pick(&[2_000, 40_000, 300_000]),
            partition_every: mean(rng, 700, [20, 60, 180]),
            client_crash_every: mean(rng, 700, [15, 40, 120]),
            server_crash_every: mean(rng, 600, [15, 40, 120]),
            mix: Mix::default(),
            more: More::default(),
            copies: Copies::default(),
        }
    }
}

impl Copies {
    fn draw(rng: &mut Rng) -> Copies {
        Copies {
            put_back_every: mean(rng, 700, [15, 40, 120]),
            clone_every: mean(rng, 500, [15, 40, 120]),
            server_save_every: mean(rng, 700, [5, 20, 60]),
            server_put_back_every: mean(rng, 700, [30, 60, 120]),
            other_servers: rng.pick(&[0, 100, 300]),
        }
    }
}

/// So that what is drawn with this is not what is drawn without.
const SWARM: u64 = 0x5E6E_5A17;
/// The same for copies of disks.
pub(crate) const COPIES: u64 = 0xC0_B1E5;

/// In so many of a thousand runs one of these, in seconds.
fn mean(rng: &mut Rng, often: u64, secs: [u64; 3]) -> Option<Duration> {
    rng.chance(often).then(|| Duration::from_secs(rng.pick(&secs)))
}

impl More {
    fn draw(rng: &mut Rng) -> More {
        More {
            bandwidth: rng.pick(&[None, None, Some(8 << 10), Some(64 << 10)]),
            // A lease is counted 2 % short.
            drift: rng.pick(&[0, 2_000, 15_000]),
            sleep_every: mean(rng, 500, [20, 60, 180]),
            jump_every: mean(rng, 300, [20, 60, 180]),
            full_every: mean(rng, 400, [20, 60, 180]),
            server_full_every: mean(rng, 300, [20, 60, 180]),
            collect_every: mean(rng, 800, [3, 10, 40]),
            read_errors: rng.pick(&[0, 0, 5, 30]),
            chunks: rng.pick(&[None, Some(16), Some(64)]),
            reads_ahead: rng.chance(600),
            notes_max: rng.pick(&[None, None, Some(300), Some(2000)]),
            lingers: rng.chance(400),
            lm: rng.pick(&[Lm::Async, delay(5), delay(40), log(1), log(10), Lm::Close, Lm::Sync]),
            limits_every: mean(rng, 400, [10, 20, 60]),
        }
    }
}

fn delay(seconds: u64) -> Lm {
    Lm::Delay(Duration::from_secs(seconds))
}

fn log(seconds: u64) -> Lm {
    Lm::Log(Duration::from_secs(seconds))
}
