//! Numbers that this host gave to new inodes, and that turn out to be other inodes': they are
//! released (docs/decisions/0036-copies.md).

use std::time::Duration;

use segue_core::nouns::Ino;
use tokio::time::timeout;

use super::Mount;

/// Longest wait for the kernel to write modified pages back. On a full disk it may take longer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Mount {
    /// Has the kernel write back the modified pages of inodes whose numbers are about to be
    /// released. Their handles are refused afterwards.
    pub(super) async fn release_pages(&self, numbers: Vec<Ino>) {
        numbers.into_iter().for_each(|ino| self.kernel.forget_data(ino));
        timeout(PATIENCE, self.kernel.forgotten()).await.ok();
    }
}
