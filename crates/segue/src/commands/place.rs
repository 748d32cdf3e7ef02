//! `segue where`: where the bytes of files are.

use std::path::{Path, PathBuf};

use segue_client::quantity;
use segue_client::replies::{AnyPath, WhereFile, WhereReply, WhereRequest};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::mounts::Mount;
use crate::{control, mounts, output};

/// Show where the bytes of files are
///
/// Shows for each file whether it has reached the server, and how many of its bytes are cached on
/// this host. A directory has reached the server if everything below it has. LEVEL is `server`,
/// `host` if some of it is on this host only, and `other` if another host has changed the file and
/// has not sent that.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files or directories on a Segue mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Show directories alone, without the files below them
    #[arg(long = "self")]
    alone: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue where ~/home/thesis.tex
  segue where ~/home/work
  segue where *.jpg --json";

/// Asks the mount of each file.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let all = mounts::list()?;
    let mut files = Vec::new();
    let mut exit = Exit::Done;
    for path in &arguments.paths {
        match locate(&all, path, arguments.alone, context) {
            Ok(file) => files.push(file),
            Err(failure) => {
                output::note(&failure.to_string());
                exit = exit.max(failure.exit);
            }
        }
    }
    if arguments.json {
        output::print_json(&json!({ "files": files }))?;
    } else if !files.is_empty() {
        output::print(&describe(&files))?;
    }
    Ok(exit)
}

fn locate(
    all: &[Mount],
    path: &Path,
    alone: bool,
    context: &Context,
) -> Result<WhereFile, Failure> {
    let (mount, inside) = control::holding(all, path)?;
    let file = block_on(ask(&mount, &inside, alone, context))?;
    match file.ino {
        0 => {
            let words = format!("{}: {}", path.display(), file.error);
            Err(Failure::new(Exit::NotFound, words))
        }
        _ => Ok(WhereFile { path: path.display().to_string(), ..file }),
    }
}

pub(super) async fn ask(
    mount: &Mount,
    inside: &Path,
    alone: bool,
    context: &Context,
) -> Result<WhereFile, Failure> {
    let request = WhereRequest { paths: vec![AnyPath::from(inside)], alone };
    let reply: WhereReply = control::post(&context.places, mount, "/v1/where", &request).await?;
    let nothing = || HttpError::Broken("the answer names no file".to_owned());
    let broken = || control::unanswered(mount, &nothing());
    reply.files.into_iter().next().ok_or_else(broken)
}

fn describe(files: &[WhereFile]) -> String {
    let mark = |is_so: bool, word: &str| if is_so { word.to_owned() } else { "-".to_owned() };
    let row = |file: &WhereFile| {
        let cached =
            format!("{} of {}", quantity::bytes(file.cached_bytes), quantity::bytes(file.size));
        let (dirty, shared) = (mark(file.dirty, "dirty"), mark(file.shared, "shared"));
        let version = file.version.clone();
        vec![file.level.clone(), cached, dirty, shared, version, file.path.clone()]
    };
    let rows: Vec<Vec<String>> = files.iter().map(row).collect();
    let mut text =
        output::table(&["LEVEL", "ON THIS HOST", "DIRTY", "SHARED", "VERSION", "PATH"], &rows);
    for WhereFile { below, path, .. } in files.iter().filter(|file| file.below.files > 0) {
        let (bytes, path) = (quantity::bytes(below.bytes), output::printable(path, &[]));
        text += &format!("{path}: {} changed below it, {bytes} on this host only\n", below.files);
    }
    text
}
