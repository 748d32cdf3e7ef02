//! A host comes back: what it knows from its last session is promised to it in this one, but for what
//! changed meanwhile.

use std::collections::BTreeSet;

use segue_core::namespace::changes::{self, Span};
use segue_core::promise::Inodes;
use segue_core::refusal::Refusal;
use segue_core::types::Ino;
use segue_core::wire::{RESUME_MAX, Reply, Resume, Resumed};
use segue_rpc::Body;

use super::{Answer, Bound, Session, refuse};
use crate::meta::{Kv, MetaFault};

impl Session {
    pub(super) async fn resume(&self, bound: &Bound, resume: Resume) -> Answer {
        let Resume { since, held } = resume;
        if held.len() > RESUME_MAX {
            let words = format!("at most {RESUME_MAX} inodes are resumed at a time");
            return Err(refuse(Refusal::Limit, words));
        }
        let held: BTreeSet<Ino> = held.iter().collect();
        let store = &self.server.data.store;
        // First, so that what changes behind the snapshot is told.
        let inodes: Vec<Ino> = held.iter().copied().collect();
        if !store.promises().resume(&bound.holder, &inodes) {
            return Ok((Reply::Resumed(None), Body::Empty));
        }
        let volume = bound.volume;
        let look = move |snapshot: &mut Kv<'_>| -> Result<_, MetaFault> {
            let mut changed = BTreeSet::new();
            let span = Span { since, through: u64::MAX };
            let commit = changes::since(snapshot, volume, span, |more| {
                changed.extend(more.inodes.intersection(&held));
                true
            })?;
            Ok(commit.map(|commit| (changed, commit)))
        };
        let resumed = match store.read(look).await {
            Ok(Ok(Some((changed, commit)))) => {
                tracing::debug!(held = inodes.len(), changed = changed.len(), "a host came back");
                Some(Resumed { changed: changed.into_iter().collect::<Inodes>(), commit })
            }
            Ok(Ok(None)) => None,
            Ok(Err(fault)) => {
                tracing::error!("it is not known what changed: {fault}");
                None
            }
            Err(error) => {
                tracing::error!("it is not known what changed: {error}");
                None
            }
        };
        if resumed.is_none() {
            store.promises().release(&bound.holder);
        }
        Ok((Reply::Resumed(resumed), Body::Empty))
    }
}
