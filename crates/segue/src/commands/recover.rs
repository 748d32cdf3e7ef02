//! `segue recover`: reads the uncommitted changes of a cache directory without a mount.

use std::path::{Path, PathBuf};
use std::time::Instant;

use segue_client::bare::{LeftFile, Uncommitted, uncommitted};
use segue_client::quantity;
use serde_json::json;

use super::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Progress, Share};
use crate::pace::Pace;

/// List and extract the changes in a cache directory that are not on the server
///
/// Use this command for a volume that cannot be mounted any more: the server is lost, the identity
/// was revoked, or the disk comes from a broken laptop. The command needs no server and no mount,
/// and changes nothing in the cache directory. If the volume can be mounted, mount it instead: the
/// mount sends the pending changes.
///
/// Cache directories are in ~/.local/state/segue, one for each volume.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Cache directory of a volume
    directory: PathBuf,
    /// Extract the files to this directory; created if it does not exist
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue recover ~/.local/state/segue/0f3c..
  segue recover /mnt/old-disk/home/ann/.local/state/segue/0f3c.. --to ~/rescued";

/// Lists the changes, and extracts the files with `--to`.
pub(crate) fn run(arguments: &Arguments, _context: &Context) -> Outcome {
    let has = |name: &str| arguments.directory.join(name).exists();
    if !has("update.log") && !has("state.json") {
        let at = arguments.directory.display();
        let words = format!(
            "{at}: not the cache directory of a volume: it has no update.log and no state.json"
        );
        return Err(Failure::new(Exit::NotFound, words));
    }
    let left = uncommitted(&arguments.directory)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let (changes, files) = (left.changes(), left.files());
    if let Some(damage) = &left.damage {
        output::note(&format!("{}: {damage}", arguments.directory.display()));
    }
    let exit = if left.damage.is_some() { Exit::DataAtRisk } else { Exit::Done };
    if arguments.json {
        let damage = &left.damage;
        output::print_json(&json!({ "changes": changes, "files": files, "damage": damage }))?;
    } else if changes.is_empty() && left.damage.is_some() {
        output::print("no pending changes can be read; the damage may hide some\n")?;
    } else if changes.is_empty() {
        output::print("no pending changes: the server has everything in this directory\n")?;
    } else {
        let rows: Vec<Vec<String>> = changes
            .iter()
            .map(|change| vec![change.seq.to_string(), change.kind.clone(), change.path.clone()])
            .collect();
        output::print(&output::table(&["SEQ", "KIND", "PATH"], &rows))?;
        output::print(&describe(&files))?;
    }
    match &arguments.to {
        Some(to) => extract(&left, &files, to).map(|extracted| extracted.max(exit)),
        None => Ok(exit),
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
        "\n{} with data that the server lacks:\n{}",
        quantity::count(files.len() as u64, "file"),
        output::table(&["SIZE", "HERE", "FILE"], &rows)
    )
}

fn extract(left: &Uncommitted, files: &[LeftFile], to: &Path) -> Outcome {
    let (mut count, mut failed) = (0, 0);
    let (mut progress, mut pace) = (Progress::new(), Pace::default());
    let whole: u64 = files.iter().map(|file| file.here_bytes).sum();
    let mut done = 0;
    left.extract(to, |file, extracted| {
        done += file.here_bytes;
        let mut note = |words: &str| {
            // Removes the progress line from the terminal before other lines.
            progress = Progress::new();
            output::note(words);
        };
        match extracted {
            Err(error) => {
                failed += 1;
                note(&error.to_string());
            }
            Ok(_) => {
                count += 1;
                if file.here_bytes < file.size {
                    note(&format!(
                        "{}: only {} of {} bytes are in the cache directory; the rest reads as \
                         zeros",
                        file.path, file.here_bytes, file.size
                    ));
                }
            }
        }
        let size = format!("{} of {} extracted", quantity::bytes(done), quantity::bytes(whole));
        let rate = pace.words(Instant::now(), 0, whole.saturating_sub(done));
        progress.show(&output::joined(&size, &rate), Share { done, whole });
    });
    drop(progress);
    output::note(&format!("{} extracted to {}", quantity::count(count, "file"), to.display()));
    match failed {
        0 => Ok(Exit::Done),
        failed => {
            let files = quantity::count(failed, "file");
            Err(Failure::new(Exit::Failed, format!("{files} not extracted; see above")))
        }
    }
}
