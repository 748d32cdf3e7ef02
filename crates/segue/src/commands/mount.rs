//! `segue mount`: a volume as a directory, served by a process of its own.

use std::ffi::OsString;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use segue_client::options::KEYS;
use segue_client::paths::socket_path;
use segue_client::{MountOptions, MountPlan, MountUrl, Ready};

use super::{Context, block_on, block_on_daemon};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::process::ends_with_panic;
use crate::signals::StopSignals;
use crate::{control, daemon, mounts, output};

/// Mount a volume as a directory
///
/// Returns when the mount can be used. The first time, URL is the line that 'segue invite'
/// printed on the server; it enrols this host. Afterwards segue://HOST[:PORT]/VOLUME is enough.
/// Changes that an earlier mount could not send any more are sent first.
///
/// Every option can also stand in ~/.config/segue/config.toml (write-back = "close") or in
/// the environment (SEGUE_WRITE_BACK=close). The order is: flag, environment, file, default.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Arguments {
    /// What to mount: segue://HOST[:PORT]/VOLUME, or an invite; - reads it from stdin
    pub(crate) url: String,
    /// Where: an existing directory
    pub(crate) mountpoint: PathBuf,
    /// Mount options, see below
    #[arg(short = 'o', value_name = "OPT[,OPT..]")]
    pub(crate) options: Vec<String>,
    /// Stay in the foreground; Ctrl-C unmounts
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Check the options only: mount(8)'s -f.
    #[arg(skip)]
    pub(crate) check_only: bool,
    /// A parent process waits on stdout.
    #[arg(long, hide = true)]
    pub(crate) ready_on_stdout: bool,
}

fn after_help() -> String {
    let width = KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let options = KEYS.iter().map(|(key, words)| format!("  {key:<width$}  {words}\n"));
    format!("Mount options:\n{}\n{EXAMPLES}", options.collect::<String>())
}

const EXAMPLES: &str = "\
Examples:
  segue mount 'segue://server:7420/home?invite=..&ca=..' ~/home     the first time
  segue mount segue://server/home ~/home
  ssh server segue invite | segue mount - ~/home                    no invite in the shell's history
  segue mount segue://server/home ~/home -o allow-other,write-back=close
  mount -t segue segue://server/home /mnt -o ro                     as root

A line of /etc/fstab:
  segue://server/home  /home/shared  segue  _netdev,nofail,allow-other  0 0";

/// Mounts in the background or, as that background process, serves the mount.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let options = context.config.mount_options(&arguments.options)?;
    let url = read_url(&arguments.url)?;
    let parsed = MountUrl::from_str(&url).map_err(|error| Failure::usage(error.to_string()))?;
    let mountpoint = prepare_mountpoint(&arguments.mountpoint, context)?;
    if arguments.check_only {
        return Ok(Exit::Done);
    }
    context.places.make_runtime_dir()?;
    if arguments.foreground {
        ends_with_panic();
        return block_on_daemon(serve(parsed, mountpoint, options, context));
    }
    let again = arguments_of_child(arguments, &url, &mountpoint);
    context.launch(again, Some(&url), &log_name(&mountpoint))
}

/// The child's command line. A URL that holds an invite goes over stdin: command lines are
/// for everyone to read.
fn arguments_of_child(arguments: &Arguments, url: &str, mountpoint: &Path) -> Vec<OsString> {
    let shown = if url.contains('?') { "-" } else { url };
    let mut again: Vec<OsString> =
        vec!["mount".into(), "--foreground".into(), daemon::READY_FLAG.into()];
    for list in &arguments.options {
        again.extend(["-o".into(), list.into()]);
    }
    again.extend(["--".into(), shown.into(), mountpoint.into()]);
    again
}

fn read_url(argument: &str) -> Result<String, Failure> {
    if argument != "-" {
        return Ok(argument.to_owned());
    }
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::io("cannot read the URL from stdin", &error))?;
    Ok(line.trim().to_owned())
}

fn log_name(mountpoint: &Path) -> String {
    let socket = socket_path(Path::new(""), mountpoint);
    let digest = socket.file_stem().unwrap_or_default().to_string_lossy();
    format!("mount-{digest}")
}

async fn serve(
    url: MountUrl,
    mountpoint: PathBuf,
    options: MountOptions,
    context: &Context,
) -> Outcome {
    let mut signals =
        StopSignals::catch().map_err(|error| Failure::io("cannot catch signals", &error))?;
    let (abandon, abandoned) = tokio::sync::oneshot::channel();
    let announcer = context.announcer;
    let ready = move |ready: Ready| {
        tracing::info!("{}", ready.words);
        if let Err(error) = announcer.ready(&ready.words) {
            tracing::warn!("nobody waits for this mount any more, unmounting: {error}");
            let _ = abandon.send(());
        }
    };
    let stop = async move {
        tokio::select! {
            () = signals.wait() => {}
            Ok(()) = abandoned => {}
        }
    };
    let paths = context.places.paths.clone();
    let plan = MountPlan { url, mountpoint, options, paths, host: host_name() };
    segue_client::mount(plan, |words| announcer.progress(words), ready, stop)
        .await
        .map_err(|error| Failure::new(Exit::from_code(error.exit_code()), error.to_string()))?;
    Ok(Exit::Done)
}

/// The name by which the server lists this host, and which conflict copies carry.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The mountpoint without symbolic links. It must be a directory with no Segue mount on it;
/// one that lost its process is cleared away. What lies in the directory is hidden while the
/// volume is mounted, as with every file system.
fn prepare_mountpoint(path: &Path, context: &Context) -> Result<PathBuf, Failure> {
    if let Ok(mount) = control::at(&mounts::list()?, path) {
        clear_if_dead(&mount, context)?;
    }
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let words = format!("{shown}: no such directory: make it first (mkdir {shown})");
            Failure::new(Exit::NotFound, words)
        }
        _ => Failure::io(&shown, &error),
    })?;
    if !meta.is_dir() {
        return Err(Failure::failed(format!("{shown}: not a directory")));
    }
    path.canonicalize().map_err(|error| Failure::io(&shown, &error))
}

fn clear_if_dead(mount: &Mount, context: &Context) -> Result<(), Failure> {
    let mountpoint = mount.mountpoint.display();
    let is_served = block_on(async { Ok(control::connect(&context.places, mount).await.is_ok()) })?;
    if is_served || !mounts::is_dead(&mount.mountpoint) {
        return Err(Failure::failed(format!(
            "{mountpoint}: {} is mounted there already ('segue umount {mountpoint}' unmounts it)",
            mount.source
        )));
    }
    output::note(&format!("{mountpoint}: the mount there had lost its process; replacing it"));
    mounts::detach(&mount.mountpoint)
}
