//! `segue lose-link`, in builds with debug assertions: a connection is lost at once.
//!
//! A connection over a link that was cut counts as lost after 20 silent seconds. A test that is
//! not about this silence does not wait for it.

use std::net::IpAddr;
use std::path::PathBuf;

use super::{Context, ServerData, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::{control, http, mounts};

/// Drop the connection of a mount as if it had been silent for too long, here and at the server
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    /// The address of the mount's host
    #[arg(long)]
    address: IpAddr,
    #[command(flatten)]
    server: ServerData,
}

/// Tells the mount and the server.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mount = control::at(&mounts::list()?, &arguments.mountpoint)?;
    let data = arguments.server.resolve(context)?;
    let socket = segue_server::socket_path(&data);
    block_on(async {
        let () = control::post(&context.places, &mount, "/v1/lose-link", &()).await?;
        let failed = |error| Failure::failed(format!("{}: {error}", data.display()));
        let connection = http::connect(&socket).await.map_err(failed)?;
        connection.post("/v1/lose-link", &arguments.address).await.map_err(failed)
    })
    .map(|()| Exit::Done)
}
