//! Hosts that apply records to one store, as the server would.

mod arrivals;
mod awaited;
mod bytes;
mod clone;
mod conflicts;
mod copied;
mod hostile;
mod listing;
pub(crate) mod model;
mod order;
mod outline;
mod overlay;
mod quotas;
mod remnant;
mod rights;
mod rules;
mod twice;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use super::MapStore as MapTxn;
use super::arrivals::BroughtFor;
use super::*;
use crate::nouns::{
    Attr, Base, Caller, Ino, Name, NewNode, Outcome, Piece, PieceBytes, RenameMode, Role, SetAttr,
    Store, Timestamp,
};
use crate::sharing::{Announced, Awaited, Dirty, Mark, Marked};
use crate::upkeep::tests::check;

pub(crate) const OWNER: Rights = Rights { role: Role::Writer, no_root_squash: false };
pub(crate) const HOST: Rights = Rights { role: Role::Host, no_root_squash: false };
pub(crate) const VOLUME: VolumeId = VolumeId(1);
/// When chunks arrive, in seconds since 1970.
pub(crate) const NOW: u64 = 1_795_250_399;

/// A store with one volume.
pub(crate) fn store() -> MapTxn {
    let mut txn = MapTxn::default();
    let made = create_volume(&mut txn, "home", [7; 16], Timestamp::default()).unwrap();
    assert_eq!(made, Ok(VOLUME));
    txn
}

/// Chunks of the first client for `files`.
pub(crate) fn brought_for(files: &[Ino]) -> BroughtFor<'_> {
    BroughtFor { client: ClientId([1; 16]), files }
}

/// A client of the volume.
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) rights: Rights,
    pub(crate) is_shared: bool,
    pub(crate) caller: Caller,
    pub(crate) seq: u64,
    pub(crate) next_ino: u64,
    pub(crate) proven: BTreeSet<Fingerprint>,
    pub(crate) admits: Admits,
    /// What the server knows to be damaged.
    pub(crate) damaged: DamagedChunks,
    /// Files whose contents it has.
    pub(crate) awaited: Marked,
}

impl Client {
    pub(crate) fn new(txn: &mut MapTxn, id: u8, rights: Rights) -> Client {
        let id = ClientId([id; 16]);
        bind(txn, id, "identity", VOLUME, 1).unwrap().unwrap();
        let next_ino = grant(txn, id).unwrap().unwrap().first;
        Client {
            id,
            rights,
            is_shared: true,
            caller: Caller { uid: 1000, gid: 1000, ..Caller::default() },
            seq: 0,
            next_ino,
            proven: BTreeSet::new(),
            admits: Admits::All,
            damaged: DamagedChunks::new(9),
            awaited: Marked::new(),
        }
    }

    pub(crate) fn user(mut self, uid: u32, gid: u32, groups: &[u32]) -> Client {
        self.caller = Caller { uid, gid, groups: groups.to_vec(), ..Caller::default() };
        self
    }

    pub(crate) fn ino(&mut self) -> Ino {
        self.next_ino += 1;
        Ino(self.next_ino - 1)
    }

    /// The record, stamped with the next seq.
    pub(crate) fn stamp(&mut self, record: Record) -> Stamped {
        self.seq += 1;
        let time = Timestamp { secs: 1_795_250_399 + self.seq as i64, nanos: 0 };
        Stamped {
            seq: self.seq,
            time,
            caller: self.caller.clone(),
            operation: None,
            known: None,
            record,
        }
    }

    pub(crate) fn send(&self, txn: &mut MapTxn, stamped: &Stamped) -> ApplyResult {
        let before = check::findings(txn);
        let result = self.send_unchecked(txn, stamped).unwrap();
        // Rows that fit together do so after every record, whatever it comes to.
        assert_eq!(check::findings(txn), before, "after {stamped:?}");
        result
    }

    pub(crate) fn send_unchecked(
        &self,
        txn: &mut MapTxn,
        stamped: &Stamped,
    ) -> Result<ApplyResult, Fault<Infallible>> {
        let context = Context {
            volume: VOLUME,
            client: self.id,
            incarnation: 1,
            host: "tin",
            rights: self.rights,
            is_shared: self.is_shared,
            proven: &|fingerprint| self.proven.contains(fingerprint),
            admits: self.admits,
            damaged: &self.damaged,
            awaited: &self.awaited,
        };
        let digest = *blake3::hash(&postcard::to_stdvec(stamped).unwrap()).as_bytes();
        apply(txn, &context, stamped, &digest)
    }

