//! The `segue` program on a bed: a server that can be killed and a mount that can be killed.

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::error::{Doing, Error, Result, run, run_detaching};
use super::host::Host;
use super::process::Proc;

const PORT: u16 = 7420;

/// How long a server may take until it accepts; generous, for machines under load.
const START_MAX: Duration = Duration::from_secs(30);

/// Where the program is: `SEGUE_BIN`, else `given`, else next to the running program.
pub(crate) fn binary(given: Option<&Path>) -> PathBuf {
    let named = std::env::var_os("SEGUE_BIN").map(PathBuf::from);
    named.or_else(|| given.map(Path::to_path_buf)).or_else(beside_us).unwrap_or("segue".into())
}

/// Programs are built into target/PROFILE, tests into target/PROFILE/deps.
fn beside_us() -> Option<PathBuf> {
    let us = std::env::current_exe().ok()?;
    us.ancestors().skip(1).take(2).map(|dir| dir.join("segue")).find(|path| path.is_file())
}

/// A running `segue serve`. Dropping it kills it.
#[derive(Debug)]
pub struct SegueServer {
    host: Host,
    data: PathBuf,
    args: Vec<String>,
    log: PathBuf,
    process: Proc,
}

impl SegueServer {
    /// Starts to serve `data` on `host` and waits until the server accepts.
    pub fn start(host: &Host, data: &Path) -> Result<SegueServer> {
        SegueServer::start_with(host, data, &[])
    }

    /// The same with further arguments for `segue serve`.
    pub fn start_with(host: &Host, data: &Path, args: &[&str]) -> Result<SegueServer> {
        let log = host.dir().join("serve.log");
        let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        let process = serve(host, data, &args, &log)?;
        Ok(SegueServer { host: host.clone(), data: data.to_path_buf(), args, log, process })
    }

