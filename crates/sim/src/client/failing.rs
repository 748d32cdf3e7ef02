//! A disk that is full, or that cannot be read here and there: what fails did not happen.

use segue_core::refusal::Refusal;

use crate::rng::Rng;

/// Of a thousand writes to a full disk so many fail: small ones find room.
const FULL: u64 = 700;

/// What a host's disk refuses. By default nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failing {
    pub(crate) is_full: bool,
    /// Reads that fail, of a thousand.
    pub(crate) read_errors: u64,
    pub(crate) rng: Rng,
    /// How often it refused something.
    pub(crate) count: u64,
}

impl Failing {
    fn fails(&mut self, per_mille: u64) -> bool {
        let fails = per_mille > 0 && self.rng.chance(per_mille);
        self.count += u64::from(fails);
        fails
    }

    /// The log or the index is to be written, or a container is to get what the server has.
    pub(super) fn writes(&mut self) -> Result<(), Refusal> {
        let per_mille = if self.is_full { FULL } else { 0 };
        if self.fails(per_mille) { Err(Refusal::NoSpace) } else { Ok(()) }
    }

    /// A container is to get `len` bytes: how many of them it has got if that fails. None of them, where
    /// it has what is nowhere else: a full disk takes what is written over what it has.
    pub(super) fn changes(
        &mut self,
        len: usize,
        is_only_here: bool,
    ) -> Result<(), (Refusal, usize)> {
        let written = |rng: &mut Rng| if is_only_here { 0 } else { rng.index(len + 1) };
        self.writes().map_err(|refusal| (refusal, written(&mut self.rng)))
    }

    /// Something is to be read.
    pub(super) fn reads(&mut self) -> Result<(), Refusal> {
        if self.fails(self.read_errors) { Err(Refusal::Io) } else { Ok(()) }
    }
}
