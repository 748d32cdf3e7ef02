//! The baselines without a network: a plain directory, and the floors over one.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::{Peer, Stage, wait_until};
use crate::segue::is_mounted;
use crate::{Doing, FuseUring, Host, Proc, Result};

/// A plain directory on the client.
pub(crate) struct Local {
    dir: PathBuf,
}

impl Local {
    pub(crate) fn new(stage: &Stage) -> Result<Local> {
        Ok(Local { dir: stage.client.mkdir("local")? })
    }
}

impl Peer for Local {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        write(&self.dir)
    }

    fn mount(&mut self) -> Result<PathBuf> {
        Ok(self.dir.clone())
    }

    fn umount(&mut self) -> Result<()> {
        Ok(())
    }

    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A mirror of a directory on the client, which does nothing else. The program `segue-bench` has
/// one over each binding.
pub(crate) struct Floor {
    client: Host,
    /// The command of `segue-bench`, with its options.
    mirror: &'static [&'static str],
    source: PathBuf,
    point: PathBuf,
    daemon: Option<Proc>,
    /// Requests come over io_uring, which the kernel offers meanwhile.
    uring: Option<FuseUring>,
}

impl Floor {
    pub(crate) fn new(stage: &Stage, mirror: &'static [&'static str]) -> Result<Floor> {
        let client = stage.client.clone();
        let (source, point) = (client.mkdir("source")?, client.mkdir("mnt")?);
        Ok(Floor { client, mirror, source, point, daemon: None, uring: None })
    }
}

impl Peer for Floor {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        write(&self.source)
    }

    fn mount(&mut self) -> Result<PathBuf> {
        let us = std::env::current_exe().doing("find segue-bench")?;
        if self.mirror.contains(&"--uring") {
            self.uring = Some(FuseUring::offer()?);
        }
        let mut command = self.client.command(us);
        command.args(self.mirror).arg(&self.source).arg(&self.point).stdin(Stdio::null());
        let daemon = self.daemon.insert(self.client.spawn(&mut command)?);
        wait_until("the floor is not mounted", Duration::from_secs(10), || {
            super::still_runs(daemon, "segue-bench")?;
            Ok(is_mounted(&self.point))
        })?;
        Ok(self.point.clone())
    }

    fn umount(&mut self) -> Result<()> {
        super::umount(&self.client, &self.point)?;
        self.uring = None;
        super::ended(self.daemon.take(), "segue-bench")
    }

    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}
