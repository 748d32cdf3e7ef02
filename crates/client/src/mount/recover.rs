//! After a crash: what an earlier process of this cache logged and did not send goes first.
//!
//! The mount appears only when the server has it. (Mounting with changes pending comes with
//! the offline client.)

use std::collections::BTreeSet;
use std::time::Duration;

use segue_core::client::ClientCore;
use segue_core::modlog::{Entry, Leftover, Logged};
use segue_core::types::Time;

use super::{Mount, Shared, lock, nobody_asked};
use crate::error::MountError;
use crate::state::LogFile;

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Puts what was left over into the queue: first what was logged as a change, then what was
/// written and not closed. The latter gets its place in the log now.
pub(super) fn requeue(
    leftover: Leftover,
    core: &mut ClientCore,
    log: &mut LogFile,
) -> std::io::Result<()> {
    let mut seq = leftover.newest_seq.max(core.next_seq().saturating_sub(1));
    for logged in leftover.changes {
        core.requeue(logged, Time::default());
    }
    for data in leftover.unsealed {
        seq += 1;
        core.reserve_seqs(seq + 1);
        let logged: Logged = data.logged(seq, nobody_asked());
        log.append(&Entry::Change(logged.clone()))?;
        core.requeue(logged, Time::default());
    }
    Ok(())
}

/// Inodes that a leftover refers to: their containers must not be touched.
pub(super) fn inodes(leftover: &Leftover) -> BTreeSet<u64> {
    let changes = leftover.changes.iter().map(|logged| logged.change.ino().0);
    changes.chain(leftover.unsealed.iter().map(|data| data.ino.0)).collect()
}

impl Mount {
    /// Sends everything that is in the queue.
    pub(super) async fn drain_leftover(
        self: &Shared,
        tell: &dyn Fn(String),
    ) -> Result<(), MountError> {
        let mut told: Option<Time> = None;
        loop {
            let (batch, records, bytes) = {
                let core = self.core();
                (core.queue.batch(64, 8 << 20), core.queue.len(), core.queue.bytes())
            };
            if batch.is_empty() {
                break;
            }
            let now = self.now();
            if told.is_none_or(|told| now.since(told) >= TELL_EVERY) {
                told = Some(now);
                tell(format!(
                    "segue: sending what was left from last time: {records} changes, {bytes} bytes"
                ));
            }
            if let Err(refusal) = self.send(batch).await {
                if self.remote.is_offline() {
                    let reason = format!(
                        "{records} changes from last time wait to be sent, and the connection \
                         was lost; nothing is lost, mount again when the network is back"
                    );
                    return Err(MountError::Offline { host: self.url.clone(), reason });
                }
                tracing::warn!("sending what was left: {refusal}");
                tokio::time::sleep(TELL_EVERY).await;
            }
        }
        let rewritten = lock(&self.log).rewrite(&[]);
        rewritten.map_err(|error| MountError::state(&self.refused_dir, error))
    }
}
