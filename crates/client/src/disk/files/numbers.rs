//! Log places and inode numbers, handed out from blocks that were reserved durably before.
//!
//! After an unclean end the rest of a block is skipped, so that no number is ever used twice.

use std::io;

use segue_core::nouns::{ClientId, Ino, InoGrant};

use super::StateDirectory;

const SEQ_BLOCK: u64 = 1 << 16;
const INO_BLOCK: u64 = 1 << 12;
/// Unused inode numbers that are kept while the server can be asked: files that can be made
/// without a network.
const INOS_KEPT: u64 = 3 << 20;

/// The numbers of one mount.
#[derive(Debug)]
pub(crate) struct Numbers {
    directory: StateDirectory,
    inos_used: u64,
}

impl Numbers {
    /// Numbers after those that an earlier process may have used.
    pub(crate) fn new(directory: StateDirectory) -> Numbers {
        let inos_used = directory.saved.inos_reserved;
        Numbers { directory, inos_used }
    }

    /// The first seq that surely was never used.
    pub(crate) fn first_seq(&self) -> u64 {
        self.directory.saved.seq_reserved
    }

    /// The cache is another client from now on, whose inode numbers are these.
    pub(crate) fn become_client(
        &mut self,
        client: ClientId,
        grants: &[InoGrant],
    ) -> io::Result<()> {
        self.directory.become_client(client, grants)?;
        self.inos_used = 0;
        Ok(())
    }

    /// Notes that no doubt is left about data that an earlier run of the host did not sync.
    pub(crate) fn clear_power_loss(&mut self) -> io::Result<()> {
        if self.directory.lost_power { self.directory.clear_power_loss() } else { Ok(()) }
    }

    /// Marks the cache directory as clean: everything in it is durable, and right unless the next
    /// process has to doubt it.
    pub(crate) fn mark_clean(&mut self) -> io::Result<()> {
        self.directory.saved.clean = !self.directory.lost_power;
        self.directory.save()
    }

    /// Reserves a block of seqs, none of them below `first`; they may be used up to the returned
    /// one, excluded.
    pub(crate) fn reserve_seqs(&mut self, first: u64) -> io::Result<u64> {
        let reserved = self.directory.saved.seq_reserved;
        self.directory.saved.seq_reserved = reserved.max(first) + SEQ_BLOCK;
        self.directory.save()?;
        Ok(self.directory.saved.seq_reserved)
    }

    /// Takes in the server's grants. It returns all of them, oldest first.
    pub(crate) fn set_grants(&mut self, grants: &[InoGrant]) -> io::Result<()> {
        if self.directory.saved.grants == grants {
            return Ok(());
        }
        self.directory.saved.grants = grants.to_vec();
        self.directory.save()
    }

    /// Adds one grant.
    pub(crate) fn add_grant(&mut self, grant: InoGrant) -> io::Result<()> {
        if self.directory.saved.grants.contains(&grant) {
            return Ok(());
        }
        self.directory.saved.grants.push(grant);
        self.directory.save()
    }

    /// Unused inode numbers.
    pub(crate) fn inos_left(&self) -> u64 {
        let total: u64 = self.directory.saved.grants.iter().map(|grant| grant.count).sum();
        total.saturating_sub(self.inos_used)
    }

    /// False when it is time to ask for another grant.
    pub(crate) fn are_plenty(&self) -> bool {
        self.inos_left() >= INOS_KEPT
    }

    /// A new inode number; `None` when all grants are used up.
    pub(crate) fn take_ino(&mut self) -> io::Result<Option<Ino>> {
        if self.inos_left() == 0 {
            return Ok(None);
        }
        if self.inos_used >= self.directory.saved.inos_reserved {
            self.directory.saved.inos_reserved = self.inos_used + INO_BLOCK;
            self.directory.save()?;
        }
        let mut index = self.inos_used;
        self.inos_used += 1;
        for grant in &self.directory.saved.grants {
            if index < grant.count {
                return Ok(Some(Ino(grant.first + index)));
            }
            index -= grant.count;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_number_is_used_twice_even_after_an_unclean_end() {
        let base = tempfile::tempdir().unwrap();
        let open = || {
            let at = Path::new("/mnt");
            let client = ClientId([7; 16]);
            StateDirectory::open(base.path(), &[1; 16], client, at, Duration::ZERO).unwrap()
        };
        let mut numbers = Numbers::new(open());
        assert_eq!(numbers.take_ino().unwrap(), None);
        numbers.set_grants(&[InoGrant { first: 100, count: 5000 }]).unwrap();
        assert_eq!(numbers.take_ino().unwrap(), Some(Ino(100)));
        assert_eq!(numbers.take_ino().unwrap(), Some(Ino(101)));
        let through = numbers.reserve_seqs(1).unwrap();
        drop(numbers);
        let mut numbers = Numbers::new(open());
        assert_eq!(numbers.first_seq(), through);
        assert_eq!(numbers.take_ino().unwrap(), Some(Ino(100 + INO_BLOCK)));
        numbers.add_grant(InoGrant { first: 9000, count: 10 }).unwrap();
        let left = numbers.inos_left();
        let rest: Vec<_> = (0..left).map(|_| numbers.take_ino().unwrap().unwrap()).collect();
        assert_eq!(rest.last(), Some(&Ino(9009)));
        assert_eq!(numbers.take_ino().unwrap(), None);
        numbers.add_grant(InoGrant { first: 1 << 30, count: INOS_KEPT }).unwrap();
        assert!(numbers.are_plenty());
        numbers.take_ino().unwrap();
        assert!(!numbers.are_plenty());
    }

    /// The next process after the one that found a loss of power trusted everything, though the
    /// first one still doubted what the server had not confirmed.
    #[test]
    fn a_loss_of_power_is_known_until_nothing_is_in_doubt_however_processes_end() {
        let base = tempfile::tempdir().unwrap();
        let open = || {
            let client = ClientId([7; 16]);
            let at = Path::new("/mnt");
            StateDirectory::open(base.path(), &[1; 16], client, at, Duration::ZERO).unwrap()
        };
        let mut directory = open();
        assert!(!directory.lost_power);
        directory.saved.boot_id = "an earlier one".to_owned();
        directory.save().unwrap();
        drop(directory);
        for ends_in_order in [false, true, false] {
            let mut numbers = Numbers::new(open());
            assert!(numbers.directory.lost_power);
            if ends_in_order {
                numbers.mark_clean().unwrap();
            }
        }
        Numbers::new(open()).clear_power_loss().unwrap();
        assert!(!open().lost_power, "the one that knew it was killed in this run of the host");
        Numbers::new(open()).mark_clean().unwrap();
        assert!(!open().lost_power);
    }
}
