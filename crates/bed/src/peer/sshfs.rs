//! sshfs, as installed.

use std::path::{Path, PathBuf};

use super::sshd::Sshd;
use super::{Peer, Stage};
use crate::{Host, Result, run_detaching};

pub(crate) struct Sshfs {
    client: Host,
    sshd: Sshd,
    options: &'static [&'static str],
}

impl Sshfs {
    /// With `options` besides its own defaults.
    pub(crate) fn new(stage: &Stage, options: &'static [&'static str]) -> Result<Sshfs> {
        Ok(Sshfs { client: stage.client.clone(), sshd: Sshd::start(stage)?, options })
    }
}

impl Peer for Sshfs {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        write(&self.sshd.exported)
    }

    fn mount(&mut self) -> Result<PathBuf> {
        let point = self.client.mkdir("mnt")?;
        let Sshd { exported, key, known_hosts, host, port, .. } = &self.sshd;
        let mut command = self.client.command("sshfs");
        command.arg(format!("root@{host}:{}", exported.display())).arg(&point);
        command.args(["-F", "/dev/null", "-p", port]);
        command.arg("-o").arg(format!("IdentityFile={}", key.display()));
        command.arg("-o").arg(format!("UserKnownHostsFile={}", known_hosts.display()));
        command.args(self.options);
        run_detaching(&mut command, &self.client.dir().join("sshfs.log"))?;
        Ok(point)
    }

    fn umount(&mut self) -> Result<()> {
        super::umount(&self.client, &self.client.mkdir("mnt")?)
    }

    /// Its close waits until the server has the data.
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}
