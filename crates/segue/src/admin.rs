//! Requests to a server of this host: over its control socket while it runs, directly on its data
//! directory while it is stopped.

use std::path::Path;
use std::time::{Duration, Instant};

use segue_server::ServeError;
use segue_server::admin::{self, AdminReply, AdminRequest, FailReason};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::commands::block_on;
use crate::exit::{Exit, Failure};
use crate::http::{self, HttpError};

/// A server has its socket within this time after it took its data directory, unless something is
/// to be repaired first.
const PATIENCE: Duration = Duration::from_secs(10);
/// So often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Executes `request` on the server whose data directory is `data`.
pub(crate) fn ask(data: &Path, request: AdminRequest) -> Result<AdminReply, Failure> {
    let socket = segue_server::socket_path(data);
    let reply = patiently(|| {
        let through_socket = block_on(async {
            match http::connect(&socket).await {
                Ok(connection) => connection.post("/v1/admin", &request).await.map(Some),
                Err(HttpError::NobodyThere) => Ok(None),
                Err(error) => Err(error),
            }
            .map_err(|error| unreachable_server(data, &error))
        });
        match through_socket.transpose() {
            Some(answered) => Ok(answered),
            None => admin::execute_offline(data, request.clone()).map(Ok),
        }
    })?;
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
    patiently(|| {
        let is_up = block_on(async {
            match http::connect(&socket).await {
                Ok(connection) => {
                    connection.post_lines(path, request, &mut on_line).await.map(|()| true)
                }
                Err(HttpError::NobodyThere) => Ok(false),
                Err(error) => Err(error),
            }
            .map_err(|error| unreachable_server(data, &error))
        });
        match is_up {
            Ok(false) => carry_out(data, offline, request, &mut on_line).map(Ok),
            Ok(true) => Ok(Ok(())),
            Err(failure) => Ok(Err(failure)),
        }
    })
}

/// Calls `attempt` again while another process has the data directory and answers nobody: a server
/// that starts, or another command.
pub(crate) fn patiently<T>(
    mut attempt: impl FnMut() -> Result<Result<T, Failure>, ServeError>,
) -> Result<T, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(ServeError::InUse { .. }) if Instant::now() < end => std::thread::sleep(LOOK),
            Err(error) => return Err(not_served(error)),
        }
    }
}

/// Runs a long task on a data directory whose server is stopped.
pub(crate) fn offline<R, L>(
    data: &Path,
    offline: Offline<R, L>,
    request: &R,
    mut on_line: impl FnMut(L),
) -> Result<(), Failure> {
    patiently(|| carry_out(data, offline, request, &mut on_line).map(Ok))
}

fn carry_out<R, L>(
    data: &Path,
    offline: Offline<R, L>,
    request: &R,
    on_line: &mut impl FnMut(L),
) -> Result<(), ServeError> {
    let mut tell = |line| {
        on_line(line);
        true
    };
    offline(data, request, &mut tell)
}

/// A long task on a data directory whose server is stopped.
pub(crate) type Offline<R, L> = fn(&Path, &R, &mut dyn FnMut(L) -> bool) -> Result<(), ServeError>;

fn not_served(error: ServeError) -> Failure {
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
