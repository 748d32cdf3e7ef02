//! `segue lose-link`, in builds with debug assertions: a connection is lost at once.
//!
//! A connection over a link that was cut counts as lost after 20 silent seconds. A test that is
//! not about this silence does not wait for it.

use std::path::PathBuf;

use super::{Context, block_on};
use crate::exit::{Exit, Outcome};
use crate::{control, mounts};

/// Drop the connection of a mount as if it had been silent for too long
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
}

/// Asks the mount.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mount = control::at(&mounts::list()?, &arguments.mountpoint)?;
    let asking = control::post(&context.places, &mount, "/v1/lose-link", &());
    let () = block_on(asking)?;
    Ok(Exit::Done)
}
