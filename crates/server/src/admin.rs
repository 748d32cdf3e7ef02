//! What an administrator asks for, with the server up (over its control socket) or down.

mod quotas;
mod volumes;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;

use segue_core::namespace::{self, find_volume};
use segue_core::nouns::Role;
use segue_rpc::identity::{Invite, MountUrl, PORT, UrlError, host_and_port, short};
use serde::{Deserialize, Serialize};

use crate::addresses;
use crate::clock::now;
use crate::data_dir::{Data, DataDir};
use crate::error::ServeError;
use crate::meta::{MetaFault, StoreError};
use crate::principals::{self, IdentityRow, InviteRow, UseRow};
use crate::random::{hex, random};
use crate::serve::Server;

/// Fewest digits by which an identity may be named.
const ID_MIN: usize = 4;
/// Longest time that an invite is valid: a year.
const TTL_MAX_SECONDS: u64 = 366 * 86_400;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum AdminRequest {
    /// A way in for one host. Reply `Invite`.
    Invite {
        /// Name of the volume.
        volume: String,
        /// What the host may do.
        role: Role,
        /// How long it is valid.
        ttl_seconds: u64,
        /// The name that hosts dial; by default the address that the server listens on, or
        /// the machine's first.
        host: Option<String>,
        /// Root of the host is root here too (role `host` only).
        no_root_squash: bool,
    },
    /// A new volume. Reply `Volume`.
    VolumeCreate {
        /// Its name.
        name: String,
    },
    /// All volumes. Reply `Volumes`.
    VolumeList,
    /// One volume. Reply `Volume`.
    VolumeShow {
        /// Its name.
        name: String,
    },
    /// Changes what a volume, or the tree below one of its directories, may hold. Reply
    /// `Volume`.
    VolumeSet {
        /// Its name.
        name: String,
        /// The directory by its path from the volume's root; the volume itself without one.
        dir: Option<String>,
        /// Most bytes; as before without one.
        bytes: Option<Limit>,
        /// Most inodes; as before without one.
        inodes: Option<Limit>,
    },
    /// Removes a volume with everything in it and every host's access to it, but never the only
    /// one. Reply `Deleted`.
    VolumeDelete {
        /// Its name.
        name: String,
    },
    /// All identities. Reply `Identities`.
    IdentityList,
    /// Shuts an identity out, its open connections included. Reply `Revoked`.
    IdentityRevoke {
        /// Its id or fingerprint, or the unambiguous start of it.
        id: String,
    },
    /// The server itself. Reply `Info`.
    Info,
}

/// A limit as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// No limit.
    None,
    /// So many.
    At(u64),
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum AdminReply {
    /// The URL to mount.
    Invite {
        /// `segue://HOST:PORT/VOLUME?invite=CODE&ca=FINGERPRINT`.
        url: String,
    },
    /// A volume.
    Volume(VolumeInfo),
    /// Volumes, in the order of their making.
    Volumes {
        /// They.
        volumes: Vec<VolumeInfo>,
    },
    /// A volume is gone.
    Deleted {
        /// What it was.
        volume: VolumeInfo,
        /// Fingerprints of the identities that went with it.
        identities: Vec<String>,
    },
    /// Identities, by fingerprint.
    Identities {
        /// They.
        identities: Vec<IdentityInfo>,
    },
    /// An identity is out.
    Revoked {
        /// Its id.
        id: String,
        /// Its certificate's fingerprint.
        fingerprint: String,
    },
    /// The server.
    Info(ServerInfo),
    /// It was not done.
    Failed {
        /// Why, for programs.
        reason: FailReason,
        /// Why, for people.
        words: String,
    },
}

/// Why a request was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// There is no such volume or identity.
    NotFound,
    /// There is one already.
    Exists,
    /// The request makes no sense.
    Invalid,
    /// The disk.
    Io,
    /// The metadata cannot be read.
    Damaged,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its random identity, hex.
    pub uuid: String,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// Inodes in use.
    pub inodes: u64,
    /// Bytes of all files that are not holes.
    pub allocated_bytes: u64,
    /// Bytes that came for files and are in none yet; they count against its quota.
    pub arrived_bytes: u64,
    /// Most bytes that it may hold.
    pub quota_bytes: Option<u64>,
    /// Most inodes that it may have.
    pub quota_inodes: Option<u64>,
    /// When it was last backed up, in seconds since 1970, if it ever was.
    pub backed_up: Option<i64>,
    /// When each byte of it was last verified, if that ever happened.
    pub checked: Option<i64>,
    /// Directories with quotas; only of a volume that is shown by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<DirectoryInfo>,
    /// Why its rows cannot be read, if they cannot: then the rest says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// A directory with a quota.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DirectoryInfo {
    /// Its path from the volume's root.
    pub path: String,
    /// Inodes below it, and itself.
    pub inodes: u64,
    /// Bytes below it that are not holes.
    pub allocated_bytes: u64,
    /// Most bytes.
    pub quota_bytes: Option<u64>,
    /// Most inodes.
    pub quota_inodes: Option<u64>,
}

