//! The directories of this user's Segue files, read from the environment once and only here.

use std::path::{Path, PathBuf};

use segue_client::Paths;
use segue_client::paths::socket_path;

use crate::exit::{Exit, Failure};
use crate::mounts::Mount;

/// Every directory that follows from HOME and XDG_*.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The directories of the client.
    pub(crate) paths: Paths,
    /// `config.toml`.
    pub(crate) config_file: PathBuf,
    /// The default data directory of a server.
    pub(crate) data: PathBuf,
    /// The home directory, for `~/` in the configuration.
    pub(crate) home: PathBuf,
}

impl Places {
    /// Reads HOME and XDG_*. A relative XDG path is ignored, as its specification says. mount(8)
    /// runs helpers without HOME: then it is the one of the user's account.
    pub(crate) fn from_environment() -> Result<Places, Failure> {
        let absolute = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let account = || std::env::home_dir().filter(|path| path.is_absolute());
        let home = match absolute("HOME").or_else(account) {
            Some(home) => home,
            None if is_root() => PathBuf::from("/root"),
            None => return Err(Failure::usage("HOME is not set: set it to your home directory")),
        };
        let base = |name: &str, fallback: &str| {
            absolute(name).unwrap_or_else(|| home.join(fallback)).join("segue")
        };
        let config_home = base("XDG_CONFIG_HOME", ".config");
        Ok(Places {
            config_file: config_home.join("config.toml"),
            data: base("XDG_DATA_HOME", ".local/share"),
            paths: Paths {
                config_home,
                state_home: base("XDG_STATE_HOME", ".local/state"),
                runtime_dir: runtime_dir(absolute("XDG_RUNTIME_DIR")),
            },
            home,
        })
    }

    /// The log file of the background process `name`.
    pub(crate) fn log_file(&self, name: &str) -> PathBuf {
        self.paths.state_home.join("log").join(format!("{name}.log"))
    }

    /// Creates the runtime directory; refuses one that belongs to another user.
    pub(crate) fn make_runtime_dir(&self) -> Result<(), Failure> {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt};
        let path = &self.paths.runtime_dir;
        let failed =
            |error| Failure::io(format!("cannot use runtime directory {}", path.display()), &error);
        let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(path);
        made.map_err(failed)?;
        let owner = std::fs::symlink_metadata(path).map_err(failed)?.uid();
        if owner != user() {
            let words = format!(
                "runtime directory {} belongs to uid {owner}; remove it, or set XDG_RUNTIME_DIR",
                path.display()
            );
            return Err(Failure::new(Exit::NotPermitted, words));
        }
        Ok(())
    }

    /// The possible control sockets of `mount`. Its owner may have mounted it from a session with
    /// another runtime directory than this process has.
    pub(crate) fn sockets(&self, mount: &Mount) -> Vec<PathBuf> {
        let of_owner =
            [format!("/run/user/{}", mount.owner), format!("/tmp/segue-{}", mount.owner)];
        let mut directories: Vec<PathBuf> = of_owner.iter().map(PathBuf::from).collect();
        if mount.owner == user() {
            directories.insert(0, self.paths.runtime_dir.clone());
        }
        let socket = |directory: &PathBuf| socket_path(directory, &mount.mountpoint);
        let owned = |path: &PathBuf| belongs_to(path, mount.owner);
        directories.iter().map(socket).filter(owned).collect()
    }
}

/// The control sockets of all users' mounts.
pub(crate) fn all_sockets() -> Vec<PathBuf> {
    let entries = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let of_tmp = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("segue-"))
    };
    let mut directories = vec![PathBuf::from("/run")];
    directories.extend(entries(Path::new("/run/user")));
    directories.extend(entries(Path::new("/tmp")).into_iter().filter(of_tmp));
    let sockets = directories.iter().flat_map(|directory| entries(&directory.join("segue")));
    sockets.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
}

/// True if the process of `mount` listens at `socket`.
pub(crate) fn is_socket_of(socket: &Path, mount: &Mount) -> bool {
    let directory = socket.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    socket == socket_path(directory, &mount.mountpoint) && belongs_to(socket, mount.owner)
}

/// /tmp is writable by every user: a socket counts only if the owner of the mount made it. A link
/// would lead to any other's.
fn belongs_to(path: &Path, owner: u32) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.file_type().is_socket() && meta.uid() == owner)
}

fn runtime_dir(of_session: Option<PathBuf>) -> PathBuf {
    match of_session {
        _ if is_root() => PathBuf::from("/run"),
        Some(directory) => directory,
        None => PathBuf::from(format!("/tmp/segue-{}", user())),
    }
}

/// The effective uid of this process.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// True if this process runs as root.
pub(crate) fn is_root() -> bool {
    user() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_of_the_owner_counts() {
        let dir = tempfile::tempdir().unwrap();
        let [socket, link, file] = ["socket", "link", "file"].map(|name| dir.path().join(name));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink(&socket, &link).unwrap();
        std::fs::write(&file, "").unwrap();
        let counts = [&socket, &link, &file].map(|path| belongs_to(path, user()));
        assert_eq!(counts, [true, false, false]);
        assert!(!belongs_to(&socket, user() + 1));
    }
}
