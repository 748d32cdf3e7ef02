//! The client's end: it calls as fast as it can, or carries a body, and says what that took.

use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::carrier::Carrier;
use super::load::Load;
use super::processor;
use crate::transport::dial::Dial;
use crate::transport::wrong;
use segue_bed::{Doing, Result};

/// The part of the time, or of the length, that comes before anything counts: the transport finds
/// out how fast the path is.
const WARM: u32 = 5;

/// What the client's process is told.
#[derive(Debug, clap::Args)]
pub struct Drive {
    #[command(flatten)]
    to: Dial,
    #[command(flatten)]
    task: Task,
}

/// What is to be done over a connection.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Task {
    /// What is carried.
    #[arg(long, value_enum)]
    load: Load,
    /// Milliseconds for which calls are made.
    #[arg(long)]
    calling_ms: u64,
    /// Length of the body.
    #[arg(long)]
    bytes: u64,
    /// The server's process, whose processor time is counted.
    #[arg(long)]
    server_pid: u32,
}

/// What was carried, and what that took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    /// Calls, or bytes.
    pub(super) count: u64,
    pub(super) seconds: f64,
    /// Processor seconds of the client.
    pub(super) client: f64,
    /// And of the server.
    pub(super) server: f64,
}

impl Task {
    /// What `load` comes to, with so much of it.
    pub(super) fn new(load: Load, calling: Duration, bytes: u64) -> Task {
        let calling_ms = u64::try_from(calling.as_millis()).unwrap_or(u64::MAX);
        Task { load, calling_ms, bytes, server_pid: 0 }
    }

    pub(super) fn load(&self) -> Load {
        self.load
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Tells all of it to a command, of whom that process is the other end.
    pub(super) fn tell(&self, command: &mut Command, server_pid: u32) {
        command.args(["--load", self.load.name()]);
        command.arg("--calling-ms").arg(self.calling_ms.to_string());
        command.arg("--bytes").arg(self.bytes.to_string());
        command.arg("--server-pid").arg(server_pid.to_string());
    }

    /// Does a part of it, which does not count, and then all of it.
    pub(super) async fn perform(&self, carrier: &Carrier) -> Result<Spent> {
        let calling_ms = self.calling_ms / u64::from(WARM);
        let warm = Task { calling_ms, bytes: self.bytes / u64::from(WARM), ..*self };
        warm.carry(carrier).await?;
        let used = || Ok((processor::of("self")?, processor::of(&self.server_pid.to_string())?));
        let (before, start) = (used()?, Instant::now());
        let count = self.carry(carrier).await?;
        let (seconds, after) = (start.elapsed().as_secs_f64(), used()?);
        let client = (after.0 - before.0).as_secs_f64();
        Ok(Spent { count, seconds, client, server: (after.1 - before.1).as_secs_f64() })
    }

    async fn carry(&self, carrier: &Carrier) -> Result<u64> {
        match self.load {
            Load::Up => carrier.upload(self.bytes).await?,
            Load::Down => carrier.download(self.bytes).await?,
            Load::One | Load::Many => return self.call(carrier).await,
        }
        Ok(self.bytes)
    }

    /// Calls until the time is over: how often that was.
    async fn call(&self, carrier: &Carrier) -> Result<u64> {
        let until = Instant::now() + Duration::from_millis(self.calling_ms);
        let mut callers = JoinSet::new();
        for _ in 0..self.load.in_flight() {
            let carrier = carrier.clone();
            callers.spawn(async move {
                let mut calls = 0;
                while Instant::now() < until {
                    carrier.call().await?;
                    calls += 1;
                }
                Ok(calls)
            });
        }
        let mut calls = 0;
        while let Some(caller) = callers.join_next().await {
            calls += caller.map_err(wrong)??;
        }
        Ok(calls)
    }
}

/// Connects with Segue's transport, and does what `options` say.
pub(super) fn drive(options: &Drive) -> Result<Spent> {
    threads()?.block_on(async {
        let carrier = Carrier::Segue(options.to.peer().await?);
        options.task.perform(&carrier).await
    })
}

pub(super) fn threads() -> Result<Runtime> {
    Runtime::new().doing("start the threads")
}
