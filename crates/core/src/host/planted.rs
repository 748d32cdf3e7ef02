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
