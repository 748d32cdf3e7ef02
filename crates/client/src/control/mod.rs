//! The mount's control socket: HTTP and JSON over a Unix socket, for the command line.

pub(crate) mod conflicts;
mod link;
pub(crate) mod metrics;
mod push;
pub(crate) mod status;
mod sync;
mod watching;
pub(crate) mod why;

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sync::Scope;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::mount::{Mount, Shared};
use crate::replies::{
    Bandwidth, BandwidthRequest, ConflictsReply, LogReply, PushReply, PushRequest, ResolveReply,
    ResolveRequest, Status, SyncReply, SyncRequest, UmountRequest, WatchRequest, WhereReply,
    WhereRequest, WhyReply, WhyRequest,
};

/// Longest wait for the answers to unmounts when the mount ends.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// Time to take an answer that was given. A command that was stopped takes none.
const TAKEN: Duration = Duration::from_millis(500);
/// What the metrics are, for who scrapes them.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How often the connection is told of: not so often that it costs more than it tells.
const EVERY_MS: std::ops::RangeInclusive<u64> = 10..=3_600_000;

#[derive(Deserialize)]
struct LinkQuery {
    /// Milliseconds.
    every: Option<u64>,
}

/// The file of a control socket.
#[derive(Debug)]
struct SocketFile {
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

/// Tells when the mount ends.
#[derive(Clone, Debug)]
struct Ending {
    goes_on: watch::Receiver<()>,
    /// Unmounts that have not been answered.
    unanswered: Arc<AtomicUsize>,
}

/// An unmount that has not been answered, until this is dropped.
struct Unanswered(Arc<AtomicUsize>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Ending {
    /// Waits until the mount ends.
    async fn comes(mut self) {
        while self.goes_on.changed().await.is_ok() {}
    }

    /// An unmount begins: the process waits for its answer.
    fn begin_unmount(&self) -> Unanswered {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        Unanswered(Arc::clone(&self.unanswered))
    }

    /// Does `work`, or returns `None` once the mount ends.
    async fn unless<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.comes() => None,
            done = work => Some(done),
        }
    }
}

