//! Leaves: long runs of chunks, named before the record that commits them.

use segue_core::namespace::{self, LEAF_EXTENTS_MAX, NotStaged};
use segue_core::refusal::Refusal;
use segue_core::types::Fingerprint;
use segue_core::wire::{Reply, STAGE_MAX, Stage, Staged};
use segue_rpc::Body;

use super::upload::{few_files, full};
use super::{Answer, Bound, Session, refuse};
use crate::data::now_seconds;
use crate::meta::{Kv, MetaFault};

impl Session {
    pub(super) async fn stage(&self, bound: &Bound, stage: Stage) -> Answer {
        let fits = |leaf: &Vec<_>| (1..=LEAF_EXTENTS_MAX).contains(&leaf.len());
        if stage.leaves.len() > STAGE_MAX || !stage.leaves.iter().all(fits) {
            let words =
                format!("at most {STAGE_MAX} leaves at once, of 1 to {LEAF_EXTENTS_MAX} chunks");
            return Err(refuse(Refusal::Limit, words));
        }
        let files = few_files(stage.files)?;
        let mut shown: Vec<Fingerprint> = {
            let proven = self.proven();
            let names = stage.leaves.iter().flatten().map(|(fingerprint, _)| *fingerprint);
            names.filter(|fingerprint| proven.contains(fingerprint)).collect()
        };
        shown.sort_unstable();
        let (volume, leaves, now) = (bound.volume, stage.leaves, now_seconds());
        let work = move |txn: &mut Kv<'_>| -> Result<_, MetaFault> {
            let (mut made, mut missing) = (Vec::new(), Vec::new());
            let proven = |fingerprint: &Fingerprint| shown.binary_search(fingerprint).is_ok();
            for leaf in &leaves {
                match namespace::stage(txn, volume, (leaf, &files), &proven, now)? {
                    Ok(leaf) => made.push(leaf),
                    Err(NotStaged::Missing(chunks)) => missing.extend(chunks),
                    Err(NotStaged::Refused(refusal)) => return Ok(Err(refusal)),
                }
            }
            Ok(Ok((made, missing)))
        };
        let (made, missing) = self.server.data.store.write(work).await?.map_err(full)?;
        let mut proven = self.proven();
        made.into_iter().for_each(|leaf| proven.insert(leaf));
        Ok((Reply::Staged(Staged { missing }), Body::Empty))
    }
}
