//! Numbers that this host gave to new inodes, and that turn out to be other inodes': they are
//! released (docs/decisions/0036-copies.md).

use std::time::Duration;

use segue_core::host::log::Logged;
use segue_core::nouns::{Outcome, Record};
use segue_core::refusal::Refusal;
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

    /// A new inode got another number. Data that were written to it so far are its own, and its
    /// open handles are refused from now on.
    pub(super) fn release_number(&self, logged: &Logged, outcome: &Outcome) -> Result<(), Refusal> {
        let number = self.core().number_to_release(logged, outcome);
        let Some(ino) = number else { return Ok(()) };
        self.core().handles.lose(ino);
        self.seal(ino, logged.caller.clone(), false)?;
        self.log_record(Record::Release { ino }, logged.caller.clone())
    }
}
