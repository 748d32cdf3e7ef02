//! rclone mount over SFTP with its full cache.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::sshd::Sshd;
use super::{Peer, Stage, still_runs, wait_until};
use crate::segue::is_mounted;
use crate::{Doing, Error, Host, Proc, Result};

/// Where it answers questions about its queue, inside the client's namespace.
const CONTROL: &str = "127.0.0.1:5572";

const MOUNT_MAX: Duration = Duration::from_secs(30);

/// A closed file is in the queue after so long at most: the kernel tells of a close when it has
/// returned. Until then an empty queue says nothing.
const QUEUED_MAX: Duration = Duration::from_secs(1);

/// The measurement's own limit ends the wait before this.
const DRAIN_MAX: Duration = Duration::from_secs(86_400);

pub(crate) struct Rclone {
    client: Host,
    sshd: Sshd,
    daemon: Option<Proc>,
}

impl Rclone {
    pub(crate) fn new(stage: &Stage) -> Result<Rclone> {
        // Asked first, because a missing program says so here.
        stage.client.run("rclone", &["version"])?;
        Ok(Rclone { client: stage.client.clone(), sshd: Sshd::start(stage)?, daemon: None })
    }

    /// Files that are not on the server yet, as it says itself.
    fn queued(&self) -> Result<u64> {
        let said = self.client.enter(|| post("/vfs/stats"))?.doing("ask rclone for its queue")?;
        let stats: serde_json::Value = serde_json::from_str(&said)
            .map_err(|error| Error::Wrong(format!("rclone vfs/stats: {error}: {said}")))?;
        let field = |name: &str| {
            let value = stats.pointer(&format!("/diskCache/{name}"));
            let count = value.and_then(serde_json::Value::as_u64);
            count.ok_or_else(|| Error::Wrong(format!("rclone vfs/stats has no {name}: {said}")))
        };
        Ok(field("uploadsInProgress")? + field("uploadsQueued")?)
    }
}

/// What it answers; a process for each question would take a processor for itself.
fn post(path: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect(CONTROL)?;
    write!(connection, "POST {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
}

impl Peer for Rclone {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        write(&self.sshd.exported)
    }

    fn mount(&mut self) -> Result<PathBuf> {
        let point = self.client.mkdir("mnt")?;
        let Sshd { exported, key, known_hosts, host, port, .. } = &self.sshd;
        let mut command = self.client.command("rclone");
        // Not --daemon: with --rc its parent holds the control port, and the daemon dies.
        command.args(["mount", "--vfs-cache-mode", "full"]);
        command.args(["--rc", "--rc-addr", CONTROL, "--rc-no-auth", "--log-file"]);
        command.arg(self.client.dir().join("rclone.log")).stdin(Stdio::null());
        command.args(["--sftp-host", host, "--sftp-port", port, "--sftp-user", "root"]);
        command.arg("--sftp-key-file").arg(key);
        command.arg("--sftp-known-hosts-file").arg(known_hosts);
        command.arg(format!(":sftp:{}", exported.display())).arg(&point);
        let daemon = self.daemon.insert(self.client.spawn(&mut command)?);
        wait_until("rclone is not mounted", MOUNT_MAX, || {
            still_runs(daemon, "rclone mount")?;
            Ok(is_mounted(&point))
        })?;
        Ok(point)
    }

    fn umount(&mut self) -> Result<()> {
        super::umount(&self.client, &self.client.mkdir("mnt")?)?;
        super::ended(self.daemon.take(), "rclone mount")
    }

    fn drain(&mut self) -> Result<()> {
        let (asked, mut was_seen) = (Instant::now(), false);
        wait_until("rclone's queue", DRAIN_MAX, || {
            let is_empty = self.queued()? == 0;
            was_seen |= !is_empty;
            Ok(is_empty && (was_seen || asked.elapsed() > QUEUED_MAX))
        })
    }

    fn pending(&mut self) -> Result<Option<u64>> {
        self.queued().map(Some)
    }
}
