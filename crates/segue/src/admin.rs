//! Requests to a server of this host: over its control socket while it runs, directly on its data
//! directory while it is stopped.

use std::path::Path;

use segue_server::ServeError;
use segue_server::admin::{self, AdminReply, AdminRequest, FailReason};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::block_on;
use crate::exit::{Exit, Failure};
use crate::http::{self, HttpError};

/// Executes `request` on the server whose data directory is `data`.
pub(crate) fn ask(data: &Path, request: AdminRequest) -> Result<AdminReply, Failure> {
    let socket = segue_server::socket_path(data);
    let through_socket = block_on(async {
        match http::connect(&socket).await {
            Ok(connection) => connection.post("/v1/admin", &request).await.map(Some),
            Err(HttpError::NobodyThere) => Ok(None),
            Err(error) => Err(error),
        }
        .map_err(|error| unreachable_server(data, &error))
    })?;
    let reply = match through_socket {
        Some(reply) => reply,
        None => admin::execute_offline(data, request).map_err(not_served)?,
    };
    match reply {
        AdminReply::Failed { reason, words } => Err(failed(reason, words)),
        reply => Ok(reply),
    }
}

/// Runs a long task for the data directory `data`: in its server, by the route `path`, or by
/// `offline` if the server is stopped. Each line of the answer goes to `on_line`.
pub(crate) fn work<R: Serialize, L: DeserializeOwned>(
    data: &Path,
    (path, offline): (&str, Offline<R, L>),
    request: &R,
    mut on_line: impl FnMut(L),
) -> Result<(), Failure> {
    let socket = segue_server::socket_path(data);
    let is_up = block_on(async {
        match http::connect(&socket).await {
            Ok(connection) => {
                connection.post_lines(path, request, &mut on_line).await.map(|()| true)
            }
            Err(HttpError::NobodyThere) => Ok(false),
            Err(error) => Err(error),
        }
        .map_err(|error| unreachable_server(data, &error))
    })?;
    if is_up { Ok(()) } else { self::offline(data, offline, request, on_line) }
}

/// Runs a long task on a data directory whose server is stopped.
pub(crate) fn offline<R, L>(
    data: &Path,
    offline: Offline<R, L>,
    request: &R,
    mut on_line: impl FnMut(L),
) -> Result<(), Failure> {
    let mut tell = |line| {
        on_line(line);
        true
    };
    offline(data, request, &mut tell).map_err(not_served)
}

/// A long task on a data directory whose server is stopped.
pub(crate) type Offline<R, L> = fn(&Path, &R, &mut dyn FnMut(L) -> bool) -> Result<(), ServeError>;

pub(crate) fn not_served(error: ServeError) -> Failure {
    Failure::new(Exit::from_code(error.exit_code()), error.to_string())
}

/// Fails if `data` is not a server's data directory.
pub(crate) fn require_data(data: &Path) -> Result<(), Failure> {
    if data.join("VERSION").exists() {
        return Ok(());
    }
    let words = format!(
        "{}: not a server's data directory; start a server with 'segue serve', or name its data \
         directory with --data",
        data.display()
    );
    Err(Failure::new(Exit::NotFound, words))
}

/// The failure for a server that runs but does not answer.
pub(crate) fn unreachable_server(data: &Path, error: &HttpError) -> Failure {
    let exit = match error {
        HttpError::NotPermitted => Exit::NotPermitted,
        _ => Exit::Failed,
    };
    let words = format!("cannot query the server with data directory {}: {error}", data.display());
    Failure::new(exit, words)
}

/// The failure for an answer of another kind than the request's.
pub(crate) fn unexpected(data: &Path) -> Failure {
    Failure::failed(format!(
        "the server with data directory {} sent an answer of an unexpected kind; compare its \
         version with that of this program: segue --version",
        data.display()
    ))
}

/// The failure for a request that the server did not carry out.
pub(crate) fn failed(reason: FailReason, words: String) -> Failure {
    let exit = match reason {
        FailReason::NotFound => Exit::NotFound,
        FailReason::Invalid => Exit::Usage,
        FailReason::Damaged => Exit::DataAtRisk,
        FailReason::Exists | FailReason::Io => Exit::Failed,
    };
    Failure::new(exit, words)
}
