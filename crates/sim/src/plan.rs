//! What a run is like: how many clients, how bad the network, which bug is planted.

use std::time::Duration;

use crate::rng::Rng;

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
}

impl Bug {
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
        )
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
}

impl Plan {
    pub(crate) fn draw(rng: &mut Rng) -> Plan {
        let mean = |rng: &mut Rng, often: u64, secs: [u64; 3]| {
            rng.chance(often).then(|| Duration::from_secs(rng.pick(&secs)))
        };
        Plan {
            clients: rng.pick(&[1, 1, 2, 2, 3, 4]),
            loss: rng.pick(&[0, 0, 5, 30]),
            duplication: rng.pick(&[0, 20, 100]),
            slow: rng.pick(&[0, 10, 50]),
            delay_micros: rng.pick(&[2_000, 40_000, 300_000]),
            partition_every: mean(rng, 700, [20, 60, 180]),
            client_crash_every: mean(rng, 700, [15, 40, 120]),
            server_crash_every: mean(rng, 600, [15, 40, 120]),
        }
    }
}
