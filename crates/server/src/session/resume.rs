//! A host comes back: what it knows from its last session is promised to it in this one, but for
//! what changed meanwhile.

use segue_core::namespace::changes;
use segue_core::nouns::Ino;
use segue_core::refusal::Refusal;
use segue_core::wire::{RESUME_MAX, Reply, Resume};
use segue_rpc::Body;

use super::{Answer, Bound, Session, refuse};
use crate::meta::{Kv, MetaFault};

impl Session {
    pub(super) async fn resume(&self, bound: &Bound, resume: Resume) -> Answer {
        if resume.held.len() > RESUME_MAX {
            let words = format!("at most {RESUME_MAX} inodes are resumed at a time");
            return Err(refuse(Refusal::Limit, words));
        }
        let store = &self.server.data.store;
        // First, so that what changes behind the snapshot is told.
        let inodes: Vec<Ino> = resume.held.iter().collect();
        let Some(marked) = store.promises().resume(&bound.holder, &inodes) else {
            return Ok((Reply::Resumed(None), Body::Empty));
        };
        let volume = bound.volume;
        let look = move |snapshot: &mut Kv<'_>| -> Result<_, MetaFault> {
            changes::resumed(snapshot, volume, &resume)
        };
        let resumed = match store.read(look).await {
            Ok(Ok(Some(mut resumed))) => {
                resumed.changed = resumed.changed.iter().chain(marked).collect();
                let changed = resumed.changed.len();
                tracing::debug!(held = inodes.len(), changed, "a host reconnected");
                Some(resumed)
            }
            Ok(Ok(None)) => None,
            Ok(Err(fault)) => {
                tracing::error!("cannot read the changes since a reconnected host left: {fault}");
                None
            }
            Err(error) => {
                tracing::error!("cannot read the changes since a reconnected host left: {error}");
                None
            }
        };
        Ok((Reply::Resumed(resumed), Body::Empty))
    }
}
