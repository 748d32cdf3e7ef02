//! `segue watch`: tell of changes as they reach the server.

use std::path::PathBuf;

use segue_client::control::types::{WatchEvent, WatchLine, WatchRequest};

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::{control, mounts, output};

/// Print each change below a directory as it reaches the server, by whichever host
///
/// One JSON object a line, until Ctrl-C. "event" is "watching" once all that follows is told; then "named" (a name was given: to something new, renamed or linked), "changed" (contents or attributes) and "gone", each with "path", and with "kind", "inode" and "size" of what is there. What a line tells of can be read on this host when it is printed. After "offline" comes "online", and then all that changed meanwhile, each name once as it is then; "unknown" says that not all of that is known, so that everything may have changed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A directory on a Segue mount
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  segue watch ~/home/project
  segue watch . | jq -r --unbuffered 'select(.event == \"changed\").path'
  segue watch src | while read -r line; do make; done";

/// Prints until there is nobody to print for, or nothing to tell.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let real = arguments.path.canonicalize();
    let real = real.map_err(|error| Failure::io(arguments.path.display(), &error))?;
    if !real.is_dir() {
        let path = arguments.path.display();
        return Err(Failure::failed(format!("{path}: not a directory; watch the one it is in")));
    }
    let (mount, inside) = control::holding(&mounts::list()?, &real)?;
    let request = WatchRequest { path: inside.to_string_lossy().into_owned() };
    let unanswered = |error: HttpError| control::unanswered(&mount, &error);
    let (mut ended, mut printed, mut is_read) = (None, Ok(()), true);
    block_on(async {
        let connection = control::reach(&context.places, &mount).await?;
        let on_line = |line: WatchLine| match line.event {
            WatchEvent::Ended => ended = Some(line.reason),
            _ if printed.is_ok() => printed = output::print_json(&line),
            _ => {}
        };
        tokio::select! {
            told = connection.post_lines("/v1/watch", &request, on_line) => told.map_err(unanswered),
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
        None if is_read => output::note(&format!("{path}: it is not mounted any more")),
        None => {}
    }
    Ok(Exit::Done)
}
