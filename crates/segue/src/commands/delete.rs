//! `segue volume delete`: deletes a volume with all its data.

use std::io::{self, BufRead, IsTerminal, Write};

use segue_client::quantity;
use segue_server::admin::{AdminReply, AdminRequest, VolumeInfo};

use super::{Context, ServerData};
use crate::exit::{Exit, Failure, Outcome};
use crate::{admin, output};

/// Delete a volume with all its data and the access of every host
///
/// Mounts of the volume end. Unsent changes of hosts stay in their cache directories. The server
/// frees the space in the background. The only volume of a server cannot be deleted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of the volume
    name: String,
    /// Do not ask for a confirmation
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

const EXAMPLES: &str = "\
Examples:
  segue volume backup old /mnt/usb/old && segue volume delete old
  segue volume delete old --yes";

/// Deletes the volume after the user has typed its name again.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context)?;
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
            "{}: deleted; {} lost access\n",
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
        let words = format!(
            "volume '{name}' is not deleted: stdin is no terminal for the confirmation; use --yes"
        );
        return Err(Failure::usage(words));
    }
    let (inodes, bytes) =
        (quantity::count(volume.inodes, "inode"), quantity::bytes(volume.allocated_bytes));
    // If stderr fails, the user sees no question and types no name.
    let _ = write!(
        io::stderr(),
        "this deletes volume '{name}' with {inodes} and {bytes} for good; type its name: "
    );
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    read.map_err(|error| Failure::io("cannot read the confirmation from stdin", &error))?;
    match typed.trim() == name {
        true => Ok(()),
        false => {
            let words = format!("nothing was deleted: the typed name is not '{name}'");
            Err(Failure::failed(words))
        }
    }
}
