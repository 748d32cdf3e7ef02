//! `segue volume`: the volumes of a server.

use clap::Subcommand;
use segue_client::quantity;
use segue_server::admin::{AdminReply, AdminRequest, DirectoryInfo, Limit, VolumeInfo};
use serde_json::json;

use super::{Context, ServerData, backup, check, delete, repair, restore};
use crate::exit::{Exit, Outcome};
use crate::{admin, output};

/// Create, list, limit, check, repair, back up, restore and delete the volumes of a server
///
/// Volumes are separate trees and are mounted separately. A new server has the volume 'home'.
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
  segue volume set photos --quota 200G
  segue volume check photos          every reference and every byte, while the server runs
  segue volume backup photos /mnt/usb/photos
  segue volume restore photos /mnt/usb/photos
  segue invite --volume photos";

#[derive(Debug, Subcommand)]
enum Action {
    /// Create an empty volume
    Create {
        /// Name of the volume
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
        /// Name of the volume
        name: String,
        #[command(flatten)]
        options: Options,
    },
    /// Set the quota of a volume or of a directory tree in it
    ///
    /// A call that would exceed a quota fails with EDQUOT. df shows the quota of a volume as its
    /// size. A file with one name can move between directories with different quotas. mv copies a
    /// directory, or a file with several names, between them.
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Name of the volume
        name: String,
        /// Most bytes: 500M, 20G, .., or none
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        #[arg(required_unless_present = "inodes")]
        quota: Option<Limit>,
        /// Most files and directories, or none
        #[arg(long, value_name = "N", value_parser = parse_count)]
        inodes: Option<Limit>,
        /// Directory of the quota, as a path from the volume's root [default: the whole volume]
        #[arg(long, value_name = "PATH")]
        dir: Option<String>,
        #[command(flatten)]
        options: Options,
    },
    Check(check::Arguments),
    Backup(backup::Arguments),
    Restore(restore::Arguments),
    Repair(repair::Arguments),
    Delete(delete::Arguments),
}

const SET_EXAMPLES: &str = "\
Examples:
  segue volume set home --quota 200G
  segue volume set home --dir /projects/x --quota 10G --inodes 100000
  segue volume set home --dir /projects/x --quota none --inodes none";

fn parse_size(text: &str) -> Result<Limit, String> {
    if text == "none" { Ok(Limit::None) } else { quantity::parse_size(text).map(Limit::At) }
}

fn parse_count(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit::None),
        _ => text.parse().map(Limit::At).map_err(|_| "neither a number nor none".to_owned()),
    }
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Print JSON
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
        Action::Set { name, quota, inodes, dir, options } => {
            let (name, dir) = (name.clone(), dir.clone());
            (AdminRequest::VolumeSet { name, dir, bytes: *quota, inodes: *inodes }, options)
        }
        Action::Check(arguments) => return check::run(arguments, context),
        Action::Backup(arguments) => return backup::run(arguments, context),
        Action::Restore(arguments) => return restore::run(arguments, context),
        Action::Repair(arguments) => return repair::run(arguments, context),
        Action::Delete(arguments) => return delete::run(arguments, context),
    };
    let data = options.server.resolve(context)?;
    match admin::ask(&data, request)? {
        AdminReply::Volume(volume) if options.json => output::print_json(&volume)?,
        AdminReply::Volumes { volumes } if options.json => {
            output::print_json(&json!({ "volumes": volumes }))?;
        }
        AdminReply::Volume(volume) => {
            let more = arrivals(&volume) + &directories(&volume);
            output::print(&(describe(&[volume]) + &more))?;
        }
        AdminReply::Volumes { volumes } => output::print(&describe(&volumes))?,
        _ => return Err(admin::unexpected(&data)),
    }
    Ok(Exit::Done)
}

fn describe(volumes: &[VolumeInfo]) -> String {
    let row = |volume: &VolumeInfo| {
        if let Some(words) = &volume.damaged {
            let name = volume.name.clone();
            let unknown = std::iter::repeat_n("?".to_owned(), 5);
            return [name].into_iter().chain(unknown).chain([words.clone()]).collect();
        }
        let size = quantity::bytes(volume.allocated_bytes);
        let limits = limits(volume.quota_bytes, volume.quota_inodes);
        let (backup, check) = (output::ago(volume.backed_up), output::ago(volume.checked));
        let (name, inodes) = (volume.name.clone(), volume.inodes.to_string());
        vec![name, inodes, size, limits, backup, check, volume.uuid.clone()]
    };
    let rows: Vec<Vec<String>> = volumes.iter().map(row).collect();
    output::table(&["NAME", "FILES", "SIZE", "LIMITS", "BACKUP", "CHECK", "UUID"], &rows)
}

/// The text about uploaded data that are in no file yet; empty if there are none.
fn arrivals(volume: &VolumeInfo) -> String {
    match volume.arrived_bytes {
        0 => String::new(),
        bytes => format!("\n{} uploaded that are in no file yet\n", quantity::bytes(bytes)),
    }
}

/// The table of the directories with quotas; empty if there are none.
fn directories(volume: &VolumeInfo) -> String {
    if volume.directories.is_empty() {
        return String::new();
    }
    let row = |directory: &DirectoryInfo| {
        let size = quantity::bytes(directory.allocated_bytes);
        let limits = limits(directory.quota_bytes, directory.quota_inodes);
        vec![directory.path.clone(), directory.inodes.to_string(), size, limits]
    };
    let rows: Vec<Vec<String>> = volume.directories.iter().map(row).collect();
    format!("\n{}", output::table(&["DIRECTORY", "FILES", "SIZE", "LIMITS"], &rows))
}

/// `10.0 GiB, 5000 files`.
fn limits(bytes: Option<u64>, inodes: Option<u64>) -> String {
    let bytes = bytes.map(quantity::bytes);
    let inodes = inodes.map(|count| quantity::count(count, "file"));
    let limits: Vec<String> = bytes.into_iter().chain(inodes).collect();
    if limits.is_empty() { "none".to_owned() } else { limits.join(", ") }
}
