//! The control socket: HTTP and JSON over a Unix socket, for `segue` on the same machine.
//!
//! ```text
//!   POST /v1/admin      AdminRequest in, AdminReply out
//!   GET  /v1/metrics    Prometheus text
//!   POST /v1/shutdown   the server stops
//! ```
//!
//! Who may open the socket may do everything: it has mode 0600 in a directory with mode 0700.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admin::{self, AdminReply, AdminRequest, FailReason};
use crate::error::ServeError;
use crate::serve::Server;

/// How long a stop waits for requests under way: none takes long.
const PATIENCE: Duration = Duration::from_secs(5);

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
            tracing::debug!(path = %self.path.display(), %error, "the control socket stays");
        }
    }
}

/// Serves the control socket.
pub(crate) fn start(server: Arc<Server>) -> Result<Control, ServeError> {
    let path = socket_path(server.data.path());
    let listener = listen(&path).map_err(|error| ServeError::data(&path, error))?;
    let router = Router::new()
        .route("/v1/admin", post(administrate))
        .route("/v1/metrics", get(metrics))
        .route("/v1/shutdown", post(shutdown))
        .with_state(server);
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

async fn administrate(
    State(server): State<Arc<Server>>,
    Json(request): Json<AdminRequest>,
) -> Json<AdminReply> {
    let work = tokio::task::spawn_blocking(move || {
        let reply = admin::execute(&server.data, Some(&server), request);
        if let AdminReply::Revoked { fingerprint, .. } = &reply {
            server.sessions.expel(fingerprint, crate::session::REVOKED);
        }
        reply
    });
    Json(work.await.unwrap_or_else(|error| {
        admin::failed(FailReason::Io, format!("the server failed inside: {error}"))
    }))
}

async fn metrics(State(server): State<Arc<Server>>) -> String {
    server.metrics.text(server.sessions.count())
}

async fn shutdown(State(server): State<Arc<Server>>) -> Json<serde_json::Value> {
    server.shutdown.notify_one();
    Json(serde_json::json!({}))
}
