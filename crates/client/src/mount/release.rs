//! Numbers that this host gave to new inodes, and that turn out to be other inodes': they are
//! released (docs/decisions/0036-copies.md).

use std::time::Duration;

use segue_core::host::log::Logged;
use segue_core::nouns::Outcome;
use tokio::time::timeout;

use super::Mount;

/// Longest wait for the kernel to write modified pages back. On a full disk it may take longer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Mount {
    /// Has the kernel write back the modified pages of inodes whose numbers `answered` releases.
    /// Their handles are refused afterwards.
    pub(super) async fn flush_maps_of_released(&self, answered: &[(Logged, Outcome)]) {
        let number =
            |(logged, outcome): &(Logged, Outcome)| self.core().number_to_release(logged, outcome);
        let mut numbers = answered.iter().filter_map(number).peekable();
        if numbers.peek().is_none() {
            return;
        }
        numbers.for_each(|ino| self.kernel.forget_data(ino));
        timeout(PATIENCE, self.kernel.forgotten()).await.ok();
    }
}
