//! The signals that end a daemon cleanly.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP, caught from the moment this exists.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Starts catching. Needs a running tokio runtime.
    pub(crate) fn catch() -> io::Result<StopSignals> {
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Ready at the first of them.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("stopping: SIGTERM"),
            _ = self.interrupt.recv() => tracing::info!("stopping: SIGINT"),
            _ = self.hangup.recv() => tracing::info!("stopping: SIGHUP"),
        }
    }
}
