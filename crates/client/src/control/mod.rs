//! The mount's control socket: HTTP and JSON over a Unix socket, for the command line.

mod any_path;
pub mod types;

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::mount::{Mount, Scope, Shared};
use types::{
    Bandwidth, BandwidthRequest, ConflictsReply, LogReply, PushReply, PushRequest, ResolveReply,
    ResolveRequest, Status, SyncReply, SyncRequest, UmountRequest, WatchRequest, WhereReply,
    WhereRequest, WhyReply, WhyRequest,
};

/// Longest wait for answers when the mount ends; one that tells of changes may never end.
const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// How often the connection is told of: not so often that it costs more than it tells.
const EVERY_MS: std::ops::RangeInclusive<u64> = 10..=3_600_000;

#[derive(Deserialize)]
struct LinkQuery {
    /// Milliseconds.
    every: Option<u64>,
}

/// The file of a control socket.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Its device and inode.
    id: (u64, u64),
}

impl SocketFile {
    fn bound(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile { path: path.to_owned(), id: file_id(path)? })
    }

    /// Removes the file, unless a later mount at the same path has replaced it by its own.
    fn remove(self) {
        if file_id(&self.path).is_ok_and(|id| id == self.id) {
            std::fs::remove_file(&self.path).ok();
        }
    }
}

fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// A control socket that is served.
#[derive(Debug)]
pub(crate) struct Control {
    file: SocketFile,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Control {
    /// Ends it, and removes its file. Answers that are being given get a moment: the last one tells
    /// of the unmount itself.
    pub(crate) async fn end(mut self) {
        self.stop.send(()).ok();
        if tokio::time::timeout(LAST_ANSWERS, &mut self.task).await.is_err() {
            self.task.abort();
        }
        self.file.remove();
    }
}

/// Starts serving on `socket`.
pub(crate) fn serve(mount: Shared, socket: &Path) -> io::Result<Control> {
    if let Some(parent) = socket.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    // The cache directory's lock is held: a socket that is there is a dead one's.
    std::fs::remove_file(socket).ok();
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    let file = SocketFile::bound(socket)?;
    let routes = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/link", get(link))
        .route("/v1/bwlimit", get(bwlimit).post(set_bwlimit))
        .route("/v1/log", get(log))
        .route("/v1/where", post(locate))
        .route("/v1/sync", post(sync))
        .route("/v1/why", post(why))
        .route("/v1/push", post(push))
        .route("/v1/conflicts", get(conflicts))
        .route("/v1/resolve", post(resolve))
        .route("/v1/umount", post(umount))
        .route("/v1/watch", post(watch))
        .route("/v1/metrics", get(metrics));
    #[cfg(debug_assertions)]
    let routes = routes.route("/v1/lose-link", post(lose_link));
    let routes = routes.with_state(mount);
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        let until = async { stopped.await.unwrap_or(()) };
        let served = axum::serve(listener, routes).with_graceful_shutdown(until).await;
        if let Err(error) = served {
            tracing::error!("the control socket failed: {error}");
        }
    });
    Ok(Control { file, stop, task })
}

async fn status(State(mount): State<Shared>) -> Json<Status> {
    Json(mount.status())
}

async fn link(
    State(mount): State<Shared>,
    Query(LinkQuery { every }): Query<LinkQuery>,
) -> Result<Response, (StatusCode, String)> {
    let Some(every) = every else { return Ok(Json(mount.link_report()).into_response()) };
    if !EVERY_MS.contains(&every) {
        let (least, most) = (EVERY_MS.start(), EVERY_MS.end());
        let words = format!("every={every}: must be from {least} to {most} milliseconds");
        return Err((StatusCode::BAD_REQUEST, words));
    }
    let (tell, told) = mpsc::channel(4);
    tokio::spawn(mount.watch_link(Duration::from_millis(every), tell));
    Ok(lines(told))
}

async fn bwlimit(State(mount): State<Shared>) -> Json<Bandwidth> {
    Json(mount.bwlimit())
}

async fn set_bwlimit(
    State(mount): State<Shared>,
    Json(request): Json<BandwidthRequest>,
) -> Result<Json<Bandwidth>, (StatusCode, String)> {
    match request.bwlimit.parse() {
        Ok(timetable) => Ok(Json(mount.set_bwlimit(timetable))),
        Err(error) => Err((StatusCode::BAD_REQUEST, format!("bwlimit: {error}"))),
    }
}

async fn log(State(mount): State<Shared>) -> Json<LogReply> {
    Json(mount.log_listing())
}

async fn metrics(State(mount): State<Shared>) -> String {
    mount.metrics()
}