    /// Where clients reach it.
    pub fn addr(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.host.addr(), PORT)
    }

    /// The URL of `volume`, for a host that is enrolled already.
    pub fn url(&self, volume: &str) -> String {
        format!("segue://{}/{volume}", self.addr())
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// What it has printed so far, over all its restarts.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs `segue invite` with `args` and returns the URL that it prints.
    pub fn invite(&self, args: &[&str]) -> Result<String> {
        let mut command = self.host.command("segue");
        command.arg("invite").arg("--data").arg(&self.data);
        if !args.contains(&"--host") {
            command.args(["--host", &self.host.addr().to_string()]);
        }
        Ok(run(command.args(args))?.trim().to_owned())
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Proc {
        &mut self.process
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill9(&mut self) -> Result<()> {
        self.process.kill9().doing("kill segue serve")?;
        Ok(())
    }

    /// Kills it if it still runs and starts it again on the same data.
    pub fn restart(&mut self) -> Result<()> {
        // An error means that it has ended already.
        let _ = self.process.kill9();
        self.process = serve(&self.host, &self.data, &self.args, &self.log)?;
        Ok(())
    }
}

/// Starts the server and waits for its line `segue: serving on ADDR:PORT`.
fn serve(host: &Host, data: &Path, args: &[String], log: &Path) -> Result<Proc> {
    let open = || fs::File::options().create(true).append(true).open(log);
    let before = fs::metadata(log).map_or(0, |meta| meta.len());
    let before = usize::try_from(before).unwrap_or(0);
    let mut command = host.command("segue");
    command.arg("serve").arg("--data").arg(data).args(["--listen", &format!("0.0.0.0:{PORT}")]);
    command.args(args).stdin(Stdio::null());
    command.stdout(open().doing("serve.log")?).stderr(open().doing("serve.log")?);
    let mut process = host.spawn(&mut command)?;
    let deadline = Instant::now() + START_MAX;
    loop {
        let said = fs::read(log).doing("read serve.log")?;
        let said = String::from_utf8_lossy(said.get(before..).unwrap_or_default()).into_owned();
        if said.contains("segue: serving on ") {
            return Ok(process);
        }
        if let Some(status) = process.try_wait().doing("wait for segue serve")? {
            let output = format!("{status}: {said}");
            return Err(Error::Program { command: "segue serve".into(), output });
        }
        if Instant::now() > deadline {
            return Err(Error::TimedOut(format!("segue serve does not accept: {said}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A volume mounted by `segue mount`. Dropping it kills the daemon and unmounts.
#[derive(Debug)]
pub struct SegueMount {
    host: Host,
    point: PathBuf,
}

impl SegueMount {
    /// Runs `segue mount URL POINT ARGS..` on `host`; done when the mount is usable.
    pub fn new(host: &Host, url: &str, point: &Path, args: &[&str]) -> Result<SegueMount> {
        let mut command = host.command("segue");
        command.arg("mount").arg(url).arg(point).args(args);
        run_detaching(&mut command, &host.dir().join("mount.log"))?;
        Ok(SegueMount { host: host.clone(), point: point.to_path_buf() })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// The daemon's process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        let processes = fs::read_dir("/proc").ok()?;
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|&pid| pid != std::process::id()).find(|&pid| is_daemon(pid, &self.point))
    }

    /// SIGKILL for the daemon; the dead mount is removed, so that it can be mounted again.
    pub fn kill9(&mut self) -> Result<()> {
        let Some(pid) = self.pid() else { return self.detach() };
        self.host.note_sockets()?;
        kill9(pid).doing(format!("kill segue mount, pid {pid}"))?;
        self.detach()
    }

    /// Runs `segue umount POINT ARGS..`.
    pub fn umount(&mut self, args: &[&str]) -> Result<()> {
        run(self.host.command("segue").arg("umount").arg(&self.point).args(args))?;
        Ok(())
    }

    /// Runs `segue sync --wait` on the mount: returns when the server has everything.
    pub fn sync(&self) -> Result<()> {
        run(self.host.command("segue").args(["sync", "--wait"]).arg(&self.point))?;
        Ok(())
    }

    /// Whether something is mounted at its place.
    pub fn is_mounted(&self) -> bool {
        is_mounted(&self.point)
    }

    fn detach(&self) -> Result<()> {
        while self.is_mounted() {
            run(self.host.command("umount").arg("-l").arg(&self.point))?;
        }
        Ok(())
    }
}

impl Drop for SegueMount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A command that finds no process behind a mount does not say whether it has ended.
            eprintln!("--- {}: served by process {:?}", self.point.display(), self.pid());
        }
        if self.is_mounted()
            && let Err(error) = self.kill9()
        {
            eprintln!("segue-bed: {error}");
        }
    }
}

/// Whether something is mounted at `point`, answered without touching it: it may hang.
pub fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let escaped = point.to_string_lossy().replace('\\', "\\134").replace(' ', "\\040");
    table.lines().any(|line| line.split(' ').nth(4) == Some(&escaped))
}

fn is_daemon(pid: u32, point: &Path) -> bool {
    // The command line of a process that hangs in a mount cannot be read; its name can.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim_end() != "segue" {
        return false;
    }
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let point = point.to_string_lossy();
    words.first().is_some_and(|program| program.ends_with("segue"))
        && words.iter().any(|word| word == "mount")
        && words.contains(&point)
}

/// Kills a process that is no child of ours and waits until it is gone.
fn kill9(pid: u32) -> io::Result<()> {
    let id = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let Some(id) = id else { return Err(io::ErrorKind::InvalidInput.into()) };
    match rustix::process::kill_process(id, rustix::process::Signal::KILL) {
        // It was being killed already, and has ended since it was looked up.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    let deadline = Instant::now() + START_MAX;
    while runs(pid) {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A zombie no longer runs: it only waits to be noticed by its parent. Its first thread may be one
/// while others still hold its files and locks.
fn runs(pid: u32) -> bool {
    let is_alive = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        state.is_some_and(|state| state != 'Z' && state != 'X')
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(is_alive)
}
