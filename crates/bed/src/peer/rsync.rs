//! rsync over ssh, as installed: a local directory, and what it takes to bring the server's up to
//! date.

use std::path::{Path, PathBuf};

use super::sshd::Sshd;
use super::{Peer, Stage};
use crate::{Host, Result, run};

pub(crate) struct Rsync {
    client: Host,
    sshd: Sshd,
}

impl Rsync {
    pub(crate) fn new(stage: &Stage) -> Result<Rsync> {
        Ok(Rsync { client: stage.client.clone(), sshd: Sshd::start(stage)? })
    }
}

impl Peer for Rsync {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        write(&self.sshd.exported)
    }

    fn mount(&mut self) -> Result<PathBuf> {
        self.client.mkdir("mirrored")
    }

    fn umount(&mut self) -> Result<()> {
        Ok(())
    }

    /// A change within a second of the last one, of the same size, would not be seen by its time.
    fn drain(&mut self) -> Result<()> {
        let Sshd { exported, key, known_hosts, host, port, .. } = &self.sshd;
        let ssh = format!(
            "ssh -F /dev/null -p {port} -o IdentityFile={} -o UserKnownHostsFile={}",
            key.display(),
            known_hosts.display()
        );
        let mut command = self.client.command("rsync");
        command.args(["-r", "-t", "-I", "--delete", "-e", &ssh]);
        command.arg(format!("{}/", self.client.mkdir("mirrored")?.display()));
        command.arg(format!("root@{host}:{}/", exported.display()));
        run(&mut command).map(drop)
    }
}