/// An identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdentityInfo {
    /// The start of its certificate's fingerprint.
    pub id: String,
    /// The host's name as it gave it.
    pub host: String,
    /// The volume that it may use.
    pub volume: String,
    /// What it may do there.
    pub role: Role,
    /// Root of the host is root here too.
    pub no_root_squash: bool,
    /// When it was let in, in seconds since 1970.
    pub created: i64,
    /// When it was shut out, in seconds since 1970.
    pub revoked: Option<i64>,
    /// When it was used last, in seconds since 1970, if it ever was.
    pub last_used: Option<i64>,
    /// Its address then.
    pub address: Option<IpAddr>,
    /// A host with it is connected now.
    pub connected: bool,
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Of the program.
    pub version: String,
    /// Data directory.
    pub data: String,
    /// It is serving now.
    pub running: bool,
    /// Where it listens, or did last.
    pub address: Option<SocketAddr>,
    /// How long it has served.
    pub uptime_seconds: Option<u64>,
    /// Clients connected now.
    pub sessions: u64,
    /// Number of volumes.
    pub volumes: u64,
}

/// Executes `request` on a data directory whose server is down.
pub fn execute_offline(data: &Path, request: AdminRequest) -> Result<AdminReply, ServeError> {
    let data = Data::open(DataDir::open(data)?)?;
    Ok(execute(&data, None, request))
}

/// Makes another certificate authority for the server on `data`, which is down: every host has
/// to be let in anew. The volumes are as before.
pub fn renew_identity(data: &Path) -> Result<(), ServeError> {
    Data::renew_identity(&DataDir::open(data)?)
}

/// A reply that says why not.
pub(crate) fn failed(reason: FailReason, words: impl Into<String>) -> AdminReply {
    AdminReply::Failed { reason, words: words.into() }
}

/// Executes `request`; may block.
pub(crate) fn execute(data: &Data, server: Option<&Server>, request: AdminRequest) -> AdminReply {
    let done = match request {
        AdminRequest::Invite { volume, role, ttl_seconds, host, no_root_squash } => {
            if no_root_squash && role != Role::Host {
                return failed(FailReason::Invalid, "--no-root-squash needs --role host");
            }
            if ttl_seconds == 0 || ttl_seconds > TTL_MAX_SECONDS {
                let words = "the validity of an invite must be from 1s to 366d (--ttl)";
                return failed(FailReason::Invalid, words);
            }
            let terms = Terms { role, ttl_seconds, no_root_squash };
            invite(data, server, &volume, terms, host)
        }
        AdminRequest::VolumeCreate { name } => volumes::create(data, &name),
        AdminRequest::VolumeList => volumes::list(data),
        AdminRequest::VolumeShow { name } => volumes::show(data, &name),
        AdminRequest::VolumeSet { name, dir, bytes, inodes } => {
            quotas::set(data, &name, dir, (bytes, inodes))
        }
        AdminRequest::VolumeDelete { name } => volumes::delete(data, &name),
        AdminRequest::IdentityList => identity_list(data, server),
        AdminRequest::IdentityRevoke { id } => identity_revoke(data, &id),
        AdminRequest::Info => info(data, server),
    };
    done.unwrap_or_else(|error| failed(FailReason::Io, error.to_string()))
}

struct Terms {
    role: Role,
    ttl_seconds: u64,
    no_root_squash: bool,
}

fn no_volume(name: &str) -> AdminReply {
    failed(FailReason::NotFound, no_volume_words(name))
}

pub(crate) fn no_volume_words(name: &str) -> String {
    format!("there is no volume '{name}'; see: segue volume list")
}

/// What hosts are to be told: an address, and a port if another one is forwarded to ours.
fn named_address(text: &str) -> Result<(String, Option<u16>), UrlError> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text.to_owned(), None));
    }
    host_and_port(text).map(|(host, port)| (host.to_owned(), port))
}

