//! Both ends of a connection as processes on two hosts: this program once more, with its
//! commands `transport-serve` and `transport-drive`.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use segue_rpc::Target;
use segue_rpc::identity::{Authority, Identities, Identity, Invite, MountUrl, PORT};
use tokio::runtime::{Builder, Runtime};

use super::dial::Dial;
use super::drive::Driven;
use super::figures::Figures;
use super::setting::Setting;
use super::variant::Variant;
use super::{within, wrong};
use crate::workload::scaled;
use segue_bed::{Bed, Doing, Error, Host, LinkSpec, Proc, Result, run};

/// What the identity is for: there is no such volume.
pub(super) const VOLUME: &str = "home";
/// What the server's process prints once it listens.
pub const SERVING: &str = "serving";

/// At scale 1, what counts.
const MEASURE_MS: u32 = 20_000;
/// Least number of questions, where answers are slow: p99 is then the worst one.
const CALLS_MIN: usize = 60;
/// Between two questions, if two packets take no longer.
const PACE: Duration = Duration::from_millis(50);
/// At least so long the bulk goes before anything counts.
const WARM: Duration = Duration::from_secs(3);
/// Or so many packets.
const WARM_PACKETS: u32 = 20;
/// When to give up on enrolling, on a link that is not slow yet.
const PATIENCE: Duration = Duration::from_secs(20);

/// Measures `variant` on a bed of its own.
pub(super) fn measure(
    variant: Variant,
    setting: Setting,
    scale: f64,
    limit: Duration,
) -> Result<Figures> {
    let bed = Bed::new()?;
    let (server, client) = (bed.host("server")?, bed.host("client")?);
    within(limit, move || {
        let driven = act(variant, setting, scale, &server, &client)?;
        Figures::of_calls(&driven, &setting)
    })
}

fn act(
    variant: Variant,
    setting: Setting,
    scale: f64,
    server: &Host,
    client: &Host,
) -> Result<Driven> {
    let (_process, mut command) = connect(variant, server, client, &["transport-drive"])?;
    client.set_link(setting.link())?;
    command.args(["--direction", setting.direction.name()]);
    command.arg("--message-bytes").arg(setting.message_bytes().to_string());
    let pace = PACE.max(setting.packets_time(2));
    command.arg("--pace-us").arg(pace.as_micros().to_string());
    command.arg("--warm-ms").arg(warm(&setting).as_millis().to_string());
    command.arg("--measure-ms").arg(scaled(MEASURE_MS, scale).to_string());
    command.arg("--calls").arg(CALLS_MIN.to_string());
    let said = run(&mut command)?;
    serde_json::from_str(&said).map_err(|error| wrong(format!("{said}: {error}")))
}

/// Starts the server and lets the client in. The command `drive` of the client still has to be
/// told what to do.
pub(super) fn connect(
    variant: Variant,
    server: &Host,
    client: &Host,
    drive: &[&str],
) -> Result<(Proc, Command)> {
    let (process, authority, identities) = let_in(variant, server, client)?;
    let mut command = client.command(us()?);
    command.args(drive);
    Dial::tell(&mut command, variant, &address(server), &authority, &identities);
    Ok((process, command))
}

/// Starts the server, and gets the client an identity: also the authority's fingerprint, and where
/// the identity is.
fn let_in(variant: Variant, server: &Host, client: &Host) -> Result<(Proc, String, PathBuf)> {
    let directory = server.dir().join("authority");
    let authority = Authority::open(&directory).map_err(wrong)?;
    let mut command = server.command(us()?);
    command.arg("transport-serve").arg(&directory).arg(address(server));
    command.args(["--variant", variant.name()]);
    let process = start(server, &mut command)?;
    let identities = enrol(server, client, authority.fingerprint())?;
    Ok((process, authority.fingerprint().to_owned(), identities))
}

/// A server's process, and what it takes to call it.
#[derive(Debug)]
pub(super) struct Door {
    _process: Proc,
    /// Where it is.
    pub(super) target: Target,
    /// Who calls.
    pub(super) identity: Identity,
}

/// What `work` comes to, which this process does at a client of `bed`. The link is `link` once the
/// client has been let in.
pub(super) fn visit<T: Send + 'static>(
    bed: &Bed,
    variant: Variant,
    link: LinkSpec,
    limit: Duration,
    work: impl AsyncFnOnce(&Door, Host) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (server, client) = (bed.host("server")?, bed.host("client")?);
    within(limit, move || {
        let door = open(variant, &server, &client)?;
        client.set_link(link)?;
        client.enter(|| {
            let runtime = Runtime::new().doing("start the client's threads")?;
            runtime.block_on(work(&door, client.clone()))
        })?
    })
}

/// Starts a server, which `client` may call.
fn open(variant: Variant, server: &Host, client: &Host) -> Result<Door> {
    let (process, authority, identities) = let_in(variant, server, client)?;
    let identity = Identities::at(&identities).load(&authority, VOLUME).map_err(wrong)?;
    let identity = identity.ok_or_else(|| wrong("no identity for the server"))?;
    let (host, options) = (server.addr().to_string(), variant.options());
    let target = Target { host, port: PORT, authority, options };
    Ok(Door { _process: process, target, identity })
}

/// As long as the start may take: it fills the queue once, which then has to run empty.
fn warm(setting: &Setting) -> Duration {
    let queue = Duration::from_secs_f64(setting.queue_bytes() as f64 / setting.rate() as f64);
    (WARM + 2 * queue).max(setting.packets_time(WARM_PACKETS))
}

/// Starts a server by its `command` and waits until it listens.
pub(super) fn start(server: &Host, command: &mut Command) -> Result<Proc> {
    let mut process = server.spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let mut said = String::new();
    if let Some(stdout) = process.stdout() {
        BufReader::new(stdout).read_line(&mut said).doing("listen to the server")?;
    }
    if said.trim() == SERVING {
        return Ok(process);
    }
    Err(Error::Program { command: format!("{command:?}"), output: said })
}

/// Gets the client an identity, and returns where that is.
fn enrol(server: &Host, client: &Host, authority: &str) -> Result<PathBuf> {
    let invite = Invite { code: "any".into(), authority: authority.to_owned() };
    let url = MountUrl::new(&server.addr().to_string(), PORT, VOLUME, Some(invite));
    let url = url.map_err(wrong)?;
    let directory = client.dir().join("identities");
    let identities = Identities::at(&directory);
    client.enter(|| {
        let runtime = Builder::new_current_thread().enable_all().build().doing("start a thread")?;
        let enrolled = segue_rpc::enrol(&url, &identities, "client", PATIENCE);
        runtime.block_on(enrolled).map(drop).map_err(wrong)
    })??;
    Ok(directory)
}

/// This program.
pub(super) fn us() -> Result<PathBuf> {
    std::env::current_exe().doing("find segue-bench")
}

/// Where the server listens.
pub(super) fn address(server: &Host) -> String {
    format!("{}:{PORT}", server.addr())
}
