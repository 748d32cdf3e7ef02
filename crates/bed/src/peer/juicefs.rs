//! JuiceFS: a Redis on the server has names and data, and the client has its cache of blocks.
//!
//! Its mount asks Redis for attributes when those that it has are a second old, and at each open.
//! A close returns when the data are with the server: `--writeback` is off, as by default.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::{Peer, Stage, still_runs, wait_until};
use crate::segue::is_mounted;
use crate::{Doing, Host, Proc, Result, run};

/// Nothing else listens in the server's namespace.
const PORT: u16 = 6379;
const START_MAX: Duration = Duration::from_secs(30);

pub(crate) struct JuiceFs {
    stage: Stage,
    /// Of names; data are in the next one.
    database: String,
    _redis: Proc,
    daemon: Option<Proc>,
}

impl JuiceFs {
    pub(crate) fn new(stage: &Stage) -> Result<JuiceFs> {
        // Asked first, because a missing program says so here.
        stage.client.run("juicefs", &["version"])?;
        let server = &stage.server;
        let redis = start_redis(server)?;
        let of = |number: u8| format!("redis://{}:{PORT}/{number}", server.addr());
        let database = of(0);
        let mut format = server.command("juicefs");
        format.args(["format", "--storage", "redis", "--bucket", &of(1), &database, "bench"]);
        run(&mut format)?;
        Ok(JuiceFs { stage: stage.clone(), database, _redis: redis, daemon: None })
    }

    fn mount_on(&self, host: &Host) -> Result<Proc> {
        let point = host.mkdir("mnt")?;
        let mut command = host.command("juicefs");
        command.args(["mount", "--no-usage-report", "--cache-dir"]).arg(host.mkdir("blocks")?);
        command.arg("--log").arg(host.dir().join("juicefs.log")).arg(&self.database).arg(&point);
        let log = std::fs::File::create(host.dir().join("juicefs.out")).doing("open a log")?;
        let copy = log.try_clone().doing("open a log")?;
        let mut daemon = host.spawn(command.stdin(Stdio::null()).stdout(log).stderr(copy))?;
        wait_until("JuiceFS is not mounted", START_MAX, || {
            still_runs(&mut daemon, "juicefs mount")?;
            Ok(is_mounted(&point))
        })?;
        Ok(daemon)
    }
}

/// One that notes each change on its disk, as a file system's must.
fn start_redis(server: &Host) -> Result<Proc> {
    let mut command = server.command("redis-server");
    command.args(["--bind", &server.addr().to_string(), "--port", &PORT.to_string()]);
    command.args(["--protected-mode", "no", "--save", "", "--appendonly", "yes", "--dir"]);
    command.arg(server.mkdir("redis")?).arg("--logfile").arg(server.dir().join("redis.log"));
    let mut redis = server.spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))?;
    let addr: SocketAddr = (server.addr(), PORT).into();
    wait_until("redis-server does not accept", START_MAX, || {
        still_runs(&mut redis, "redis-server")?;
        Ok(server.enter(|| TcpStream::connect(addr))?.is_ok())
    })?;
    Ok(redis)
}

impl Peer for JuiceFs {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        let seeder = &self.stage.seeder;
        let daemon = self.mount_on(seeder)?;
        let point = seeder.mkdir("mnt")?;
        write(&point)?;
        super::umount(seeder, &point)?;
        super::ended(Some(daemon), "juicefs mount")
    }

    fn mount(&mut self) -> Result<PathBuf> {
        self.daemon = Some(self.mount_on(&self.stage.client)?);
        self.stage.client.mkdir("mnt")
    }

    fn umount(&mut self) -> Result<()> {
        super::umount(&self.stage.client, &self.stage.client.mkdir("mnt")?)?;
        super::ended(self.daemon.take(), "juicefs mount")
    }

    /// Its close waits until the server has the data.
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}
