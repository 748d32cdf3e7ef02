//! `segue mount`: mounts a volume on a directory; a process of its own serves the mount.

use std::ffi::OsString;
use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use segue_client::options::KEYS;
use segue_client::paths::socket_path;
use segue_client::{MountOptions, MountPlan, MountUrl, Ready};

use super::{Context, block_on, block_on_daemon, guard, remount, status};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::mounts::Mount;
use crate::process::abort_on_panic;
use crate::signals::StopSignals;
use crate::{control, daemon, mounts, output};

/// Characters of a directory in the name of a log.
const LOG_NAME_MAX: usize = 80;

/// Mount a volume on a directory
///
/// The command returns once the mount is usable. For the first mount, URL is the invite that
/// 'segue invite' printed on the server; it enrols this host. For later mounts,
/// segue://HOST[:PORT]/VOLUME is enough. Pending changes of an earlier mount are sent first.
///
/// Every option can also be set in ~/.config/segue/config.toml (write-back = "close") or in the
/// environment (SEGUE_WRITE_BACK=close). The precedence is: flag, environment, file, default.
#[derive(Debug, clap::Args)]
#[command(after_help = after_help())]
pub(crate) struct Arguments {
    /// Volume to mount: segue://HOST[:PORT]/VOLUME or an invite; - reads the URL from stdin
    pub(crate) url: String,
    /// Existing directory to mount it on
    pub(crate) mountpoint: PathBuf,
    /// Mount options, listed below
    #[arg(short = 'o', value_name = "OPT[,OPT..]")]
    pub(crate) options: Vec<String>,
    /// Stay in the foreground; Ctrl-C unmounts
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Print the mount as JSON, as 'segue status' does
    #[arg(long, conflicts_with = "foreground")]
    pub(crate) json: bool,
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
  segue mount 'segue://server:7420/home?invite=..&ca=..' ~/home     the first mount
  segue mount segue://server/home ~/home                            later mounts
  ssh server segue invite | segue mount - ~/home                    no invite in the shell's history
  segue mount segue://server/home ~/home -o allow-other,write-back=close
  mount -t segue segue://server/home /mnt -o ro                     as root
  mount /mnt -o remount,ro                                          as root; then remount,rw

A line of /etc/fstab:
  segue://server/home  /home/shared  segue  _netdev,nofail,allow-other  0 0";

/// Mounts in the background or, as that background process, serves the mount.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    if remount::is_asked(&arguments.options) {
        remount::run(&arguments.mountpoint, &arguments.options)?;
        return report(None, &arguments.mountpoint, arguments.json, context);
    }
    let options = context.config.mount_options(&arguments.options)?;
    let url = read_url(&arguments.url)?;
    let parsed = MountUrl::from_str(&url).map_err(|error| Failure::usage(error.to_string()))?;
    let mountpoint = prepare_mountpoint(&arguments.mountpoint, options.nonempty, context)?;
    if arguments.check_only {
        return Ok(Exit::Done);
    }
    context.places.make_runtime_dir()?;
    if arguments.foreground {
        abort_on_panic();
        return block_on_daemon(serve(parsed, mountpoint, options, context));
    }
    let again = arguments_of_child(arguments, &url, &mountpoint);
    let words = context.launch(again, Some(&url), &log_name(parsed.volume(), &mountpoint))?;
    report(Some(&words), &mountpoint, arguments.json, context)
}

/// Tells what is mounted at `mountpoint` now: in words, if there are some, or as JSON.
fn report(words: Option<&str>, mountpoint: &Path, json: bool, context: &Context) -> Outcome {
    match words {
        _ if json => {
            let mount = control::at(&mounts::list()?, mountpoint)?;
            output::print_json(&block_on(status::status_of(&mount, context))?)?;
        }
        Some(words) => output::print(&format!("{}\n", output::printable(words, &[])))?,
        None => {}
    }
    Ok(Exit::Done)
}

/// The child's command line. An invite goes over stdin, because every user can read command lines.
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

/// `mount-home-home-ada-work-1a2b3c4d`: the volume, the directory, and digits that no other
/// directory's log has.
fn log_name(volume: &str, mountpoint: &Path) -> String {
    let socket = socket_path(Path::new(""), mountpoint);
    let digest = socket.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    let place = mountpoint.to_string_lossy();
    let place: String = place.chars().map(plain).take(LOG_NAME_MAX).collect();
    format!("mount-{volume}{place}-{}", digest.get(..8).unwrap_or(&digest))
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
    let place = mountpoint.clone();
    let ready = move |ready: Ready| {
        if announcer.detached {
            tracing::info!("{}", ready.words);
        }
        start_guard(&place);
        if let Err(error) = announcer.ready(&ready.words) {
            tracing::warn!("the process that started this mount has ended, unmounting: {error}");
            let _ = abandon.send(());
        }
    };
    let stop = async move {
        tokio::select! {
            () = signals.wait() => announcer.stopping(),
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

/// Starts the guard of the mount at `place`. Without it the mount works nonetheless.
fn start_guard(place: &Path) {
    let started = match mounts::list().map(|all| mounts::at(&all, place)) {
        Ok(Some(mount)) => guard::start(&mount).map_err(|error| error.to_string()),
        Ok(None) => Err("it is not in the table of mounts".into()),
        Err(failure) => Err(failure.to_string()),
    };
    if let Err(why) = started {
        tracing::warn!("cannot start a guard, so calls may hang if this mount is killed: {why}");
    }
}

/// The name of this host in the server's list and in the names of conflict copies.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The mountpoint without symbolic links. It must be a directory without a Segue mount; a mount
/// whose process has ended is detached first. The mount would hide files in the directory, so there
/// may be some only with the option `nonempty`.
fn prepare_mountpoint(path: &Path, nonempty: bool, context: &Context) -> Result<PathBuf, Failure> {
    if let Ok(mount) = control::at(&mounts::list()?, path) {
        clear_if_dead(&mount, context)?;
    }
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let words = format!("{shown}: no such directory; create it first: mkdir {shown}");
            Failure::new(Exit::NotFound, words)
        }
        _ => Failure::io(&shown, &error),
    })?;
    if !meta.is_dir() {
        return Err(Failure::failed(format!("{shown}: not a directory")));
    }
    // Of a directory that cannot be read this is not known.
    let has_files = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if has_files && !nonempty {
        return Err(Failure::failed(format!(
            "{shown}: the directory is not empty, and a mount hides what is in it; use an empty \
             directory, or mount with -o nonempty"
        )));
    }
    path.canonicalize().map_err(|error| Failure::io(&shown, &error))
}

fn clear_if_dead(mount: &Mount, context: &Context) -> Result<(), Failure> {
    let mountpoint = mount.mountpoint.display();
    let reached = block_on(async { Ok(control::connect(&context.places, mount).await.map(drop)) })?;
    let is_dead = match reached {
        Ok(()) => false,
        Err(HttpError::Killed) => true,
        Err(_) => mounts::is_dead(&mount.mountpoint),
    };
    if !is_dead {
        return Err(Failure::failed(format!(
            "{mountpoint}: {} is already mounted here; unmount it first: segue umount {mountpoint}",
            mount.source
        )));
    }
    output::note(&format!("{mountpoint}: replacing a mount whose process has ended"));
    mounts::detach(mount)
}