async fn locate(
    State(mount): State<Shared>,
    Json(request): Json<WhereRequest>,
) -> Json<WhereReply> {
    let mut files = Vec::with_capacity(request.paths.len());
    for path in &request.paths {
        files.push(mount.locate(path.as_bytes(), request.alone).await);
    }
    Json(WhereReply { files })
}

async fn why(State(mount): State<Shared>, Json(request): Json<WhyRequest>) -> Json<WhyReply> {
    Json(mount.why(request.path.as_bytes()).await)
}

async fn push(State(mount): State<Shared>, Json(request): Json<PushRequest>) -> Json<PushReply> {
    Json(mount.push(&request.paths))
}

async fn conflicts(State(mount): State<Shared>) -> Json<ConflictsReply> {
    Json(ConflictsReply { conflicts: mount.conflict_list().await })
}

async fn resolve(
    State(mount): State<Shared>,
    Json(request): Json<ResolveRequest>,
) -> Json<ResolveReply> {
    let ResolveRequest { copy, refused, unreadable } = request;
    let found = match (refused.is_empty(), unreadable.is_empty()) {
        (false, _) => mount.drop_refused(&refused),
        (_, false) => mount.drop_unreadable(&unreadable),
        _ => Ok(mount.keep_both(&copy).await),
    };
    let error = found.as_ref().map_or_else(io::Error::to_string, |_| String::new());
    Json(ResolveReply { found: found.is_ok_and(|found| found), error })
}

async fn sync(State(mount): State<Shared>, Json(request): Json<SyncRequest>) -> Response {
    let scope = match request.paths.is_empty() {
        true => Scope::All,
        false => Scope::Below(request.paths),
    };
    let timeout = (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms));
    let to_server = request.level != "host";
    let (tell, told) = mpsc::channel(4);
    tokio::spawn(mount.sync(scope, to_server, timeout, !request.waits_offline, tell));
    lines(told)
}

async fn umount(State(mount): State<Shared>, Json(request): Json<UmountRequest>) -> Response {
    let (tell, told) = mpsc::channel(4);
    tokio::spawn(unmount(mount, request.now, tell));
    lines(told)
}

async fn watch(State(mount): State<Shared>, Json(request): Json<WatchRequest>) -> Response {
    let (tell, told) = mpsc::channel(64);
    tokio::spawn(mount.watch(request.path, tell));
    lines(told)
}

/// For tests: a link that was cut counts as lost without 20 seconds of silence.
#[cfg(debug_assertions)]
async fn lose_link(State(mount): State<Shared>) -> Json<()> {
    mount.lose_link();
    // Meanwhile what is known would have been noted.
    tokio::task::spawn_blocking(move || mount.note()).await.ok();
    Json(())
}

/// Waits until everything is safe, unless `now`, and then unmounts.
async fn unmount(mount: Arc<Mount>, now: bool, tell: mpsc::Sender<SyncReply>) {
    let mut last = SyncReply { ok: true, done: true, ..SyncReply::default() };
    if !now {
        let (progress, mut heard) = mpsc::channel(4);
        tokio::spawn(Arc::clone(&mount).sync(Scope::All, true, None, true, progress));
        while let Some(reply) = heard.recv().await {
            if reply.done {
                last = reply;
            } else if tell.send(reply).await.is_err() {
                return;
            }
        }
    }
    if last.ok {
        let left = mount.pending();
        // The kernel may have pages to write back first, through this process.
        let unmounting = tokio::task::spawn_blocking(move || mount.unmount(now));
        let unmounted = unmounting.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        (last.pending_records, last.pending_bytes) = left;
        if let Err(error) = unmounted {
            last = SyncReply { ok: false, done: true, error: error.to_string(), ..last };
        }
    }
    tell.send(last).await.ok();
}

/// Answers with one line of JSON for each reply.
fn lines<T: Serialize + Send + 'static>(told: mpsc::Receiver<T>) -> Response {
    let stream = LineStream { told };
    Response::new(Body::new(stream))
}

struct LineStream<T> {
    told: mpsc::Receiver<T>,
}

impl<T: Serialize> axum::body::HttpBody for LineStream<T> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, io::Error>>> {
        self.told.poll_recv(context).map(|reply| {
            let reply = reply?;
            let line = serde_json::to_vec(&reply).map_err(io::Error::other).map(|mut line| {
                line.push(b'\n');
                http_body::Frame::data(Bytes::from(line))
            });
            Some(line)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ending mount had removed the socket of the next one at its path.
    #[test]
    fn the_socket_of_a_later_mount_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let earlier = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let file = SocketFile::bound(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _later = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let later = SocketFile::bound(&path).unwrap();
        file.remove();
        assert!(path.exists());
        later.remove();
        assert!(!path.exists());
        drop(earlier);
    }
}