fn invite(
    data: &Data,
    server: Option<&Server>,
    volume: &str,
    terms: Terms,
    host: Option<String>,
) -> Result<AdminReply, StoreError> {
    let found = data.store.read_blocking(|kv| find_volume(kv, volume))??;
    let Some((id, _)) = found else { return Ok(no_volume(volume)) };
    let listen = match server {
        Some(server) => Some(server.address),
        None => data.listen()?,
    };
    let named = match host.as_deref().map(named_address).transpose() {
        Ok(named) => named,
        Err(error) => return Ok(failed(FailReason::Invalid, error.to_string())),
    };
    let (host, forwarded) = match named.or_else(|| Some((default_host(listen)?, None))) {
        Some(named) => named,
        None => {
            let words = "no address of this host is reachable for others; name one with --host";
            return Ok(failed(FailReason::Invalid, words));
        }
    };
    let code = match random::<16>() {
        Ok(bytes) => hex(&bytes),
        Err(error) => {
            return Ok(failed(FailReason::Io, format!("cannot read random bytes: {error}")));
        }
    };
    let authority = data.authority.fingerprint().to_owned();
    let port = forwarded.unwrap_or(listen.map_or(PORT, |listen| listen.port()));
    let invite = Some(Invite { code: code.clone(), authority });
    let url = match MountUrl::new(&host, port, volume, invite) {
        Ok(url) => url.to_string(),
        Err(error) => return Ok(failed(FailReason::Invalid, error.to_string())),
    };
    let seconds = now().secs;
    let ttl = i64::try_from(terms.ttl_seconds).unwrap_or(i64::MAX);
    let row = InviteRow {
        volume: id,
        role: terms.role,
        no_root_squash: terms.no_root_squash,
        expires: seconds.saturating_add(ttl),
        used: None,
    };
    data.store.write_blocking(move |txn| principals::invite(txn, &code, &row, seconds))?;
    Ok(AdminReply::Invite { url })
}

/// The name that hosts dial when nobody says another.
fn default_host(listen: Option<SocketAddr>) -> Option<String> {
    let address = match listen.map(|listen| listen.ip()) {
        Some(ip) if !ip.is_unspecified() => ip,
        Some(IpAddr::V4(_)) => addresses::reachable().into_iter().find(IpAddr::is_ipv4)?,
        _ => *addresses::reachable().first()?,
    };
    Some(address.to_string())
}

fn identity_list(data: &Data, server: Option<&Server>) -> Result<AdminReply, StoreError> {
    let (rows, volumes) = data.store.read_blocking(|kv| {
        let mut rows = Vec::new();
        for (fingerprint, row) in principals::identities(kv, "")? {
            let used = principals::last_use(kv, &fingerprint)?;
            rows.push((fingerprint, row, used));
        }
        Ok::<_, MetaFault>((rows, namespace::volumes(kv)?))
    })??;
    let connected = server.map(|server| server.sessions.identities()).unwrap_or_default();
    let info = |(fingerprint, row, used): (String, IdentityRow, Option<UseRow>)| {
        let volume = volumes.iter().find(|(id, _)| *id == row.volume);
        let volume = volume.and_then(|(_, found)| Some(found.as_ref().ok()?.name.clone()));
        IdentityInfo {
            id: short(&fingerprint).to_owned(),
            host: row.host,
            volume: volume.unwrap_or_else(|| format!("#{}", row.volume.0)),
            role: row.role,
            no_root_squash: row.no_root_squash,
            created: row.created,
            revoked: row.revoked,
            last_used: used.as_ref().map(|used| used.last),
            address: used.map(|used| used.address),
            connected: connected.contains(&fingerprint),
        }
    };
    let mut identities: Vec<IdentityInfo> = rows.into_iter().map(info).collect();
    identities.sort_by(|one, other| (&one.host, one.created).cmp(&(&other.host, other.created)));
    Ok(AdminReply::Identities { identities })
}

fn identity_revoke(data: &Data, id: &str) -> Result<AdminReply, StoreError> {
    if id.len() < ID_MIN || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let words = format!("'{id}' is not the ID of an identity; see: segue identity list");
        return Ok(failed(FailReason::Invalid, words));
    }
    let prefix = id.to_ascii_lowercase();
    let found = data.store.read_blocking(|kv| principals::identities(kv, &prefix))??;
    let fingerprint = match found.as_slice() {
        [(fingerprint, _)] => fingerprint.clone(),
        [] => {
            let words = format!("there is no identity '{id}'; see: segue identity list");
            return Ok(failed(FailReason::NotFound, words));
        }
        _ => {
            let words = format!("several identities begin with '{id}'; give more digits");
            return Ok(failed(FailReason::Invalid, words));
        }
    };
    let key = fingerprint.clone();
    data.store.write_blocking(move |txn| principals::revoke(txn, &key, now().secs))?;
    Ok(AdminReply::Revoked { id: short(&fingerprint).to_owned(), fingerprint })
}

fn info(data: &Data, server: Option<&Server>) -> Result<AdminReply, StoreError> {
    let volumes = data.store.read_blocking(|kv| namespace::volumes(kv))??.len() as u64;
    Ok(AdminReply::Info(ServerInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data: data.path().display().to_string(),
        running: server.is_some(),
        address: match server {
            Some(server) => Some(server.address),
            None => data.listen()?,
        },
        uptime_seconds: server.map(|server| server.started.elapsed().as_secs()),
        sessions: server.map_or(0, |server| server.sessions.count() as u64),
        volumes,
    }))
}
