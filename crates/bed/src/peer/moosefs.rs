//! MooseFS: a master and one chunk server on the server, as Debian installs them.
//!
//! Its mount asks the master for attributes when those that it has are a second old, and keeps a
//! file's pages as long as the file has not changed. A close returns when the data are with the
//! chunk server.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::{Peer, Stage, still_runs, wait_until};
use crate::{Doing, Error, Host, Proc, Result, run_detaching};

/// Where clients and chunk servers reach the master; nothing else listens on the server.
const MASTER: [u16; 2] = [9421, 9420];
/// Where clients reach the chunk server.
const CHUNKS: u16 = 9422;
/// What an empty master begins with.
const EMPTY: &str = "/var/lib/mfs/metadata.mfs.empty";
const START_MAX: Duration = Duration::from_secs(30);

pub(crate) struct MooseFs {
    stage: Stage,
    _daemons: [Proc; 2],
}

impl MooseFs {
    pub(crate) fn new(stage: &Stage) -> Result<MooseFs> {
        if !Path::new(EMPTY).exists() {
            return Err(Error::Unavailable(format!("{EMPTY} is missing: no MooseFS")));
        }
        let server = &stage.server;
        let master = start(server, "mfsmaster", &master_settings(server)?, &MASTER)?;
        let chunks = start(server, "mfschunkserver", &chunk_settings(server)?, &[CHUNKS])?;
        Ok(MooseFs { stage: stage.clone(), _daemons: [master, chunks] })
    }

    /// Mounts it on `host`, once it has room: a chunk server says so some time after its start.
    fn mount_on(&self, host: &Host) -> Result<PathBuf> {
        let point = host.mkdir("mnt")?;
        let mut command = host.command("mfsmount");
        command.arg("-H").arg(self.stage.server.addr().to_string()).arg(&point);
        run_detaching(&mut command, &host.dir().join("mfsmount.log"))?;
        wait_until("MooseFS has no room", START_MAX, || {
            let space = rustix::fs::statvfs(&point).map_err(std::io::Error::from);
            Ok(space.doing("ask MooseFS for its room")?.f_bavail > 0)
        })?;
        Ok(point)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(format!("write {}", path.display()))
}

/// The master's settings, in a file. It has no metadata but those of an empty file system.
fn master_settings(server: &Host) -> Result<PathBuf> {
    let (dir, addr) = (server.mkdir("mfsmaster")?, server.addr());
    fs::copy(EMPTY, dir.join("metadata.mfs")).doing("make MooseFS's metadata")?;
    write(&dir.join("exports"), "* / rw,alldirs,admin,maproot=0:0\n")?;
    let settings = dir.join("settings");
    let text = format!(
        "WORKING_USER = root\n\
         WORKING_GROUP = root\n\
         DATA_PATH = {dir}\n\
         EXPORTS_FILENAME = {dir}/exports\n\
         MATOML_LISTEN_HOST = {addr}\n\
         MATOCS_LISTEN_HOST = {addr}\n\
         MATOCL_LISTEN_HOST = {addr}\n",
        dir = dir.display()
    );
    write(&settings, &text)?;
    Ok(settings)
}

fn chunk_settings(server: &Host) -> Result<PathBuf> {
    let (dir, chunks, addr) = (server.mkdir("mfschunks")?, server.mkdir("chunks")?, server.addr());
    write(&dir.join("disks"), &format!("{}\n", chunks.display()))?;
    let settings = dir.join("settings");
    let text = format!(
        "WORKING_USER = root\n\
         WORKING_GROUP = root\n\
         DATA_PATH = {dir}\n\
         HDD_CONF_FILENAME = {dir}/disks\n\
         HDD_LEAVE_SPACE_DEFAULT = 4MiB\n\
         MASTER_HOST = {addr}\n\
         CSSERV_LISTEN_HOST = {addr}\n",
        dir = dir.display()
    );
    write(&settings, &text)?;
    Ok(settings)
}

/// Starts a daemon and waits until it accepts on each of `ports`.
fn start(server: &Host, program: &str, settings: &Path, ports: &[u16]) -> Result<Proc> {
    let log = fs::File::create(server.dir().join(format!("{program}.log"))).doing("open a log")?;
    let copy = log.try_clone().doing("open a log")?;
    let mut command = server.command(program);
    command.arg("-f").arg("-c").arg(settings).arg("start");
    let mut daemon = server.spawn(command.stdin(Stdio::null()).stdout(log).stderr(copy))?;
    wait_until(&format!("{program} does not accept"), START_MAX, || {
        still_runs(&mut daemon, program)?;
        for &port in ports {
            let addr: SocketAddr = (server.addr(), port).into();
            if server.enter(|| TcpStream::connect(addr))?.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    })?;
    Ok(daemon)
}

impl Peer for MooseFs {
    fn seed(&mut self, write: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
        let seeder = &self.stage.seeder;
        write(&self.mount_on(seeder)?)?;
        super::umount(seeder, &seeder.mkdir("mnt")?)
    }

    fn mount(&mut self) -> Result<PathBuf> {
        self.mount_on(&self.stage.client)
    }

    fn umount(&mut self) -> Result<()> {
        super::umount(&self.stage.client, &self.stage.client.mkdir("mnt")?)
    }

    /// Its close waits until the server has the data.
    fn drain(&mut self) -> Result<()> {
        Ok(())
    }
}
