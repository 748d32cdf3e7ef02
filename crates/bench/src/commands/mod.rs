//! One file for each subcommand: its arguments, its help, and its work.

mod experiments;
pub(crate) mod fuse_floor;
pub(crate) mod index;
pub(crate) mod join;
pub(crate) mod list;
pub(crate) mod mirror;
pub(crate) mod run;
pub(crate) mod transport_drive;
pub(crate) mod transport_serve;

/// Done, or the reason for which it failed.
pub(crate) type Outcome = Result<(), String>;

/// An error as its message.
fn text(error: impl ToString) -> String {
    error.to_string()
}
