//! What the server's rules write for changes, noted down to be written again without them.

use std::convert::Infallible;

use segue_core::namespace::{
    self, Admits, ApplyResult, Context, DamagedChunks, Fault, MapStore, MetaSnapshot, MetaTxn,
    Rights, bind, create_volume, grant, raise_floor,
};
use segue_core::nouns::{ClientId, Outcome, Role, Timestamp, VolumeId};
use segue_core::sharing::Marked;

use super::changes::Changes;
use super::client::wrong;
use segue_bed::Result;

const CLIENT: ClientId = ClientId([7; 16]);
const INCARNATION: u32 = 1;

/// One write.
pub(super) enum Write {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
}

/// What is written in one transaction.
pub(super) type Transaction = Vec<Write>;

/// A volume in memory, changed by the rules.
pub(super) struct Recorder {
    rows: Rows,
    volume: VolumeId,
    changes: Changes,
}

#[derive(Default)]
struct Rows {
    rows: MapStore,
    noted: Transaction,
}

impl Recorder {
    /// A volume and its one client, whose files hold `data`; and what makes them.
    pub(super) fn new(data: Vec<u8>) -> Result<(Recorder, Transaction)> {
        let mut rows = Rows::default();
        let volume = create_volume(&mut rows, "home", [1; 16], Timestamp::default());
        let volume = volume.map_err(fault)?.map_err(wrong)?;
        let bound = bind(&mut rows, CLIENT, &"0".repeat(64), volume, INCARNATION);
        bound.map_err(fault)?.map_err(wrong)?;
        let numbers = grant(&mut rows, CLIENT).map_err(fault)?;
        let numbers = numbers.ok_or_else(|| wrong("no inode numbers"))?;
        let made = std::mem::take(&mut rows.noted);
        Ok((Recorder { rows, volume, changes: Changes::new(numbers, data) }, made))
    }

    /// The next `count` changes, as one APPLY writes them.
    pub(super) fn transaction(&mut self, count: u32) -> Result<Transaction> {
        let context = Context {
            volume: self.volume,
            client: CLIENT,
            incarnation: INCARNATION,
            host: "bench",
            rights: Rights { role: Role::Writer, no_root_squash: false },
            is_shared: false,
            proven: &|_| true,
            admits: Admits::All,
            damaged: &DamagedChunks::new(0),
            awaited: &Marked::new(),
        };
        let acked_below = self.changes.next_seq();
        for (number, stamped) in (0u64..).zip(self.changes.take(count)?) {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_be_bytes());
            match namespace::apply(&mut self.rows, &context, &stamped, &digest).map_err(fault)? {
                ApplyResult::Outcome(Outcome::Done { .. }) => {}
                other => return Err(wrong(format!("a change came to {other:?}"))),
            }
        }
        raise_floor(&mut self.rows, CLIENT, INCARNATION, acked_below).map_err(fault)?;
        Ok(std::mem::take(&mut self.rows.noted))
    }

    /// How many rows there are after all of this.
    pub(super) fn rows(&self) -> usize {
        self.rows.rows.0.len()
    }
}

fn fault(fault: Fault<Infallible>) -> segue_bed::Error {
    wrong(fault)
}

impl MetaSnapshot for Rows {
    type Error = Infallible;

    fn get(&mut self, key: &[u8]) -> std::result::Result<Option<Vec<u8>>, Infallible> {
        self.rows.get(key)
    }

    fn range(
        &mut self,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> std::result::Result<Vec<(Vec<u8>, Vec<u8>)>, Infallible> {
        self.rows.range(from, to, limit)
    }
}

impl MetaTxn for Rows {
    fn put(&mut self, key: &[u8], value: &[u8]) -> std::result::Result<(), Infallible> {
        self.noted.push(Write::Put(key.to_vec(), value.to_vec()));
        self.rows.put(key, value)
    }

    fn remove(&mut self, key: &[u8]) -> std::result::Result<(), Infallible> {
        self.noted.push(Write::Remove(key.to_vec()));
        self.rows.remove(key)
    }
}
