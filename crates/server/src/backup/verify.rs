//! Reading again what is in the directory: disks rot, and copies of a directory go wrong.
//!
//! Reading all of it each time would make a nightly backup of a little into a nightly reading of
//! everything, and reading none of it would keep what went wrong from everybody until it is
//! needed. So each backup reads a share, and all of it has been read after [`SHARES`] of them.
//! What is not what it was counts as not there, and is copied from the server like what is new.

use std::collections::BTreeSet;

use segue_core::nouns::Fingerprint;

use super::Backup;
use super::index::Index;
use crate::task::{Failed, RateLimit};

/// Backups after which everything was read again.
const SHARES: usize = 8;
/// Packs that are read again each time: at the rate beside a server's work, a gigabyte takes 20
/// seconds.
const PACKS_MIN: usize = 16;

/// Reads the packs again whose turn it is, or all; returns the chunks that are not there any more.
pub(super) fn read_again(
    backup: &mut Backup<'_, '_>,
    index: &Index,
    rate: &mut RateLimit,
) -> Result<BTreeSet<Fingerprint>, Failed> {
    let (packs, round, path) = (index.packs()?, index.next_round()?, backup.directory.packs());
    let count = if backup.verify { packs.len() } else { share(packs.len()) };
    let mut damaged = BTreeSet::new();
    for pack in packs.into_iter().take(count) {
        let reporter = &mut *backup.reporter;
        let mut each = |bytes| rate.wait(bytes, || reporter.goes_on());
        damaged.extend(index.read_again((&path, pack), round, &mut each)?);
        backup.told()?;
    }
    Ok(damaged)
}

fn share(packs: usize) -> usize {
    packs.div_ceil(SHARES).max(PACKS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything has been read again after eight backups, and a small directory after each.
    /// Proves S19.3.
    #[test]
    fn everything_has_its_turn() {
        assert!((0..=PACKS_MIN).all(|packs| share(packs) >= packs));
        assert!((0..5_000).all(|packs| SHARES * share(packs) >= packs));
        assert_eq!(share(8_000), 1_000);
    }
}
