//! Chunks and leaves that come before records, as `segue-server`'s session/{upload,delta,stage}.rs
//! have them.

use segue_core::chunk::{fingerprint, possession_proof};
use segue_core::namespace::arrivals::{self, BroughtFor};
use segue_core::namespace::{self, NotStaged};
use segue_core::nouns::{ClientId, Fingerprint};
use segue_core::refusal::Refusal;
use segue_core::wire::{Delta, Fetch, Offer, Put, Reply, Stage, Staged, Stored, Wanted};

use super::chunks::fetch;
use super::{Answer, Server, refused};
use crate::Violation;
use crate::plan::Bug;
use crate::store::Txn;

/// The only nonce.
pub(crate) const NONCE: [u8; 32] = [0; 32];

impl Server {
    pub(super) fn offer(&mut self, client: ClientId, offer: &Offer) -> Result<Answer, Violation> {
        let mut txn = Txn::begin(&mut self.disk);
        let proven = self.proven.entry(client).or_default();
        let mut indexes = Vec::new();
        for (index, (name, proof)) in (0..).zip(&offer.chunks) {
            let is_here = namespace::chunk(&mut txn, self.volume, name)?.is_some();
            let bytes = txn.packs().get(name).filter(|_| is_here);
            match bytes.is_some_and(|bytes| possession_proof(&NONCE, bytes) == *proof) {
                true => drop(proven.insert(*name)),
                false => indexes.push(index),
            }
        }
        Ok((Reply::Wanted(Wanted { indexes }), Vec::new()))
    }

    pub(super) fn put(
        &mut self,
        client: ClientId,
        put: &Put,
        body: &[u8],
    ) -> Result<Answer, Violation> {
        if self.is_full {
            return Ok(refused(Refusal::NoSpace));
        }
        let (mut chunks, mut bytes, mut lacking) = (Vec::new(), Vec::new(), Vec::new());
        let mut rest = body;
        for (index, (name, len)) in (0..).zip(&put.chunks) {
            let at = usize::try_from(*len).unwrap_or(usize::MAX).min(rest.len());
            let (sent, after) = rest.split_at(at);
            rest = after;
            let delta = put.deltas.iter().find(|delta| delta.index == index);
            let whole = match delta {
                None => Some(sent.to_vec()),
                Some(delta) => self.undelta(delta, sent)?,
            };
            let is_it = |whole: &Vec<u8>| {
                let believes = self.bug == Some(Bug::ServerBelievesDifferences);
                delta.is_none() || believes || fingerprint(whole) == *name
            };
            match whole.filter(is_it) {
                None => lacking.push(index),
                Some(whole) => {
                    self.counts.differences += u64::from(delta.is_some());
                    chunks.push((*name, *len));
                    bytes.extend(whole);
                }
            }
        }
        let mut txn = Txn::begin(&mut self.disk);
        let of = BroughtFor { client, files: &put.files };
        if let Err(refusal) = arrivals::admit_chunks(&mut txn, self.volume, &chunks, of)? {
            return Ok(refused(refusal));
        }
        self.take_along(client, &chunks, &bytes)?;
        Ok((Reply::Stored(Stored { lacking }), Vec::new()))
    }

    /// A chunk of its difference; `None` if the basis cannot be read.
    fn undelta(&mut self, delta: &Delta, sent: &[u8]) -> Result<Option<Vec<u8>>, Violation> {
        let Delta { ino, version, range, .. } = delta.clone();
        let mut txn = Txn::begin(&mut self.disk);
        let ask = Fetch { ino, version, offset: range.start, len: range.end - range.start };
        let (reply, dictionary) = fetch(&mut txn, self.volume, &ask)?;
        let is_read = matches!(reply, Reply::Fetched(_)) && !dictionary.is_empty();
        Ok(is_read.then(|| difference(sent, &dictionary)))
    }

    pub(super) fn stage(&mut self, client: ClientId, stage: &Stage) -> Result<Answer, Violation> {
        if self.is_full {
            return Ok(refused(Refusal::NoSpace));
        }
        let volume = self.volume;
        let (mut missing, mut astray) = (Vec::new(), Vec::new());
        for (index, leaf) in (0..).zip(&stage.leaves) {
            let mut txn = Txn::begin(&mut self.disk);
            let proven = self.proven.entry(client).or_default();
            let led = namespace::lead(&mut txn, volume, leaf, |name| proven.contains(name))?;
            let Some(led) = led else {
                astray.push(index);
                continue;
            };
            let is_usable = |name: &Fingerprint, _: &_| led.proven.contains(name);
            let of = BroughtFor { client, files: &stage.files };
            let parts = (led.chunks.as_slice(), of);
            match namespace::stage(&mut txn, volume, parts, &is_usable, 0)? {
                Ok(name) => {
                    proven.insert(name);
                    self.counts.leaves += 1;
                    self.ledger.staged(name, &led.chunks)?;
                }
                Err(NotStaged::Missing(chunks)) => missing.extend(chunks),
                Err(NotStaged::Refused(refusal)) => return Ok(refused(refusal)),
            }
        }
        Ok((Reply::Staged(Staged { missing, astray }), Vec::new()))
    }
}

/// The difference of some bytes from others, which have at least one: it is as long, and is its own
/// inverse. (`segue-rpc`'s codec makes shorter ones.)
pub(crate) fn difference(bytes: &[u8], from: &[u8]) -> Vec<u8> {
    bytes.iter().zip(from.iter().cycle()).map(|(one, other)| one ^ other).collect()
}
