//! The shell of uploading ahead: looks at the connection, sends what [`UploadAhead`] picks, and
//! says what became of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use segue_core::host::log::{Lane, Logged};
use segue_core::host::send::Picked;
use segue_core::nouns::Store;
use segue_core::refusal::Refusal;
use segue_core::upload::{self, Way};

use crate::write_back::WriteBack;

/// Uploads side by side: one is cut and offered while the other is sent.
pub(crate) const UPLOADS: usize = 2;

impl WriteBack {
    /// The store of change `seq`, if its chunks went ahead over this connection.
    pub(super) fn store_sent_ahead(&self, seq: u64) -> Option<Store> {
        self.host.lock_ahead().ahead().store(seq).cloned()
    }

    /// Chunks of data that wait reached the server.
    pub(super) fn note_sent(&self, bytes: u64) {
        self.host.lock().sent_ahead(bytes);
        // Whoever waits for progress sees some.
        self.wakes.settled.send_replace(());
    }

    /// Changes whose data are on their way.
    pub(crate) fn uploading(&self) -> BTreeSet<u64> {
        self.host.lock_ahead().ahead().uploading().clone()
    }

    /// Uploads for as long as the write_back lives.
    pub(crate) async fn upload_ahead(self: Arc<Self>) {
        let mut link = self.remote.link().watch();
        let mut settled = self.wakes.settled.subscribe();
        loop {
            let Some(picked) = self.pick() else {
                tokio::select! {
                    () = self.wakes.to_upload.notified() => {}
                    _ = link.changed() => {}
                    _ = settled.changed() => {}
                }
                continue;
            };
            // There may be something for the other one.
            self.wakes.to_upload.notify_one();
            let made = tokio::select! {
                made = self.upload(&picked.changes) => made,
                () = self.round_over(picked.round) => continue,
                () = self.one_is_taken_back(&picked.changes) => continue,
            };
            let failed = made.as_ref().err().copied();
            self.uploaded(&picked, made);
            self.wakes.lanes.wake();
            if let Some(refusal) = failed {
                tracing::debug!("uploading ahead: {refusal}");
                self.pause().await;
            }
        }
    }

    fn pick(&self) -> Option<Picked> {
        self.host.lock_ahead().pick_ahead(self.host.now())
    }

    fn uploaded(&self, picked: &Picked, made: Result<Vec<(u64, Store)>, Refusal>) {
        // What is settled before this is let go of is not kept, and what is settled later goes.
        self.host.lock_ahead().uploaded(picked, made);
    }

    /// Waits until what was picked in `round` counts no more, because the connection is another.
    async fn round_over(&self, round: u64) {
        let mut link = self.remote.link().watch();
        while self.host.lock_ahead().ahead().is_in(round) {
            if link.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until one of `changes` is not to be sent any more.
    async fn one_is_taken_back(&self, changes: &[Logged]) {
        let mut settled = self.wakes.settled.subscribe();
        let waits = |logged: &Logged| self.host.lock().queue().stage(logged.seq).is_some();
        while changes.iter().all(waits) {
            settled.changed().await.ok();
        }
    }

    async fn upload(self: &Arc<Self>, picked: &[Logged]) -> Result<Vec<(u64, Store)>, Refusal> {
        let made = self.make(Lane::Data.class(), upload::changes_of(picked), Way::Ahead).await?;
        Ok(made.stores)
    }
}