/// A control socket that is served.
#[derive(Debug)]
pub(crate) struct Control {
    file: SocketFile,
    /// Dropped when the mount ends.
    goes_on: watch::Sender<()>,
    unanswered: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Control {
    /// Ends it, and removes its file. Reports without an end stop now. The process waits for the
    /// answer to an unmount, because the kernel drops the pages of the mount first.
    pub(crate) async fn end(mut self) {
        drop(self.goes_on);
        let (began, mut are_given) = (Instant::now(), false);
        while tokio::time::timeout(TAKEN, &mut self.task).await.is_err() {
            if are_given || began.elapsed() >= LAST_ANSWERS {
                self.task.abort();
                break;
            }
            are_given = self.unanswered.load(Ordering::Acquire) == 0;
        }
        self.file.remove();
    }
}

/// Starts serving on `socket`.
pub(crate) fn serve(mount: Shared, socket: &Path) -> io::Result<Control> {
    if let Some(parent) = socket.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
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
        .route("/v1/watch", post(watch_below))
        .route("/v1/metrics", get(metrics));
    #[cfg(debug_assertions)]
    let routes = routes.route("/v1/lose-link", post(lose_link));
    let routes = routes.with_state(mount);
    serve_routes(routes, socket)
}

fn serve_routes(routes: Router, socket: &Path) -> io::Result<Control> {
    // The cache directory's lock is held: a socket that is there is a dead one's.
    std::fs::remove_file(socket).ok();
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    let file = SocketFile::bound(socket)?;
    let (goes_on, ending) = watch::channel(());
    let unanswered = Arc::default();
    let ending = Ending { goes_on: ending, unanswered: Arc::clone(&unanswered) };
    let routes = routes.layer(Extension(ending.clone()));
    let task = tokio::spawn(async move {
        let served = axum::serve(listener, routes).with_graceful_shutdown(ending.comes()).await;
        if let Err(error) = served {
            tracing::error!("the control socket failed: {error}");
        }
    });
    Ok(Control { file, goes_on, unanswered, task })
}

async fn status(State(mount): State<Shared>) -> Json<Status> {
    Json(status::status(&mount))
}

async fn link(
    State(mount): State<Shared>,
    Extension(ending): Extension<Ending>,
    Query(LinkQuery { every }): Query<LinkQuery>,
) -> Result<Response, (StatusCode, String)> {
    let Some(every) = every else { return Ok(Json(link::link_report(&mount)).into_response()) };
    if !EVERY_MS.contains(&every) {
        let (least, most) = (EVERY_MS.start(), EVERY_MS.end());
        let words = format!("every={every}: must be from {least} to {most} milliseconds");
        return Err((StatusCode::BAD_REQUEST, words));
    }
    let (tell, told) = mpsc::channel(4);
    tokio::spawn(ending.unless(link::watch_link(mount, Duration::from_millis(every), tell)));
    Ok(lines(told))
}

async fn bwlimit(State(mount): State<Shared>) -> Json<Bandwidth> {
    Json(mount.limiter.told())
}

async fn set_bwlimit(
    State(mount): State<Shared>,
    Json(request): Json<BandwidthRequest>,
) -> Result<Json<Bandwidth>, (StatusCode, String)> {
    match request.bwlimit.parse() {
        Ok(timetable) => Ok(Json(mount.limiter.set(timetable))),
        Err(error) => Err((StatusCode::BAD_REQUEST, format!("bwlimit: {error}"))),
    }
}

async fn log(State(mount): State<Shared>) -> Json<LogReply> {
    Json(status::log_listing(&mount))
}

async fn metrics(State(mount): State<Shared>) -> impl IntoResponse {
    ([(CONTENT_TYPE, OPEN_METRICS)], metrics::metrics_text(&mount))
}

async fn locate(
    State(mount): State<Shared>,
    Json(request): Json<WhereRequest>,
) -> Json<WhereReply> {
    let mut files = Vec::with_capacity(request.paths.len());
    for path in &request.paths {
        files.push(status::locate(&mount, path.as_bytes(), request.alone).await);
    }
    Json(WhereReply { files })
}

async fn why(State(mount): State<Shared>, Json(request): Json<WhyRequest>) -> Json<WhyReply> {
    Json(why::why(&mount, request.path.as_bytes()).await)
}

async fn push(State(mount): State<Shared>, Json(request): Json<PushRequest>) -> Json<PushReply> {
    Json(push::push(&mount, &request.paths))
}

async fn conflicts(State(mount): State<Shared>) -> Json<ConflictsReply> {
    Json(ConflictsReply { conflicts: conflicts::conflict_list(&mount).await })
}

async fn resolve(
    State(mount): State<Shared>,
    Json(request): Json<ResolveRequest>,
) -> Json<ResolveReply> {
    let ResolveRequest { copy, refused, unreadable } = request;
    let found = match (refused.is_empty(), unreadable.is_empty()) {
        (false, _) => mount.disk.for_user.refused.remove(&refused),
        (_, false) => mount.disk.for_user.conflicts.lock().forget_unreadable(&unreadable),
        _ => Ok(conflicts::keep_both(&mount, &copy).await),
    };
    let error = found.as_ref().map_or_else(io::Error::to_string, |_| String::new());
    Json(ResolveReply { found: found.is_ok_and(|found| found), error })
}

async fn sync(
    State(mount): State<Shared>,
    Extension(ending): Extension<Ending>,
    Json(request): Json<SyncRequest>,
) -> Response {
    let scope = match request.paths.is_empty() {
        true => Scope::All,
        false => Scope::Below(request.paths),
    };
    let timeout = (request.timeout_ms > 0).then(|| Duration::from_millis(request.timeout_ms));
    let to_server = request.level != "host";
    let (tell, told) = mpsc::channel(4);
    let syncing = sync::sync(mount, scope, to_server, timeout, !request.waits_offline, tell);
    tokio::spawn(ending.unless(syncing));
    lines(told)
}

async fn umount(
    State(mount): State<Shared>,
    Extension(ending): Extension<Ending>,
    Json(request): Json<UmountRequest>,
) -> Response {
    let (tell, told) = mpsc::channel(4);
    tokio::spawn(unmount(mount, request.now, tell, ending));
    lines(told)
}

async fn watch_below(
    State(mount): State<Shared>,
    Extension(ending): Extension<Ending>,
    Json(request): Json<WatchRequest>,
) -> Response {
    let (tell, told) = mpsc::channel(64);
    tokio::spawn(ending.unless(watching::watch(mount, request.path, tell)));
    lines(told)
}

/// For tests: a link that was cut counts as lost without 20 seconds of silence.
#[cfg(debug_assertions)]
async fn lose_link(State(mount): State<Shared>) -> Json<()> {
    link::lose_link(&mount);
    // Meanwhile what is known would have been noted.
    tokio::task::spawn_blocking(move || mount.disk.note()).await.ok();
    Json(())
}

/// Waits until everything is safe, unless `now`, and then unmounts.
async fn unmount(mount: Arc<Mount>, now: bool, tell: mpsc::Sender<SyncReply>, ending: Ending) {
    let _unanswered = ending.begin_unmount();
    let mut last = SyncReply { ok: true, done: true, ..SyncReply::default() };
    let mut is_unmounted = false;
    if !now {
        match ending.unless(sync_first(&mount, &tell)).await {
            Some(Ok(synced)) => last = synced,
            Some(Err(NobodyListens)) => return,
            // Another command did it meanwhile. Its path may be another mount's by now.
            None => is_unmounted = true,
        }
    }
    if last.ok {
        let left = status::pending(&mount);
        if !is_unmounted {
            // The kernel may have pages to write back first, through this process.
            let unmounting = tokio::task::spawn_blocking(move || mount.unmount(now));
            let unmounted = unmounting.await.unwrap_or_else(|error| Err(io::Error::other(error)));
            if let Err(error) = unmounted {
                last = SyncReply { ok: false, error: error.to_string(), ..last };
            }
        }
        (last.pending_records, last.pending_bytes) = left;
    }
    tell.send(last).await.ok();
}

/// The command that asked is gone.
struct NobodyListens;

/// Waits until the server has every change, and tells how far that is. Returns the end of it.
async fn sync_first(
    mount: &Arc<Mount>,
    tell: &mpsc::Sender<SyncReply>,
) -> Result<SyncReply, NobodyListens> {
    let (progress, mut heard) = mpsc::channel(4);
    tokio::spawn(sync::sync(Arc::clone(mount), Scope::All, true, None, true, progress));
    while let Some(reply) = heard.recv().await {
        if reply.done {
            return Ok(reply);
        }
        tell.send(reply).await.map_err(|_| NobodyListens)?;
    }
    let error = "the wait for the server broke off".to_owned();
    Ok(SyncReply { done: true, error, ..SyncReply::default() })
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

    /// The kernel may need longer than the process to take a mount away: of a large file that was
    /// all in memory, say. What tells of the link or of changes has no end of its own.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_last_answer_is_given_and_endless_ones_end() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let endless = |Extension(ending): Extension<Ending>| async move {
            let (tell, told) = mpsc::channel::<SyncReply>(1);
            tokio::spawn(ending.unless(async move {
                tell.send(SyncReply::default()).await.ok();
                std::future::pending::<()>().await
            }));
            lines(told)
        };
        let last = |Extension(ending): Extension<Ending>| async move {
            let (tell, told) = mpsc::channel::<SyncReply>(1);
            tokio::spawn(async move {
                let _unanswered = ending.begin_unmount();
                tell.send(SyncReply::default()).await.ok();
                tokio::time::sleep(Duration::from_secs(1)).await;
                tell.send(SyncReply { done: true, ..SyncReply::default() }).await.ok();
            });
            lines(told)
        };
        let routes = Router::new().route("/endless", get(endless)).route("/last", get(last));
        let control = serve_routes(routes, &socket).unwrap();
        let (mut to_endless, mut to_last) = (get_of(&socket, "endless"), get_of(&socket, "last"));
        for stream in [&mut to_endless, &mut to_last] {
            std::io::Read::read_exact(stream, &mut [0; 16]).unwrap();
        }
        control.end().await;
        let heard = [to_endless, to_last].map(|mut stream| {
            let mut heard = String::new();
            std::io::Read::read_to_string(&mut stream, &mut heard).unwrap();
            heard
        });
        // Chunked answers that ended as they should.
        assert!(heard.iter().all(|heard| heard.ends_with("0\r\n\r\n")), "{heard:?}");
        assert!(heard[1].contains(r#""done":true"#), "{heard:?}");
    }

    fn get_of(socket: &Path, path: &str) -> std::os::unix::net::UnixStream {
        let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        stream
    }
}
