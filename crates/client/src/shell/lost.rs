//! What is lost. The server's data directory was put back from a copy: what this host knows of
//! commits that the server has forgotten is asked for again. Or this host's disk lacks data of a
//! store, which so goes nowhere.

use segue_core::host::call::Call;
use segue_core::refusal::Refusal;
use segue_core::wire::Welcome;

use crate::shell::Shell;

impl Shell {
    /// Refuses stores of which the disk has lost data, before anything is sent.
    pub(crate) fn refuse_lost(&self) -> Result<(), Refusal> {
        let now = self.disk.host.moment();
        let call = self.disk.host.lock().refuse_lost(now);
        call.map_or(Ok(()), |call| self.call(call).map(drop))
    }

    /// Forgets what a server does not know that says so in `welcome`, on the disk, in memory and in
    /// the kernel, before anything is asked over its connection.
    pub(crate) fn forget_lost(&self, welcome: &Welcome) -> Result<(), Refusal> {
        let Some(history) = &welcome.history else { return Ok(()) };
        tracing::warn!(
            "the server's data were put back from a copy: what this host knows of later changes is \
             asked for again, and its own pending changes may become conflict copies"
        );
        self.disk.for_user.beside.forget_all();
        // What is being noted is of before.
        let _noting = self.disk.noting.lock();
        self.call(Call::Forget(history.clone())).map(drop)
    }
}
