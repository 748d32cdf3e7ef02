//! A private SSH server, with keys and settings of its own, for the peers that need one.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Stage, still_runs, wait_until};
use crate::{Doing, Error, Proc, Result, run};

const PROGRAM: &str = "/usr/sbin/sshd";

/// Nothing else listens in the server's namespace.
const PORT: u16 = 2222;

/// Where Debian's sshd goes to have no privileges; its service makes it, we run none.
const PRIVSEP: &str = "/run/sshd";

pub(crate) struct Sshd {
    /// The directory that it serves.
    pub(crate) exported: PathBuf,
    /// The client's private key.
    pub(crate) key: PathBuf,
    /// The server's public key, as a known_hosts file.
    pub(crate) known_hosts: PathBuf,
    pub(crate) host: String,
    pub(crate) port: String,
    _process: Proc,
}

impl Sshd {
    pub(crate) fn start(stage: &Stage) -> Result<Sshd> {
        if !Path::new(PROGRAM).exists() {
            return Err(Error::Unavailable(format!("{PROGRAM} is missing")));
        }
        let server = &stage.server;
        let dir = server.mkdir("sshd")?;
        let (host_key, key) = (dir.join("host_key"), dir.join("client_key"));
        let server_public = make_key(&host_key)?;
        let client_public = make_key(&key)?;
        let authorized = dir.join("authorized_keys");
        write(&authorized, &client_public)?;
        let known_hosts = dir.join("known_hosts");
        write(&known_hosts, &format!("[{}]:{PORT} {server_public}", server.addr()))?;
        let config = dir.join("sshd_config");
        write(&config, &settings(&host_key, &authorized, server.home()))?;
        // Two beds at once may find that it is missing.
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(PRIVSEP);
        made.doing(format!("make {PRIVSEP}"))?;
        let mut command = server.command(PROGRAM);
        command.arg("-D").arg("-f").arg(&config).arg("-E").arg(dir.join("log"));
        let mut process = server.spawn(command.stdin(Stdio::null()))?;
        let addr: SocketAddr = (server.addr(), PORT).into();
        wait_until("sshd does not accept", Duration::from_secs(10), || {
            still_runs(&mut process, "sshd")?;
            Ok(server.enter(|| TcpStream::connect(addr))?.is_ok())
        })?;
        let (host, port) = (server.addr().to_string(), PORT.to_string());
        let exported = server.mkdir("exported")?;
        Ok(Sshd { exported, key, known_hosts, host, port, _process: process })
    }
}

/// HOME is the host's: a user's shell profile would run with every command that rclone sends,
/// and could be killed with the bed in the middle of something.
fn settings(host_key: &Path, authorized: &Path, home: &Path) -> String {
    format!(
        "ListenAddress 0.0.0.0:{PORT}\n\
         HostKey {}\n\
         AuthorizedKeysFile {}\n\
         SetEnv HOME={}\n\
         PidFile none\n\
         UsePAM no\n\
         StrictModes no\n\
         PasswordAuthentication no\n\
         PermitRootLogin prohibit-password\n\
         Subsystem sftp internal-sftp\n",
        host_key.display(),
        authorized.display(),
        home.display()
    )
}

/// Makes a key pair and returns the public one.
fn make_key(path: &Path) -> Result<String> {
    let mut command = Command::new("ssh-keygen");
    run(command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(path))?;
    fs::read_to_string(path.with_extension("pub")).doing("read a public key")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).doing(format!("write {}", path.display()))?;
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, private).doing(format!("chmod {}", path.display()))
}
