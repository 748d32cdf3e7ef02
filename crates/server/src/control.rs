//! The control socket: HTTP and JSON over a Unix socket, for `segue` on the same machine.
//!
//! ```text
//!   POST /v1/admin      AdminRequest in, AdminReply out
//!   POST /v1/check      CheckRequest in, CheckLines out, one a line, as they come
//!   POST /v1/backup     BackupRequest in, BackupLines out
//!   POST /v1/restore    RestoreRequest in, RestoreLines out
//!   GET  /v1/metrics    OpenMetrics text, for Prometheus
//!   POST /v1/shutdown   the server stops
//! ```
//!
//! Who may open the socket may do everything: it has mode 0600 in a directory with mode 0700.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use segue_rpc::CloseCode;
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admin::{self, AdminReply, AdminRequest, FailReason};
use crate::backup::{BackupLine, BackupRequest, backup_live};
use crate::check::{CheckLine, CheckRequest, check_live};
use crate::error::ServeError;
use crate::restore::{RestoreLine, RestoreRequest, restore_live};
use crate::serve::Server;
use crate::{metrics, session};

/// How long a stop waits for requests under way: none takes long.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the metrics are, for who scrapes them.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Lines of an answer that wait for their reader.
const LINES: usize = 16;

/// Where the control socket of the server on `data` is while it runs.
pub fn socket_path(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// A control socket that is served.
pub(crate) struct Control {
    path: PathBuf,
    task: JoinHandle<()>,
    over: Arc<Notify>,
}

impl Control {
    /// Ends the socket, after requests that are under way.
    pub(crate) async fn stop(self) {
        self.over.notify_one();
        let mut task = self.task;
        if timeout(PATIENCE, &mut task).await.is_err() {
            task.abort();
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Serves the control socket.
pub(crate) fn start(server: Arc<Server>) -> Result<Control, ServeError> {
    let path = socket_path(server.data.path());
    let listener = listen(&path).map_err(|error| ServeError::data(&path, error))?;
    let router = Router::new()
        .route("/v1/admin", post(administrate))
        .route("/v1/check", post(check))
        .route("/v1/backup", post(backup))
        .route("/v1/restore", post(restore))
        .route("/v1/metrics", get(measured))
        .route("/v1/shutdown", post(shutdown));
    #[cfg(debug_assertions)]
    let router = router.route("/v1/lose-link", post(lose_link));
    let router = router.with_state(server);
    let over = Arc::new(Notify::new());
    let told = over.clone();
    let task = tokio::spawn(async move {
        let serving = axum::serve(listener, router);
        let until = async move { told.notified().await };
        if let Err(error) = serving.with_graceful_shutdown(until).await {
            tracing::error!("the control socket failed: {error}");
        }
    });
    Ok(Control { path, task, over })
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    // This process holds the directory, so a socket that is there is a dead server's.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// For tests: connections from a host whose link was cut are lost without 20 seconds of silence.
#[cfg(debug_assertions)]
async fn lose_link(
    State(server): State<Arc<Server>>,
    Json(address): Json<std::net::IpAddr>,
) -> Json<()> {
    server.sessions.lose(address);
    Json(())
}

async fn administrate(
    State(server): State<Arc<Server>>,
    Json(request): Json<AdminRequest>,
) -> Json<AdminReply> {
    let work = tokio::task::spawn_blocking(move || {
        let reply = admin::execute(&server.data, Some(&server), request);
        let expel = |fingerprint: &str, words| {
            server.sessions.expel(fingerprint, CloseCode::Denied, words);
        };
        match &reply {
            AdminReply::Revoked { fingerprint, .. } => expel(fingerprint, session::REVOKED),
            AdminReply::Deleted { identities, .. } => {
                identities.iter().for_each(|identity| expel(identity, session::DELETED));
            }
            _ => {}
        }
        reply
    });
    Json(work.await.unwrap_or_else(|error| {
        admin::failed(FailReason::Io, format!("internal error of the server: {error}"))
    }))
}

async fn check(State(server): State<Arc<Server>>, Json(request): Json<CheckRequest>) -> Response {
    let failed = |words| CheckLine::Failed { reason: FailReason::Io, words };
    work("check", server, failed, move |server, tell| check_live(server, &request, tell))
}

async fn backup(State(server): State<Arc<Server>>, Json(request): Json<BackupRequest>) -> Response {
    let failed = |words| BackupLine::Failed { reason: FailReason::Io, words };
    work("backup", server, failed, move |server, tell| backup_live(server, &request, tell))
}

async fn restore(
    State(server): State<Arc<Server>>,
    Json(request): Json<RestoreRequest>,
) -> Response {
    let failed = |words| RestoreLine::Failed { reason: FailReason::Io, words };
    work("restore", server, failed, move |server, tell| restore_live(server, &request, tell))
}

/// Does long work on a thread of its own, which may take a day and sleeps most of it; its lines
/// go out as they come. Who asked ends it by going away.
fn work<L: Serialize + Send + 'static>(
    name: &str,
    server: Arc<Server>,
    failed: impl FnOnce(String) -> L,
    work: impl FnOnce(&Arc<Server>, &mut dyn FnMut(L) -> bool) + Send + 'static,
) -> Response {
    let (tell, told) = mpsc::channel(LINES);
    let refused = tell.clone();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        work(&server, &mut |line| tell.blocking_send(line).is_ok());
        // The answer ends when nothing of the server is held any more.
        drop(server);
        drop(tell);
    });
    if let Err(error) = thread {
        refused.try_send(failed(format!("the server cannot start a thread: {error}"))).ok();
    }
    Response::new(Body::new(Lines(told)))
}

/// An answer of one line of JSON after the other.
struct Lines<L>(mpsc::Receiver<L>);

impl<L: Serialize> axum::body::HttpBody for Lines<L> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, io::Error>>> {
        self.0.poll_recv(context).map(|line| {
            let mut line = serde_json::to_vec(&line?).map_err(io::Error::other);
            line.iter_mut().for_each(|line| line.push(b'\n'));
            Some(line.map(|line| http_body::Frame::data(line.into())))
        })
    }
}

async fn measured(State(server): State<Arc<Server>>) -> impl IntoResponse {
    let text = tokio::task::spawn_blocking(move || metrics::text(&server)).await;
    ([(CONTENT_TYPE, OPEN_METRICS)], text.unwrap_or_default())
}

async fn shutdown(State(server): State<Arc<Server>>) -> Json<serde_json::Value> {
    server.shutdown.notify_one();
    Json(serde_json::json!({}))
}
