//! `segue watch`: prints changes as they reach the server.

use std::path::PathBuf;

use segue_client::replies::{AnyPath, WatchEvent, WatchLine, WatchRequest};

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::{control, mounts, output};

/// Print the changes of all hosts below a directory as they reach the server
///
/// The command prints one JSON object a line until Ctrl-C. The field "event" is one of:
///
/// "watching": every later change is reported.
///
/// "named": an object got a name: it was created, renamed or linked.
///
/// "changed": the contents or attributes of an object changed.
///
/// "gone": a name was removed.
///
/// "offline" and "online": the server became unreachable, and reachable again. After "online" come
/// the changes made meanwhile, each name once with its present state.
///
/// "unknown": not all of these changes are known; any object may have changed.
///
/// A line about a change has "path", and the "kind", "inode" and "size" of an existing object. If
/// another host's change became a conflict copy, "conflict_of" names the file beside the copy. The
/// change is readable on this host when its line is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Directory on a Segue mount
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  segue watch ~/home/project
  segue watch . | jq -r --unbuffered 'select(.event == \"changed\").path'
  segue watch src | while read -r line; do make; done";

/// Prints until stdout has no reader, or until the mount ends the answer.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let real = arguments.path.canonicalize();
    let real = real.map_err(|error| Failure::io(arguments.path.display(), &error))?;
    if !real.is_dir() {
        let path = arguments.path.display();
        return Err(Failure::failed(format!("{path}: not a directory; watch its parent")));
    }
    let (mount, inside) = control::holding(&mounts::list()?, &real)?;
    let request = WatchRequest { path: AnyPath::from(&*inside) };
    let unanswered = |error: HttpError| control::unanswered(&mount, &error);
    let (mut ended, mut printed, mut is_read) = (None, Ok(()), true);
    block_on(async {
        let connection = control::reach(&context.places, &mount).await?;
        let on_line = |line: WatchLine| match line.event {
            WatchEvent::Ended => ended = Some(line.reason),
            _ if printed.is_ok() => printed = output::print_json(&line),
            _ => {}
        };
        let asking = connection.post_lines("/v1/watch", &request, on_line);
        tokio::select! {
            ended = asking => match ended {
                // Its process ended in the middle of the answer.
                Err(HttpError::Broken(_)) if !mounts::list()?.contains(&mount) => Ok(()),
                ended => ended.map_err(unanswered),
            },
            () = output::reader_gone() => {
                is_read = false;
                Ok(())
            }
        }
    })?;
    let path = arguments.path.display();
    printed?;
    match ended {
        Some(reason) => return Err(Failure::failed(format!("{path}: {reason}"))),
        None if is_read => output::note(&format!("{path}: not mounted any more")),
        None => {}
    }
    Ok(Exit::Done)
}
