//! Asking a server about itself: through its control socket, or on its data directory while
//! it is down.

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

/// Has long work done by the server whose data directory is `data`, with its route `path`, or
/// `offline` while it is down; each line goes to `on_line`.
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

/// Has long work done on a data directory whose server is down.
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

/// The same work on a data directory whose server is down.
pub(crate) type Offline<R, L> = fn(&Path, &R, &mut dyn FnMut(L) -> bool) -> Result<(), ServeError>;

pub(crate) fn not_served(error: ServeError) -> Failure {
    Failure::new(Exit::from_code(error.exit_code()), error.to_string())
}

/// Fails if no server has ever used `data`.
pub(crate) fn require_data(data: &Path) -> Result<(), Failure> {
    if data.join("VERSION").exists() {
        return Ok(());
    }
    let words = format!(
        "{}: no server's data there: start one with 'segue serve', or name its directory with \
         --data",
        data.display()
    );
    Err(Failure::new(Exit::NotFound, words))
}

/// The words for a server that runs and cannot be asked.
pub(crate) fn unreachable_server(data: &Path, error: &HttpError) -> Failure {
    let exit = match error {
        HttpError::NotPermitted => Exit::NotPermitted,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("cannot ask the server on {}: {error}", data.display()))
}

/// The failure for an answer to another question.
pub(crate) fn unexpected(data: &Path) -> Failure {
    Failure::failed(format!(
        "the server on {} answered something else: is it another version?",
        data.display()
    ))
}

/// The failure for what a server did not do.
pub(crate) fn failed(reason: FailReason, words: String) -> Failure {
    let exit = match reason {
        FailReason::NotFound => Exit::NotFound,
        FailReason::Invalid => Exit::Usage,
        FailReason::Damaged => Exit::DataAtRisk,
        FailReason::Exists | FailReason::Io => Exit::Failed,
    };
    Failure::new(exit, words)
}
