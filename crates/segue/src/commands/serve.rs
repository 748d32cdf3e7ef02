//! `segue serve`: the server, in the foreground or in the background.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use segue_server::{Discipline, ServeOptions, serve};

use super::{Context, ServerData, block_on, block_on_daemon};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::{self, HttpError};
use crate::signals::StopSignals;
use crate::{admin, daemon, output};

const DEFAULT_LISTEN: &str = "[::]:7420";
/// A clean stop completes pending writes and closes the store. A longer stop means a hang.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Serve volumes from this host
///
/// The first start creates the data directory with the volume 'home' and the server's own
/// certificate authority. A host enrols with a URL from 'segue invite'.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: ServerData,
    /// Address and UDP port to serve on [default: [::]:7420, all addresses of this host]
    #[arg(long, value_name = "ADDR:PORT", env = "SEGUE_LISTEN", hide_env_values = true)]
    listen: Option<String>,
    /// Write to FILE when each call arrived and was answered, as JSON lines (docs/experiments.md)
    #[arg(long, value_name = "FILE", env = "SEGUE_RECORD_CALLS", hide = true)]
    record_calls: Option<PathBuf>,
    /// Order of sending: on, uniform or modal (docs/experiments.md)
    #[arg(long, value_name = "ORDER", default_value = "on", hide = true)]
    priorities: String,
    /// Continue in the background once serving
    #[arg(long, conflicts_with = "stop")]
    detach: bool,
    /// Stop the server of this data directory and wait until its process has ended
    #[arg(long)]
    pub(crate) stop: bool,
    /// A parent process waits on stdout.
    #[arg(long, hide = true)]
    pub(crate) ready_on_stdout: bool,
}

impl Arguments {
    /// True if this process becomes the server.
    pub(crate) fn stays(&self) -> bool {
        !self.detach && !self.stop
    }
}

const EXAMPLES: &str = "\
Examples:
  segue serve                                  until Ctrl-C
  segue serve --detach --data /srv/segue       in the background, log in ~/.local/state/segue/log
  segue serve --listen 192.168.1.5:7420
  segue serve --stop";

/// Serves, detaches or stops.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let data = arguments.server.resolve(context)?;
    if arguments.stop {
        return stop(&data);
    }
    let text = arguments.listen.as_ref().or(context.config.listen.as_ref());
    let text = text.map_or(DEFAULT_LISTEN, String::as_str);
    let listen: SocketAddr = text.parse().map_err(|_| {
        Failure::usage(format!("--listen {text}: not ADDR:PORT such as 0.0.0.0:7420 or [::]:7420"))
    })?;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let record_calls = arguments.record_calls.as_ref().map(absolute);
    let order = arguments.priorities.as_str();
    let priorities: Discipline =
        order.parse().map_err(|error| Failure::usage(format!("--priorities: {error}")))?;
    if arguments.detach {
        let again = ["serve", daemon::READY_FLAG, "--listen", text, "--data"].map(OsString::from);
        let order = ["--priorities", order].map(OsString::from);
        let mut again: Vec<OsString> =
            again.into_iter().chain([data.into_os_string()]).chain(order).collect();
        if let Some(path) = record_calls {
            again.extend(["--record-calls".into(), path.into_os_string()]);
        }
        let words = context.launch(again, None, "serve")?;
        output::print(&format!("{}\n", output::printable(&words, &[])))?;
        return Ok(Exit::Done);
    }
    let options = ServeOptions { data, listen, record_calls, priorities };
    block_on_daemon(serve_until_signal(options, context))?;
    Ok(Exit::Done)
}

async fn serve_until_signal(options: ServeOptions, context: &Context) -> Result<(), Failure> {
    let mut signals =
        StopSignals::catch().map_err(|error| Failure::io("cannot catch signals", &error))?;
    let (abandon, abandoned) = tokio::sync::oneshot::channel();
    let announcer = context.announcer;
    let ready = move |address: SocketAddr| {
        if announcer.detached {
            tracing::info!(%address, "serving");
        }
        if let Err(error) = announcer.ready(&format!("segue: serving on {address}")) {
            tracing::warn!("the process that started this server has ended, stopping: {error}");
            let _ = abandon.send(());
        }
    };
    let stop = async move {
        tokio::select! {
            () = signals.wait() => announcer.stopping(),
            Ok(()) = abandoned => {}
        }
    };
    serve(options, ready, stop)
        .await
        .map_err(|error| Failure::new(Exit::from_code(error.exit_code()), error.to_string()))
}

fn stop(data: &Path) -> Outcome {
    admin::require_data(data)?;
    let nobody =
        || Failure::failed(format!("no server is running with data directory {}", data.display()));
    let socket = segue_server::socket_path(data);
    let process = block_on(async {
        let connection = match http::connect(&socket).await {
            Ok(connection) => connection,
            Err(HttpError::NobodyThere) => return Err(nobody()),
            Err(error) => return Err(admin::unreachable_server(data, &error)),
        };
        let process = Arc::clone(&connection.process);
        let answer: Result<serde_json::Value, HttpError> =
            connection.post("/v1/shutdown", &serde_json::json!({})).await;
        match answer {
            // A server that ends before its answer arrives has stopped all the same.
            Ok(_) | Err(HttpError::Broken(_)) => Ok(process),
            Err(error) => Err(admin::unreachable_server(data, &error)),
        }
    })?;
    if !process.wait_for_end(STOP_LIMIT) {
        let words = format!(
            "the server with data directory {} has not ended within {} s: read its log",
            data.display(),
            STOP_LIMIT.as_secs()
        );
        return Err(Failure::new(Exit::NotYetSafe, words));
    }
    let words = format!("segue: the server with data directory {} has stopped\n", data.display());
    output::print(&words)?;
    Ok(Exit::Done)
}
