//! `segue volume`: a server's volumes.

use clap::Subcommand;
use segue_server::admin::{AdminReply, AdminRequest, VolumeInfo};
use serde_json::json;

use super::{Context, ServerData, check};
use crate::exit::{Exit, Outcome};
use crate::{admin, output, quantity};

/// Make, list and check a server's volumes
///
/// Volumes are separate trees, mounted separately. Every server has the volume 'home'.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  segue volume create photos
  segue volume list
  segue volume show photos --json
  segue volume check photos          every reference, every byte, while it serves
  segue invite --volume photos";

#[derive(Debug, Subcommand)]
enum Action {
    /// Make an empty volume
    Create {
        /// Its name
        name: String,
        #[command(flatten)]
        options: Options,
    },
    /// List the volumes
    List {
        #[command(flatten)]
        options: Options,
    },
    /// Show one volume
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        options: Options,
    },
    Check(check::Arguments),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Answer in JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerData,
}

/// Executes the action on a running or stopped server.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let (request, options) = match &arguments.action {
        Action::Create { name, options } => {
            (AdminRequest::VolumeCreate { name: name.clone() }, options)
        }
        Action::List { options } => (AdminRequest::VolumeList, options),
        Action::Show { name, options } => {
            (AdminRequest::VolumeShow { name: name.clone() }, options)
        }
        Action::Check(arguments) => return check::run(arguments, context),
    };
    let data = options.server.resolve(context);
    match admin::ask(&data, request)? {
        AdminReply::Volume(volume) if options.json => output::print_json(&volume)?,
        AdminReply::Volumes { volumes } if options.json => {
            output::print_json(&json!({ "volumes": volumes }))?;
        }
        AdminReply::Volume(volume) => output::print(&describe(&[volume]))?,
        AdminReply::Volumes { volumes } => output::print(&describe(&volumes))?,
        _ => return Err(admin::unexpected(&data)),
    }
    Ok(Exit::Done)
}

fn describe(volumes: &[VolumeInfo]) -> String {
    let row = |volume: &VolumeInfo| {
        if let Some(words) = &volume.damaged {
            return vec![volume.name.clone(), "?".to_owned(), "?".to_owned(), words.clone()];
        }
        let size = quantity::bytes(volume.allocated_bytes);
        vec![volume.name.clone(), volume.inodes.to_string(), size, volume.uuid.clone()]
    };
    let rows: Vec<Vec<String>> = volumes.iter().map(row).collect();
    output::table(&["NAME", "FILES", "SIZE", "UUID"], &rows)
}
