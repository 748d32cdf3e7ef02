//! Opening a cache directory: its lock, its identity, whether the host went down under it.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use segue_core::nouns::{ClientId, InoGrant, Role};
use serde::{Deserialize, Serialize};

use super::durable::{sync_data, sync_name};
use super::log::REMEDY;
use crate::error::MountError;

/// Version of the directory's layout.
const LAYOUT: u32 = 4;

/// An open cache directory. Its lock lasts as long as this.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    pub(crate) path: PathBuf,
    pub(crate) saved: Saved,
    /// The host went down while the directory was in use: what was not synced may be missing from
    /// its files.
    pub(crate) lost_power: bool,
    _lock: File,
}

/// `state.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) layout: u32,
    pub(crate) client: String,
    pub(crate) incarnation: u32,
    /// Seqs below may have been used.
    pub(crate) seq_reserved: u64,
    /// Inode numbers of `grants` before this one, in order, may have been used.
    pub(crate) inos_reserved: u64,
    pub(crate) grants: Vec<InoGrant>,
    pub(crate) boot_id: String,
    /// How often the directory was opened.
    pub(crate) starts: u32,
    /// It was left in order: everything in it is durable.
    pub(crate) clean: bool,
    /// What the identity may do, as the server last said.
    pub(crate) role: Option<Role>,
    /// The server that the changes here are for.
    #[serde(default)]
    pub(crate) server: Option<KnownServer>,
}

/// A server, as a host knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownServer {
    /// Fingerprint of its authority: this is who it is.
    pub(crate) authority: String,
    /// Where it was last.
    pub(crate) address: String,
}

impl StateDirectory {
    /// Opens or makes the directory of volume `uuid` below `base`. A process that was unmounted
    /// and is about to end is waited for with `patience`.
    pub(crate) fn open(
        base: &Path,
        uuid: &[u8; 16],
        new_client: ClientId,
        mountpoint: &Path,
        patience: Duration,
    ) -> Result<StateDirectory, MountError> {
        let path = base.join(hex(uuid));
        make_private(&path)?;
        check_private(&path)?;
        let lock = take_lock(&path, mountpoint, patience)?;
        let boot_id = boot_id();
        let file = path.join("state.json");
        let (mut saved, lost_power) = match fs::read(&file) {
            Ok(bytes) => {
                let saved: Saved = serde_json::from_slice(&bytes).map_err(|error| {
                    let reason = format!("is damaged ({error}); {REMEDY}");
                    MountError::state(&file, reason)
                })?;
                if saved.layout != LAYOUT {
                    let reason = "was made by another version of segue: use that version";
                    return Err(MountError::state(&path, reason));
                }
                let lost_power = saved.boot_id != boot_id && !saved.clean;
                (saved, lost_power)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let saved = Saved {
                    layout: LAYOUT,
                    client: hex(&new_client.0),
                    incarnation: 1,
                    seq_reserved: 1,
                    inos_reserved: 0,
                    grants: Vec::new(),
                    boot_id: boot_id.clone(),
                    starts: 0,
                    clean: false,
                    role: None,
                    server: None,
                };
                (saved, false)
            }
            Err(error) => return Err(MountError::state(&file, error)),
        };
        saved.starts += 1;
        saved.clean = false;
        if !lost_power {
            saved.boot_id = boot_id;
        }
        let directory = StateDirectory { path, saved, lost_power, _lock: lock };
        directory.save().map_err(|error| MountError::state(&file, error))?;
        Ok(directory)
    }

    /// Identity of this cache.
    pub(crate) fn client(&self) -> Result<ClientId, MountError> {
        unhex(&self.saved.client).map(ClientId).ok_or_else(|| {
            MountError::state(self.path.join("state.json"), "is damaged: no valid client ID")
        })
    }

    /// Notes that no doubt is left about data that an earlier run of the host did not sync.
    pub(crate) fn clear_power_loss(&mut self) -> io::Result<()> {
        self.saved.boot_id = boot_id();
        self.lost_power = false;
        self.save()
    }

