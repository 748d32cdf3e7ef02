//! What the store remembers of the volume's clients decodes.

use serde::de::DeserializeOwned;

use super::scan::Scan;
use super::{Checker, Damage, Halt, Visitor, decode};
use crate::namespace::rows::OutcomeRow;
use crate::namespace::{ClientRow, MetaSnapshot, keys};
use crate::nouns::{ClientId, Ino};

/// Length of a key that begins with a client.
const CLIENT_KEY: usize = 1 + size_of::<ClientId>();

impl<S: MetaSnapshot, V: Visitor> Checker<'_, S, V> {
    pub(super) fn clients(&mut self) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(keys::clients());
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            let client = keys::client_part(&key).filter(|_| key.len() == CLIENT_KEY);
            let (Some(client), Some(row)) = (client, decode::<ClientRow>(&value)) else {
                self.report_row(&key, "a client");
                continue;
            };
            if row.volume != self.volume {
                continue;
            }
            let next = self.row.as_ref().map_or(u64::MAX, |volume| volume.next_ino);
            let is_granted =
                |first: u64, count| first.checked_add(count).is_some_and(|end| end <= next);
            if !row.grants.iter().all(|grant| is_granted(grant.first, grant.count)) {
                self.report_volume(Damage::Grants { client });
            }
            self.rows_of::<u64>(keys::floors(client), 4, "a floor")?;
            self.rows_of::<OutcomeRow>(keys::outcomes(client), 12, "an outcome")?;
            self.rows_of::<Ino>(keys::copies(client), 8, "a conflict copy")?;
            self.rows_of::<()>(keys::all_dropped(client), 8, "a dropped orphan")?;
        }
        Ok(())
    }

    /// Rows of one client, whose keys have `rest` bytes after it.
    fn rows_of<R: DeserializeOwned>(
        &mut self,
        prefix: Vec<u8>,
        rest: usize,
        what: &'static str,
    ) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(prefix);
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            if key.len() != CLIENT_KEY + rest || decode::<R>(&value).is_none() {
                self.report_row(&key, what);
            }
        }
        Ok(())
    }
}
