//! `segue persist`: how soon changes of files and directories must be with the server.

use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, removexattr, setxattr};
use rustix::io::Errno;
use segue_client::control::types::WhereFile;
use segue_client::options::Lm;
use serde_json::json;

use super::{Context, block_on, place};
use crate::exit::{Exit, Failure, Outcome};
use crate::{control, mounts, output};

/// Name of the extended attribute that says it.
const ATTRIBUTE: &str = "user.segue.persist";

/// Say how soon changes of files must be with the server
///
/// Without --lm shows what holds for each path, and what says so. A directory speaks for everything
/// below it that says nothing itself; the mount option write-back speaks for the rest. All hosts
/// go by it, for it is kept on the server, as the extended attribute user.segue.persist.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files or directories on a Segue mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// async, delay:T, log:T, close or sync; inherit: as the directory it is in
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    lm: Option<Level>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Levels:
  async      changes go as soon as the link allows; nothing waits for them
  delay:30s  what is written to a file goes when the oldest of it is so old, names go at once: files
             that are removed before, such as a compiler's, are never sent. fsync and rename send
             it at once; until then it is on this host's disk only
  log:1s     everything waits so long for company, and goes in batches
  close      close(2) waits until the server has the file, and others have heard of it
  sync       every change waits

Examples:
  segue persist ~/home/build --lm delay:30s
  segue persist ~/home/accounts --lm sync
  segue persist ~/home/accounts/scratch --lm inherit
  segue persist ~/home/build/main.o --json";

/// What a path is to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Own(Lm),
    Inherited,
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "inherit" => Ok(Level::Inherited),
        own => own.parse().map(Level::Own).map_err(|error| format!("{error}, or inherit")),
    }
}

/// Sets what is asked for, and shows what holds.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let all = mounts::list()?;
    let mut files = Vec::new();
    for path in &arguments.paths {
        let (mount, inside) = control::holding(&all, path)?;
        if let Some(level) = arguments.lm {
            set(path, level)?;
        }
        let file = block_on(place::ask(&mount, &inside, context))?;
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
        let shown = |(file, from): &(WhereFile, Option<PathBuf>)| json!({ "path": file.path, "lm": file.lm, "from": from });
        return output::print_json(
            &json!({ "files": files.iter().map(shown).collect::<Vec<_>>() }),
        )
        .map(|()| Exit::Done);
    }
    let row = |(file, from): &(WhereFile, Option<PathBuf>)| {
        let from = from.as_ref().map_or("as mounted".into(), |from| from.display().to_string());
        vec![file.lm.clone(), from, file.path.clone()]
    };
    let rows: Vec<Vec<String>> = files.iter().map(row).collect();
    output::print(&output::table(&["LEVEL", "SAID BY", "PATH"], &rows))?;
    Ok(Exit::Done)
}

fn set(path: &Path, level: Level) -> Result<(), Failure> {
    let done = match level {
        Level::Own(lm) => setxattr(path, ATTRIBUTE, lm.to_string().as_bytes(), XattrFlags::empty()),
        // It said nothing.
        Level::Inherited => match removexattr(path, ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            done => done,
        },
    };
    done.map_err(|errno| match errno {
        Errno::PERM => Failure::failed(format!(
            "{}: neither a file nor a directory, which alone can say it",
            path.display()
        )),
        errno => Failure::io(path.display(), &errno.into()),
    })
}
