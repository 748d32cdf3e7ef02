//! `segue-bench`: runs workloads on Segue and on other file systems, side by side.
//!
//! Each subcommand is one file in `commands`.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use segue_bench::transport::speed;

use crate::commands::{
    fuse_floor, index, join, list, mirror, run, transport_drive, transport_serve,
};

/// Measures Segue and its peers on links of any quality, in network namespaces of its own.
#[derive(Parser)]
#[command(name = "segue-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the workloads, the file systems and the experiments.
    List,
    Run(run::Arguments),
    Join(join::Arguments),
    Index(index::Arguments),
    #[command(hide = true)]
    FuseFloor(fuse_floor::Arguments),
    #[command(hide = true)]
    Mirror(mirror::Arguments),
    /// The server of `atp-latency`.
    #[command(hide = true)]
    TransportServe(segue_bench::transport::Serve),
    /// The client of `atp-latency`: prints its measurements as JSON.
    #[command(hide = true)]
    TransportDrive(segue_bench::transport::Drive),
    /// One end of `rpc-speed`.
    #[command(hide = true, subcommand)]
    Speed(speed::End),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::List => {
            list::run();
            Ok(())
        }
        Command::Run(arguments) => run::run(&arguments),
        Command::Join(arguments) => join::run(&arguments),
        Command::Index(arguments) => index::run(&arguments),
        Command::FuseFloor(arguments) => fuse_floor::run(&arguments),
        Command::Mirror(arguments) => mirror::run(arguments),
        Command::TransportServe(options) => transport_serve::run(&options),
        Command::TransportDrive(options) => transport_drive::run(&options),
        Command::Speed(end) => end.act().map_err(|error| error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("segue-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
