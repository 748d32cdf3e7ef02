//! Where a host's Segue files lie. The environment is read by the program, not here.

use std::path::{Path, PathBuf};

/// Base directories, already resolved from HOME and XDG_*.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// `$XDG_CONFIG_HOME/segue`: identities and known servers.
    pub config_home: PathBuf,
    /// `$XDG_STATE_HOME/segue`: a cache directory for each volume, and logs of the daemons.
    pub state_home: PathBuf,
    /// `/run`, `$XDG_RUNTIME_DIR` or `/tmp/segue-UID`: sockets go to `segue/` below.
    pub runtime_dir: PathBuf,
}

impl Paths {
    /// Directory of identities.
    pub fn identities(&self) -> PathBuf {
        self.config_home.join("identities")
    }
}

/// The control socket of the mount at `mountpoint`, an absolute path without symbolic links.
pub fn socket_path(runtime_dir: &Path, mountpoint: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let digest = segue_core::chunk::fingerprint(mountpoint.as_os_str().as_bytes());
    let hex: String = digest.0.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    runtime_dir.join("segue").join(format!("{hex}.sock"))
}
