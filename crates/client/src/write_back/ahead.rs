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
                // Settlements make way for data that wait. Without any they are left alone: each
                // small file that is removed is one, and looking holds up the next call.
                let has_data = self.host.lock().queue().may_have(Lane::Data);
                tokio::select! {
                    () = self.wakes.to_upload.notified() => {}
                    _ = link.changed() => {}
                    _ = settled.changed(), if has_data => {}
                }
                continue;
            };
            // There may be something for the other one.
            self.wakes.to_upload.notify_one();
            let made = tokio::select! {
                made = self.upload(&picked.changes) => made,
                () = self.given_up(&picked) => continue,
            };
            let failed = made.as_ref().err().copied();
            self.uploaded(&picked, made);
            self.wakes.lanes.wake_all();
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

    /// Waits until nobody wants this upload any more: the connection is another, or one of the
    /// changes is not to be sent.
    async fn given_up(&self, picked: &Picked) {
        let (mut link, mut settled) = (self.remote.link().watch(), self.wakes.settled.subscribe());
        while self.host.lock_ahead().is_picked(picked) {
            let is_over = tokio::select! {
                changed = link.changed() => changed.is_err(),
                changed = settled.changed() => changed.is_err(),
            };
            if is_over {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn upload(self: &Arc<Self>, picked: &[Logged]) -> Result<Vec<(u64, Store)>, Refusal> {
        let made = self.make(Lane::Data.class(), upload::changes_of(picked), Way::Ahead).await?;
        Ok(made.stores)
    }
}
