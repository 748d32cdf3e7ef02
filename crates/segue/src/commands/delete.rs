//! `segue volume delete`: a volume goes, with everything in it.

use std::io::{self, BufRead, IsTerminal, Write};

use segue_server::admin::{AdminReply, AdminRequest, VolumeInfo};

use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::{admin, output, quantity};

/// Delete a volume, with everything in it and every host's access to it
///
/// Mounts of it end. What hosts have not sent stays in their cache directories. The space returns in the background. The server's only volume is not deleted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The volume
    name: String,
    /// Do not ask for its name again
    #[arg(long)]
    yes: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue volume backup old /mnt/usb/old && segue volume delete old
  segue volume delete old --yes";

/// Deletes, once the user has typed the name again.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context);
    let name = arguments.name.clone();
    if !arguments.yes {
        match admin::ask(&data, AdminRequest::VolumeShow { name: name.clone() })? {
            AdminReply::Volume(volume) => confirm(&volume)?,
            _ => return Err(admin::unexpected(&data)),
        }
    }
    match admin::ask(&data, AdminRequest::VolumeDelete { name })? {
        AdminReply::Deleted { volume, .. } if arguments.json => output::print_json(&volume)?,
        AdminReply::Deleted { volume, identities } => output::print(&format!(
            "{}: deleted; {} may not come back\n",
            volume.name,
            quantity::count(identities.len() as u64, "host")
        ))?,
        _ => return Err(admin::unexpected(&data)),
    }
    Ok(Exit::Done)
}

fn confirm(volume: &VolumeInfo) -> Result<(), Failure> {
    let name = &volume.name;
    if !io::stdin().is_terminal() {
        let words = format!("to delete '{name}' without being asked, say so: --yes");
        return Err(Failure::usage(words));
    }
    let (inodes, bytes) =
        (quantity::count(volume.inodes, "inode"), quantity::bytes(volume.allocated_bytes));
    // Nobody who does not see the question answers it.
    let _ = write!(
        io::stderr(),
        "volume '{name}' with {inodes} and {bytes} goes for good; its name again: "
    );
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.map_err(|error| Failure::io("cannot read the answer", &error))?;
    match typed.trim() == name {
        true => Ok(()),
        false => Err(Failure::failed(format!("nothing was deleted: that is not '{name}'"))),
    }
}
