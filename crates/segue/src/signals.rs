//! The signals that stop a daemon cleanly.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP, caught as long as this value exists.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Starts to catch the signals. Needs a running tokio runtime.
    pub(crate) fn catch() -> io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns at the first of the signals.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("stopping on SIGTERM"),
            _ = self.interrupt.recv() => tracing::info!("stopping on SIGINT"),
            _ = self.hangup.recv() => tracing::info!("stopping on SIGHUP"),
        }
    }
}
