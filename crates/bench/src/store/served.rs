//! The server under test: its process, the hosts that it lets in, its memory.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use segue_core::nouns::VolumeId;
use segue_rpc::Target;
use segue_rpc::identity::{Identities, MountUrl};
use serde_json::Value;

use super::client::{Client, Door, PATIENCE, wrong};
use segue_bed::segue::SegueServer;
use segue_bed::{Doing, Host, Result};

/// The volume of changes and data.
pub(super) const HOME: &str = "home";
/// Identities for each volume: a server takes so many connections of one, and those of earlier
/// clients may just be ending.
const IDENTITIES: u32 = 4;
/// The volume of the million inodes.
pub(super) const MANY: &str = "many";

/// A running server with two volumes, and the way in.
pub(super) struct Served {
    host: Host,
    server: SegueServer,
    home: Vec<Door>,
    many: Vec<Door>,
    pub(super) many_id: VolumeId,
    clients: u32,
}

impl Served {
    pub(super) async fn start(host: &Host) -> Result<Served> {
        let server = SegueServer::start(host, &host.dir().join("data"))?;
        let data = server.data().display().to_string();
        let made = host.run("segue", &["volume", "create", MANY, "--json", "--data", &data])?;
        let made: Value = serde_json::from_str(&made).map_err(wrong)?;
        let id = made["id"].as_u64().and_then(|id| u32::try_from(id).ok());
        let many_id = VolumeId(id.ok_or_else(|| wrong("a volume without a number"))?);
        let home = enrol_some(host, &server, HOME).await?;
        let many = enrol_some(host, &server, MANY).await?;
        Ok(Served { host: host.clone(), server, home, many, many_id, clients: 0 })
    }

    /// The way into the volume of the million inodes, and a number that no client has had.
    pub(super) fn reader(&mut self) -> Result<(Door, u32)> {
        self.clients += 1;
        Ok((door(&self.many, self.clients)?, self.clients))
    }

    /// Opens `count` clients of the volume of changes and data, whose files hold `data`.
    pub(super) async fn clients(&mut self, count: u32, data: &[u8]) -> Result<Vec<Client>> {
        let doors = self.home.clone();
        self.open(&doors, count, data).await
    }

    /// Opens `count` clients of the volume of the million inodes, whose files are empty.
    pub(super) async fn fillers(&mut self, count: u32) -> Result<Vec<Client>> {
        let doors = self.many.clone();
        self.open(&doors, count, &[]).await
    }

    async fn open(&mut self, doors: &[Door], count: u32, data: &[u8]) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        for _ in 0..count {
            self.clients += 1;
            let door = door(doors, self.clients)?;
            clients.push(Client::open(&door, self.clients, data.to_vec()).await?);
        }
        Ok(clients)
    }

    pub(super) fn kill9(&mut self) -> Result<()> {
        self.server.kill9()
    }

    /// Milliseconds from exec to "serving on".
    pub(super) fn start_again(&mut self) -> Result<f64> {
        let start = Instant::now();
        self.server.restart()?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    /// The metadata's file.
    pub(super) fn metadata(&self) -> PathBuf {
        self.server.data().join("meta.db")
    }

    /// Bytes of the metadata, with their log.
    pub(super) fn metadata_bytes(&self) -> Result<u64> {
        let of = |path: PathBuf| Ok(fs::metadata(path).doing("look at the metadata")?.len());
        let log = self.metadata().with_extension("db-wal");
        Ok(of(self.metadata())? + of(log)?)
    }

    /// The files of all chunks.
    pub(super) fn packs(&self) -> Result<Vec<PathBuf>> {
        let listed = fs::read_dir(self.server.data().join("packs")).doing("list the packs")?;
        listed.map(|entry| Ok(entry.doing("list the packs")?.path())).collect()
    }

    /// Runs `segue volume check` of `volume`, at full speed: its last line.
    pub(super) fn check(&self, volume: &str) -> Result<Value> {
        let data = self.server.data().display().to_string();
        let args = ["volume", "check", volume, "--rate", "0", "--json", "--data", &data];
        let said = self.host.run("segue", &args)?;
        let last = said.lines().last().unwrap_or_default();
        serde_json::from_str(last).map_err(|error| wrong(format!("{said}: {error}")))
    }

    /// Lets the highest resident memory count from now on.
    pub(super) fn forget_peak(&mut self) -> Result<()> {
        let pid = self.server.process().pid();
        fs::write(format!("/proc/{pid}/clear_refs"), "5").doing("reset the server's VmHWM")
    }

    /// The highest resident memory since then, in MB.
    pub(super) fn peak(&mut self) -> Result<f64> {
        let pid = self.server.process().pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).doing("read status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        kilobytes.map(|kb| kb / 1024.0).ok_or_else(|| wrong("the server has no VmHWM"))
    }
}

/// The one of `doors` that client `number` takes.
fn door(doors: &[Door], number: u32) -> Result<Door> {
    let door = doors.iter().cycle().nth((number % IDENTITIES) as usize);
    door.cloned().ok_or_else(|| wrong("nobody was let in"))
}

async fn enrol_some(host: &Host, server: &SegueServer, volume: &'static str) -> Result<Vec<Door>> {
    let mut doors = Vec::new();
    for number in 0..IDENTITIES {
        doors.push(enrol(host, server, volume, number).await?);
    }
    Ok(doors)
}

async fn enrol(
    host: &Host,
    server: &SegueServer,
    volume: &'static str,
    number: u32,
) -> Result<Door> {
    let url = server.invite(&["--volume", volume])?;
    let url: MountUrl = url.parse().map_err(|error| wrong(format!("{url}: {error}")))?;
    let identities = Identities::at(host.dir().join(format!("identity-{volume}-{number}")));
    segue_rpc::enrol(&url, &identities, "bench", PATIENCE).await.map_err(wrong)?;
    let authority = &url.invite().ok_or_else(|| wrong("an invite without authority"))?.authority;
    let identity = identities.load(authority, volume).map_err(wrong)?;
    let identity = identity.ok_or_else(|| wrong("no identity was kept"))?;
    Ok(Door { volume, target: Target::new(&url, authority), identity })
}
