//! Segue, through its program only.

use std::path::{Path, PathBuf};

use super::{Peer, Stage};
use crate::segue::{SegueMount, SegueServer};
use crate::{Doing as _, Error, FuseUring, Result};

const VOLUME: &str = "home";

pub(crate) struct Segue {
    stage: Stage,
    server: SegueServer,
    options: Vec<String>,
    mounted: Option<SegueMount>,
    /// Requests come over io_uring, which the kernel offers meanwhile.
    uring: Option<FuseUring>,
}

impl Segue {
    /// With `options` of the mount and arguments of `segue serve`.
    pub(crate) fn new(stage: &Stage, options: &[String], serving: &[&str]) -> Result<Segue> {
        let data = stage.server.mkdir("data")?;
        let server = SegueServer::start_with(&stage.server, &data, serving)?;
        let (stage, options) = (stage.clone(), options.to_vec());
        Ok(Segue { stage, server, options, mounted: None, uring: None })
    }
}

impl Peer for Segue {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        let point = self.stage.seeder.mkdir("mnt")?;
        let url = self.server.invite(&["--volume", VOLUME])?;
        let mut mount = SegueMount::new(&self.stage.seeder, &url, &point, &[])?;
        write(&point)?;
        mount.sync()?;
        mount.umount(&[])
    }

    fn mount(&mut self) -> Result<PathBuf> {
        let point = self.stage.client.mkdir("mnt")?;
        let url = self.server.invite(&["--volume", VOLUME])?;
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        if options.contains(&"io-uring") {
            self.uring = Some(FuseUring::offer()?);
        }
        let mount = SegueMount::new(&self.stage.client, &url, &point, &options)?;
        self.mounted = Some(mount);
        Ok(point)
    }

    fn umount(&mut self) -> Result<()> {
        let ended = self.mounted.take().map_or(Ok(()), |mut mounted| mounted.umount(&[]));
        self.uring = None;
        ended
    }

    fn drain(&mut self) -> Result<()> {
        self.mounted.as_ref().map_or(Ok(()), SegueMount::sync)
    }

    fn pending(&mut self) -> Result<Option<u64>> {
        let Some(mounted) = &self.mounted else { return Ok(None) };
        let mut command = self.stage.client.command("segue");
        // Its exit code tells of a host without a link.
        let said = command.args(["status", "--json"]).arg(mounted.path()).output();
        let said = said.doing("segue status")?;
        let status: serde_json::Value = serde_json::from_slice(&said.stdout)
            .map_err(|error| Error::Wrong(format!("segue status: {error}: {said:?}")))?;
        Ok(status.pointer("/mounts/0/log_records").and_then(serde_json::Value::as_u64))
    }
}