    /// The cache is another client from now on, whose inode numbers are these.
    pub(crate) fn become_client(
        &mut self,
        client: ClientId,
        grants: &[InoGrant],
    ) -> io::Result<()> {
        let new = Saved {
            client: hex(&client.0),
            grants: grants.to_vec(),
            inos_reserved: 0,
            ..self.saved.clone()
        };
        let old = std::mem::replace(&mut self.saved, new);
        self.save().inspect_err(|_| self.saved = old)
    }

    /// Notes what the identity may do.
    pub(crate) fn set_role(&mut self, role: Role) -> io::Result<()> {
        if self.saved.role == Some(role) {
            return Ok(());
        }
        self.saved.role = Some(role);
        self.save()
    }

    /// Notes which server the changes here are for.
    pub(crate) fn set_server(&mut self, server: KnownServer) -> io::Result<()> {
        if self.saved.server.as_ref() == Some(&server) {
            return Ok(());
        }
        self.saved.server = Some(server);
        self.save()
    }

    /// Makes `saved` durable.
    pub(crate) fn save(&self) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(&self.saved)?;
        replace_file(&self.path.join("state.json"), &bytes)
    }
}

/// Writes `bytes` to `path` so that after a crash it holds either the old or the new.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    sync_data(&file)?;
    fs::rename(&new, path)?;
    sync_name(path)
}

fn make_private(path: &Path) -> Result<(), MountError> {
    use std::os::unix::fs::DirBuilderExt;
    let is_new = |path: &&Path| !path.exists();
    let new: Vec<&Path> = path.ancestors().take_while(is_new).collect();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.and_then(|()| new.into_iter().try_for_each(sync_name))
        .map_err(|error| MountError::state(path, error))
}

/// What is in the cache becomes the content of files: so nobody else may write there, also not by
/// way of a link.
fn check_private(path: &Path) -> Result<(), MountError> {
    let user = rustix::process::geteuid().as_raw();
    let entries = |path: &Path| {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        entries.map_err(|error| MountError::state(path, error))
    };
    let mut inside: Vec<PathBuf> = entries(path)?.iter().map(DirEntry::path).collect();
    for below in ["containers", "preserved", "maps", "refused"] {
        let below = path.join(below);
        if below.is_dir() {
            inside.extend(entries(&below)?.iter().map(DirEntry::path));
        }
    }
    for found in inside.iter().map(PathBuf::as_path).chain([path]) {
        let meta = found.symlink_metadata().map_err(|error| MountError::state(found, error))?;
        let cause = match () {
            () if meta.is_symlink() => "is a symbolic link".to_owned(),
            () if meta.uid() != user => format!("belongs to uid {}", meta.uid()),
            // Nobody else gets to what is inside.
            () if found == path && meta.mode() & 0o022 != 0 => {
                "can be written by others".to_owned()
            }
            () => continue,
        };
        let reason = format!(
            "{cause}, so others could change what you read: if you trust its contents, make it \
             yours alone (chown -R {user}, chmod -R go-w); or choose another cache-dir"
        );
        return Err(MountError::state(found, reason));
    }
    Ok(())
}

fn take_lock(path: &Path, mountpoint: &Path, patience: Duration) -> Result<File, MountError> {
    let name = path.join("lock");
    let mut lock = File::options()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&name)
        .map_err(|error| MountError::state(&name, error))?;
    let patience = Instant::now() + patience;
    while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() < patience && !is_mounted(&lock) {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        let mut holder = String::new();
        lock.seek(SeekFrom::Start(0))
            .and_then(|_| lock.read_to_string(&mut holder))
            .map_err(|error| MountError::state(&name, error))?;
        let reason = format!("this volume is already mounted on this host at {}", holder.trim());
        return Err(MountError::state(path, reason));
    }
    let holder = mountpoint.display().to_string();
    lock.set_len(0)
        .and_then(|()| lock.seek(SeekFrom::Start(0)))
        .and_then(|_| lock.write_all(holder.as_bytes()))
        .map_err(|error| MountError::state(&name, error))?;
    Ok(lock)
}