    pub(crate) fn apply(&mut self, txn: &mut MapTxn, record: Record) -> Outcome {
        let stamped = self.stamp(record);
        match self.send(txn, &stamped) {
            ApplyResult::Outcome(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// The same, where it may go only if its data are what is known.
    pub(crate) fn apply_knowing(
        &mut self,
        txn: &mut MapTxn,
        record: Record,
        known: Base,
    ) -> Outcome {
        let stamped = Stamped { known: Some(known), ..self.stamp(record) };
        match self.send(txn, &stamped) {
            ApplyResult::Outcome(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn make(&mut self, txn: &mut MapTxn, parent: Ino, name: &str, node: NewNode) -> Ino {
        let ino = self.ino();
        let outcome = self.apply(txn, self.creation(parent, name, ino, node));
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        ino
    }

    pub(crate) fn creation(&self, parent: Ino, name: &str, ino: Ino, node: NewNode) -> Record {
        let (uid, gid) = match self.rights.role {
            Role::Host => (self.caller.uid, self.caller.gid),
            _ => (0, 0),
        };
        Record::Create { parent, name: name_of(name), ino, node, mode: 0o755, uid, gid }
    }

    pub(crate) fn file(&mut self, txn: &mut MapTxn, parent: Ino, name: &str) -> Ino {
        self.make(txn, parent, name, NewNode::File)
    }

    /// The same, whose contents come later.
    pub(crate) fn awaited_file(&mut self, txn: &mut MapTxn, parent: Ino, name: &str) -> Ino {
        self.awaited.insert(Ino(self.next_ino), Mark::default());
        self.file(txn, parent, name)
    }

    pub(crate) fn directory(&mut self, txn: &mut MapTxn, parent: Ino, name: &str) -> Ino {
        self.make(txn, parent, name, NewNode::Directory)
    }
}

pub(crate) fn name_of(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub(crate) fn refused(refusal: Refusal) -> Outcome {
    Outcome::Refused { refusal }
}

pub(crate) fn attr(txn: &mut MapTxn, ino: Ino) -> Attr {
    read::getattr(txn, VOLUME, ino).unwrap().attr
}

pub(crate) fn unlink(parent: Ino, name: &str, ino: Ino, open: bool) -> Record {
    Record::Unlink { parent, name: name_of(name), ino, open }
}

pub(crate) fn rename(from: (Ino, &str), ino: Ino, to: (Ino, &str), mode: RenameMode) -> Record {
    Record::Rename {
        from_parent: from.0,
        from_name: name_of(from.1),
        ino,
        to_parent: to.0,
        to_name: name_of(to.1),
        mode,
        open: false,
    }
}

/// A store of the whole content `bytes`.
pub(crate) fn whole(ino: Ino, base: Base, bytes: &[u8]) -> Record {
    let pieces = match bytes.is_empty() {
        true => vec![],
        false => vec![Piece { offset: 0, bytes: PieceBytes::Inline(bytes.to_vec()) }],
    };
    let size = bytes.len() as u64;
    Record::Store(Store { ino, base, cut: None, size, pieces, mtime: None, whole: true })
}

/// A store of `bytes` at `offset` that is not whole.
pub(crate) fn splice(ino: Ino, base: Base, offset: u64, bytes: &[u8], size: u64) -> Record {
    let pieces = vec![Piece { offset, bytes: PieceBytes::Inline(bytes.to_vec()) }];
    Record::Store(Store { ino, base, cut: None, size, pieces, mtime: None, whole: false })
}

/// A chunk of these bytes arrives, if it is not there yet.
pub(crate) fn arrive(txn: &mut MapTxn, bytes: &[u8]) -> Fingerprint {
    let fingerprint = crate::chunk::fingerprint(bytes);
    let len = u32::try_from(bytes.len()).unwrap();
    let place =
        ChunkPlace { pack: 1, offset: 64, stored_len: len, raw_len: len, compressed: false };
    arrived(txn, (VOLUME, &fingerprint), place, None, lease(NOW)).unwrap();
    fingerprint
}

/// All bytes of a file whose extents are inline.
pub(crate) fn content(txn: &mut MapTxn, ino: Ino) -> Vec<u8> {
    let attr = attr(txn, ino);
    let fetch = crate::wire::Fetch { ino, version: attr.data_version, offset: 0, len: attr.size };
    let mut bytes = Vec::new();
    for segment in read::contents(txn, VOLUME, &fetch).unwrap() {
        match segment.source {
            None => bytes.resize(bytes.len() + segment.len as usize, 0),
            Some(Source::Inline(inline)) => {
                assert_eq!(inline.len() as u64, segment.len);
                bytes.extend_from_slice(&inline);
            }
            Some(Source::Chunk { .. } | Source::Leaf { .. }) => panic!("a chunk"),
        }
    }
    assert_eq!(bytes.len() as u64, attr.size);
    bytes
}

pub(crate) fn version(txn: &mut MapTxn, ino: Ino) -> Base {
    Base::Version(attr(txn, ino).data_version)
}

/// The inode that `name` means.
pub(crate) fn named(txn: &mut MapTxn, parent: Ino, name: &str) -> Option<Ino> {
    let looked = read::lookup(txn, VOLUME, parent, &name_of(name)).unwrap();
    looked.node.map(|node| node.attr.ino)
}
