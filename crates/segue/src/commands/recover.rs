//! `segue recover`: what a cache directory has that the server may lack, without a mount.

use std::path::{Path, PathBuf};

use segue_client::bare::{LeftFile, Uncommitted, uncommitted};
use serde_json::json;

use super::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::{output, quantity};

/// Show and extract what a cache directory has that the server does not have yet
///
/// For when a volume cannot be mounted any more: the server is gone, the identity was revoked, the
/// disk was taken out of a broken laptop. No server and no mount is needed, and nothing in the
/// directory is changed. Where the volume can be mounted, mount it: what waits is sent then.
///
/// Cache directories lie in ~/.local/state/segue, one for each volume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The cache directory of a volume
    directory: PathBuf,
    /// Write the files there, below a directory that is made
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue recover ~/.local/state/segue/0f3c..
  segue recover /mnt/old-disk/home/ann/.local/state/segue/0f3c.. --to ~/rescued";

/// Lists, and extracts if that is asked for.
pub(crate) fn run(arguments: &Arguments, _context: &Context) -> Outcome {
    if !arguments.directory.join("update.log").exists() {
        let at = arguments.directory.display();
        return Err(Failure::new(
            Exit::NotFound,
            format!("{at}: no cache directory of a volume (no update.log in it)"),
        ));
    }
    let left = uncommitted(&arguments.directory)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let (changes, files) = (left.changes(), left.files());
    if let Some(damage) = &left.damage {
        output::note(&format!("{}: update.log {damage}", arguments.directory.display()));
    }
    if arguments.json {
        let damage = &left.damage;
        output::print_json(&json!({ "changes": changes, "files": files, "damage": damage }))?;
    } else if changes.is_empty() {
        output::print("nothing is left here that the server does not have\n")?;
    } else {
        let rows: Vec<Vec<String>> = changes
            .iter()
            .map(|change| vec![change.seq.to_string(), change.kind.clone(), change.path.clone()])
            .collect();
        output::print(&output::table(&["SEQ", "KIND", "PATH"], &rows))?;
        output::print(&describe(&files))?;
    }
    match &arguments.to {
        Some(to) => extract(&left, to),
        None => Ok(Exit::Done),
    }
}

fn describe(files: &[LeftFile]) -> String {
    let row = |file: &LeftFile| {
        let here = match file.here_bytes >= file.size {
            true => "all".to_owned(),
            false => quantity::bytes(file.here_bytes),
        };
        vec![quantity::bytes(file.size), here, file.path.clone()]
    };
    let rows: Vec<Vec<String>> = files.iter().map(row).collect();
    format!(
        "\n{} files with data that are nowhere else:\n{}",
        files.len(),
        output::table(&["SIZE", "HERE", "FILE"], &rows)
    )
}

fn extract(left: &Uncommitted, to: &Path) -> Outcome {
    let mut count = 0;
    let extracted = left.extract(to, |file| {
        count += 1;
        if file.here_bytes < file.size {
            output::note(&format!(
                "{}: only {} of {} bytes are here; the rest is zeros",
                file.path, file.here_bytes, file.size
            ));
        }
    });
    extracted.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    output::note(&format!("{count} files written below {}", to.display()));
    Ok(Exit::Done)
}
