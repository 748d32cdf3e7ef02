//! Faults that the simulator plants, to see that its checkers find them. Without the feature
//! `planted`, which only the simulator asks for, there are none.

use super::Host;

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Pending bytes are overwritten, and nothing of them is preserved.
    OverwritesPending,
    /// Large writes are logged as checksums, also over bytes that the server lacks.
    SumsWhatOnlyItHas,
    /// The log does not say that a write failed half-way.
    ForgetsSpoiled,
    /// A sync covers nothing.
    ForgetsSyncs,
    /// What the log has of data is not written again.
    RedoesNothing,
    /// After a loss of power, files are taken to have what was written and nothing else.
    TrustsDoubtful,
    /// After a loss of power, data are in doubt, and for the next process they are not.
    ForgetsDoubt,
    /// Nothing says that a loss of power may have taken what was done since.
    HidesItsLoss,
    /// A change that was only begun is taken out of the log, and what it spoiled is not noted.
    BelievesBegun,
    /// A file gets another container, and the kernel goes on with the old one as if it was this.
    KeepsBacking,
    /// A file is merged with another one of its size, and nobody compares them.
    MergesUnlike,
    /// Data that nobody has open may go from the cache, although the server lacks them.
    EvictsPending,
    /// What was written since becomes part of a change whose chunks went ahead without it.
    AmendsUploaded,
    /// Nothing is noted of a file with such a change, and it is taken out of the log.
    ForgetsBegun,
}

impl Host {
    /// Plants a fault.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, fault: Fault) {
        self.planted = Some(fault);
    }

    /// True if `fault` is planted.
    pub(in crate::host) fn has_planted(&self, fault: Fault) -> bool {
        self.planted == Some(fault)
    }
}