/// Where the volume of this cache directory is mounted, if it is.
pub(crate) fn holder(path: &Path) -> Option<String> {
    let lock = File::open(path.join("lock")).ok()?;
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => None,
        Err(_) => Some(fs::read_to_string(path.join("lock")).unwrap_or_default().trim().to_owned()),
    }
}

/// True if the mount point named in the lock file is in the mount list: its process is not
/// about to end.
fn is_mounted(mut lock: &File) -> bool {
    let mut holder = String::new();
    let read = lock.seek(SeekFrom::Start(0)).and_then(|_| lock.read_to_string(&mut holder));
    let list = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let escaped = holder.trim().replace(' ', "\\040");
    read.is_ok() && list.lines().any(|line| line.split(' ').nth(4) == Some(escaped.as_str()))
}

fn boot_id() -> String {
    // Without it every start counts as a restart, which only costs refetching.
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

fn volumes_file(base: &Path) -> PathBuf {
    base.join("volumes.json")
}

/// UUIDs of the volumes that were mounted with caches below `base`, by URL.
pub(crate) fn volumes(base: &Path) -> BTreeMap<String, String> {
    // The file only spares a question to the server; a damaged one is made anew.
    fs::read(volumes_file(base))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

/// The volume that was found at `url` before, if its cache is here.
pub(crate) fn known_volume(base: &Path, url: &str) -> Option<[u8; 16]> {
    let uuid = volumes(base).remove(url)?;
    base.join(&uuid).join("state.json").exists().then(|| unhex(&uuid))?
}

/// Notes which volume is at `url`.
pub(crate) fn remember_volume(base: &Path, url: &str, uuid: &[u8; 16]) -> io::Result<()> {
    let mut known = volumes(base);
    if known.insert(url.to_string(), hex(uuid)).as_deref() == Some(&hex(uuid)) {
        return Ok(());
    }
    replace_file(&volumes_file(base), &serde_json::to_vec_pretty(&known)?)
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// Who could write there had changed what the owner of the cache reads.
    #[test]
    fn a_cache_that_others_may_write_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let open = || {
            let (client, at) = (ClientId([7; 16]), Path::new("/mnt/a"));
            StateDirectory::open(base.path(), &[1; 16], client, at, Duration::ZERO)
        };
        let path = open().unwrap().path;
        let refused = |words: &str| {
            let error = open().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&path, 0o770);
        refused("can be written by others");
        mode(&path, 0o700);
        let containers = path.join("containers");
        fs::create_dir(&containers).unwrap();
        symlink("/tmp", containers.join("00")).unwrap();
        refused("containers/00: is a symbolic link");
        fs::remove_file(containers.join("00")).unwrap();
        open().unwrap();
        if rustix::process::geteuid().is_root() {
            chown(path.join("state.json"), Some(1), None).unwrap();
            refused("state.json: belongs to uid 1");
        }
    }

    #[test]
    fn a_second_mount_of_a_volume_names_the_first() {
        let base = tempfile::tempdir().unwrap();
        let client = ClientId([7; 16]);
        let open = |at: &str, client| {
            StateDirectory::open(base.path(), &[1; 16], client, Path::new(at), Duration::ZERO)
        };
        let first = open("/mnt/a", client).unwrap();
        assert_eq!(first.client().unwrap(), client);
        let refused = open("/mnt/b", client).unwrap_err().to_string();
        assert!(refused.contains("already mounted on this host at /mnt/a"), "{refused}");
        drop(first);
        let again = open("/mnt/b", ClientId([8; 16]));
        assert_eq!(again.unwrap().client().unwrap(), client);
    }
}
