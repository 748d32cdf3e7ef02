//! `segue persist`: how soon changes of files and directories must reach the server.

use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, removexattr, setxattr};
use rustix::io::Errno;
use segue_client::options::{Lm, LmError};
use segue_client::replies::WhereFile;
use serde_json::{Value, json};

use super::{Context, block_on, place};
use crate::exit::{Exit, Failure, Outcome};
use crate::{control, mounts, output};

/// The extended attribute that holds the level.
const ATTRIBUTE: &str = "user.segue.persist";

/// Show or set how soon changes of files must reach the server
///
/// Without --lm the command shows the level of each path and its origin. The level of a directory
/// holds for everything below it that has no level of its own. For the rest, the mount option
/// write-back holds. Levels are stored on the server, as the extended attribute user.segue.persist,
/// and hold on all hosts.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files or directories on a Segue mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// async, delay:T, log:T, close, sync, or inherit (the level of the parent directory)
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    lm: Option<Level>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Levels:
  async      changes are sent as soon as the link allows; no call waits for the server
  delay:30s  the data of a file are sent once the oldest unsent byte is 30 s old, or at fsync or
             rename; until then they are on this host's disk only. Files removed before that, such
             as a compiler's temporary files, are never sent. Names are sent at once
  log:1s     all changes wait up to 1 s and are sent in batches
  close      close(2) waits until the server has the file and other hosts have been told
  sync       every change waits for the server

Examples:
  segue persist ~/home/build --lm delay:30s
  segue persist ~/home/accounts --lm sync
  segue persist ~/home/accounts/scratch --lm inherit
  segue persist ~/home/build/main.o --json";

/// The level to set on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Own(Lm),
    Inherited,
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "inherit" => Ok(Level::Inherited),
        own => own.parse().map(Level::Own).map_err(|error| match error {
            LmError::Unknown(_) => format!("{error}, or inherit"),
            LmError::OutOfRange(_) => error.to_string(),
        }),
    }
}

/// Sets the level if one is given, then shows the levels.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let all = mounts::list()?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        let (mount, inside) = control::holding(&all, path)?;
        if let Some(level) = arguments.lm {
            set(path, level)?;
        }
        let file = block_on(place::ask(&mount, &inside, true, context))?;
        if file.ino == 0 {
            let words = format!("{}: {}", path.display(), file.error);
            return Err(Failure::new(Exit::NotFound, words));
        }
        let from = match file.lm_from.as_str() {
            "" => None,
            "." => Some(mount.mountpoint.clone()),
            below => Some(mount.mountpoint.join(below)),
        };
        files.push((WhereFile { path: path.display().to_string(), ..file }, from));
    }
    if arguments.json {
        let shown = |one: &(WhereFile, Option<PathBuf>)| {
            let (file, from) = one;
            json!({ "path": file.path, "lm": file.lm, "from": from })
        };
        let files: Vec<Value> = files.iter().map(shown).collect();
        return output::print_json(&json!({ "files": files })).map(|()| Exit::Done);
    }
    let row = |(file, from): &(WhereFile, Option<PathBuf>)| {
        let from = from.as_ref().map_or("mount option".into(), |from| from.display().to_string());
        vec![file.lm.clone(), from, file.path.clone()]
    };
    let rows: Vec<Vec<String>> = files.iter().map(row).collect();
    output::print(&output::table(&["LEVEL", "SET BY", "PATH"], &rows))?;
    Ok(Exit::Done)
}

fn set(path: &Path, level: Level) -> Result<(), Failure> {
    let done = match level {
        Level::Own(lm) => setxattr(path, ATTRIBUTE, lm.to_string().as_bytes(), XattrFlags::empty()),
        // A path without a level of its own already inherits.
        Level::Inherited => match removexattr(path, ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            done => done,
        },
    };
    done.map_err(|errno| match errno {
        Errno::PERM => Failure::failed(format!(
            "{}: cannot have a level: it is neither a regular file nor a directory",
            path.display()
        )),
        errno => Failure::io(path.display(), &errno.into()),
    })
}
