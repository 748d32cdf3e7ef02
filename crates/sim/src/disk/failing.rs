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
    fn draw(&mut self, per_mille: u64) -> bool {
        let fails = per_mille > 0 && self.rng.chance(per_mille);
        self.count += u64::from(fails);
        fails
    }

    /// Tries to write the log or the index, or to fill a container from the server.
    pub(crate) fn try_write(&mut self) -> Result<(), Refusal> {
        let per_mille = if self.is_full { FULL } else { 0 };
        if self.draw(per_mille) { Err(Refusal::NoSpace) } else { Ok(()) }
    }

    /// Tries to write `len` bytes to a container; the error says how many it has got. None, if the
    /// container has the only copy: a full disk takes bytes that overwrite others.
    pub(crate) fn try_change(
        &mut self,
        len: usize,
        is_only_here: bool,
    ) -> Result<(), (Refusal, usize)> {
        let written = |rng: &mut Rng| if is_only_here { 0 } else { rng.index(len + 1) };
        self.try_write().map_err(|refusal| (refusal, written(&mut self.rng)))
    }

    /// Tries to read.
    pub(crate) fn try_read(&mut self) -> Result<(), Refusal> {
        if self.draw(self.read_errors) { Err(Refusal::Io) } else { Ok(()) }
    }
}
