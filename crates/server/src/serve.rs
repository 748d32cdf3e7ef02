//! The server's life: open, listen, serve until it is told to stop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use segue_core::sched::Discipline;
use segue_rpc::{CloseCode, ListenError, Listener, Options, Recorder};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::collect::{Collector, Remnants};
use crate::data_dir::{Data, DataDir};
use crate::error::ServeError;
use crate::healing::{self, Healing};
use crate::meta::StoreError;
use crate::metrics::Metrics;
use crate::sessions::Sessions;
use crate::{connected_clients, control, session};

/// How long a stop waits for what is under way; a restart recovers from less.
const STOP: Duration = Duration::from_secs(10);

/// What a server is started with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeOptions {
    /// Data directory, made if it is not there.
    pub data: PathBuf,
    /// UDP address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where each call is noted, for experiments.
    pub record_calls: Option<PathBuf>,
    /// Order of sending.
    pub priorities: Discipline,
}

/// A running server.
pub(crate) struct Server {
    pub(crate) data: Data,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) metrics: Metrics,
    pub(crate) remnants: Remnants,
    pub(crate) started: Instant,
    pub(crate) address: SocketAddr,
    pub(crate) healing: Healing,
    /// A check is under way.
    pub(crate) checking: AtomicBool,
    /// Work that is long ends as soon as it sees this.
    pub(crate) stopping: AtomicBool,
    /// Told when somebody asked on the control socket.
    pub(crate) shutdown: Notify,
}

/// Serves until `stop` is ready, or until the control socket is told to shut down.
///
/// `ready` hears the address once connections are accepted. What was answered before the stop
/// is durable; what was not is for the clients to send again.
pub async fn serve(
    options: ServeOptions,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ServeOptions { data: path, listen, record_calls, priorities } = options;
    let record =
        |path: &PathBuf| Recorder::open(path).map_err(|error| ServeError::data(path, error));
    let recorder = record_calls.as_ref().map(record).transpose()?;
    let open = move || {
        let data = Data::open(DataDir::create(&path)?)?;
        data.begin_life()?;
        Ok(data)
    };
    let data = blocking(open).await?;
    let sending = Options { discipline: priorities, ..Options::default() };
    let listener = Listener::bind(listen, &data.authority, &sending)
        .map_err(|error| ServeError::Listen { listen, words: listen_words(error) })?;
    let address = listener.local_address();
    let server = Arc::new(Server {
        data,
        sessions: Arc::default(),
        metrics: Metrics::default(),
        remnants: Remnants::default(),
        started: Instant::now(),
        address,
        healing: Healing::new(),
        checking: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        shutdown: Notify::new(),
    });
    let remembering = server.clone();
    blocking(move || remember(&remembering.data, address)).await?;
    let control = control::start(server.clone())?;
    let collector = Collector::start(server.clone())
        .map_err(|error| ServeError::data(server.data.path(), error))?;
    let awaiting = tokio::spawn(await_grace(server.clone()));
    let healer = tokio::spawn(healing::run(server.clone()));
    ready(address);
    // Nothing is sent: it is closed when the last connection is over.
    let (alive, mut over) = mpsc::channel::<()>(1);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            peer = listener.accept() => match peer {
                Some(peer) => {
                    recorder.iter().for_each(|recorder| peer.record(recorder));
                    drop(tokio::spawn(session::run(server.clone(), peer, alive.clone())));
                }
                None => break,
            },
            () = &mut stop => break,
            () = server.shutdown.notified() => break,
        }
    }
    server.stopping.store(true, Ordering::Release);
    listener.close(CloseCode::Stopping, "the server is stopping").await;
    control.stop().await;
    drop(alive);
    for task in [awaiting, healer] {
        task.abort();
        // It was aborted, or it was over.
        task.await.ok();
    }
    if timeout(STOP, over.recv()).await.is_err() {
        tracing::warn!("stopped with requests still in progress; clients will retry them");
    }
    // The store's thread ends with its last job, which takes a while.
    blocking(move || {
        collector.join();
        drop(server);
        Ok(())
    })
    .await
}

/// Remembers where the server listens.
fn remember(data: &Data, address: SocketAddr) -> Result<(), ServeError> {
    match data.set_listen(address) {
        // The server serves without it, so that removals make room.
        Ok(()) | Err(StoreError::Full) => Ok(()),
        Err(error) => {
            Err(ServeError::Meta { path: data.path().to_owned(), words: error.to_string() })
        }
    }
}

/// Forgets who was connected to an earlier server and does not come back.
async fn await_grace(server: Arc<Server>) {
    let store = &server.data.store;
    let gone = store.promises().await_grace().await;
    let promises = Arc::clone(store.promises());
    store.write_later(move |txn| {
        let gone = gone.iter().filter(|client| !promises.is_attached(**client, None));
        gone.copied().try_for_each(|client| connected_clients::leave(txn, client))
    });
}

fn listen_words(error: ListenError) -> String {
    match error {
        ListenError::Bind { error, .. } if error.kind() == io::ErrorKind::AddrInUse => {
            "another program uses this port; choose another address with --listen".to_owned()
        }
        ListenError::Bind { error, .. } => error.to_string(),
        other => other.to_string(),
    }
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, ServeError> + Send + 'static,
) -> Result<R, ServeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // The worker panicked, which is our own error and not the outside world's.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
