//! Requests to a control socket: HTTP over a Unix socket, one connection for each request.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use segue_client::quantity;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::process::Process;

/// Longest answer or line that is accepted: far above any real one.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// A healthy daemon accepts connections at once, also while its disk or network stalls.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The failure of a request to a control socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// No process listens on the socket.
    #[error("no process answers on its control socket")]
    NobodyThere,
    /// The process at the socket was killed, but one of its threads hangs in the kernel.
    #[error("its process was killed, but hangs in the kernel")]
    Killed,
    /// The process at the socket serves another mount.
    #[error("the process at its control socket serves another mount")]
    Elsewhere,
    /// The socket belongs to another user.
    #[error("its control socket belongs to another user")]
    NotPermitted,
    /// The answer is missing, incomplete or malformed.
    #[error("no valid answer from its process: {0}")]
    Broken(String),
    /// The process refused, with this message.
    #[error("{0}")]
    Refused(String),
}

impl From<hyper::Error> for HttpError {
    fn from(error: hyper::Error) -> HttpError {
        HttpError::Broken(error.to_string())
    }
}

impl From<serde_json::Error> for HttpError {
    fn from(error: serde_json::Error) -> HttpError {
        HttpError::Broken(format!("this version cannot decode the answer: {error}"))
    }
}

/// A connection to the process behind a control socket.
pub(crate) struct Connection {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    /// At the other end.
    pub(crate) process: Arc<Process>,
}

/// Connects to `socket`.
pub(crate) async fn connect(socket: &Path) -> Result<Connection, HttpError> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, UnixStream::connect(socket));
    let stream = match connecting.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(connect_error(&error)),
        Err(_) => {
            let seconds = CONNECT_TIMEOUT.as_secs();
            return Err(HttpError::Broken(format!("no connection within {seconds} s")));
        }
    };
    let peer = stream.peer_cred().map_err(|error| connect_error(&error))?;
    let pid = peer.pid().ok_or(HttpError::NobodyThere)?;
    let process = Process::behind(&stream, pid).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => HttpError::NobodyThere,
        _ => HttpError::Broken(format!("its process {pid} cannot be looked at: {error}")),
    })?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with the sender. The pending request reports an error of the connection.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Connection { sender, process: Arc::new(process) })
}

fn connect_error(error: &io::Error) -> HttpError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => HttpError::NobodyThere,
        io::ErrorKind::PermissionDenied => HttpError::NotPermitted,
        _ => HttpError::Broken(error.to_string()),
    }
}

impl Connection {
    /// `GET path`, with the answer as text.
    pub(crate) async fn get_text(mut self, path: &str) -> Result<String, HttpError> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        let body = collect(response.into_body()).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// `GET path`, with the answer decoded from JSON.
    pub(crate) async fn get<T: DeserializeOwned>(mut self, path: &str) -> Result<T, HttpError> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        Ok(serde_json::from_slice(&collect(response.into_body()).await?)?)
    }

    /// `POST path` with `request` as JSON, and the answer decoded from JSON.
    pub(crate) async fn post<T: DeserializeOwned>(
        mut self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, HttpError> {
        let request = Bytes::from(serde_json::to_vec(request)?);
        let response = self.send(Method::POST, path, request).await?;
        Ok(serde_json::from_slice(&collect(response.into_body()).await?)?)
    }

    /// `POST path`; the answer is a stream of JSON lines, and `on_line` gets each as it arrives.
    pub(crate) async fn post_lines<T: DeserializeOwned>(
        mut self,
        path: &str,
        request: &impl Serialize,
        mut on_line: impl FnMut(T),
    ) -> Result<(), HttpError> {
        let request = Bytes::from(serde_json::to_vec(request)?);
        let mut body = self.send(Method::POST, path, request).await?.into_body();
        let mut pending: Vec<u8> = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                if !line.trim_ascii().is_empty() {
                    on_line(serde_json::from_slice(&line)?);
                }
            }
            if pending.len() > ANSWER_BYTES_MAX {
                return Err(HttpError::Broken(format!("a line exceeds {}", most())));
            }
        }
        if !pending.trim_ascii().is_empty() {
            on_line(serde_json::from_slice(&pending)?);
        }
        Ok(())
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, HttpError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "segue")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| HttpError::Broken(error.to_string()))?;
        let response = self.sender.send_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let words = collect(response.into_body()).await?;
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        Err(HttpError::Refused(if words.is_empty() { status.to_string() } else { words }))
    }
}

/// [`ANSWER_BYTES_MAX`] with its unit.
fn most() -> String {
    quantity::bytes(ANSWER_BYTES_MAX as u64)
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, HttpError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(HttpError::Broken(format!("the answer exceeds {}", most())));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    /// Asks a process that answers `parts`, one write each, and then closes.
    async fn ask(parts: &'static [&'static str]) -> (Vec<u32>, Result<(), HttpError>) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4_096]).await.unwrap();
            for part in parts {
                stream.write_all(part.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
            }
        });
        let mut lines = Vec::new();
        let connection = connect(&socket).await.unwrap();
        let result = connection.post_lines("/v1/sync", &(), |line| lines.push(line)).await;
        answering.await.unwrap();
        (lines, result)
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

    #[tokio::test]
    async fn lines_are_whole_however_they_arrive() {
        let (lines, result) = ask(&[OK, "3\r\n1\n2\r\n", "4\r\n3\n\n4\r\n", "0\r\n\r\n"]).await;
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(lines, [1, 23, 4]);
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_is_an_error_after_its_lines() {
        let (lines, result) = ask(&[OK, "2\r\n1\n\r\n"]).await;
        assert!(matches!(result, Err(HttpError::Broken(_))), "{result:?}");
        assert_eq!(lines, [1]);
    }

    #[tokio::test]
    async fn a_refusal_carries_the_process_s_words() {
        let (_, result) = ask(&["HTTP/1.1 400 No\r\ncontent-length: 7\r\n\r\nwrong \n"]).await;
        assert_eq!(result.unwrap_err().to_string(), "wrong");
    }

    #[tokio::test]
    async fn nobody_there_is_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        assert!(matches!(connect(&socket).await, Err(HttpError::NobodyThere)));
        // Nobody ever listened: a child that another test starts would hold a listener that was
        // dropped, until it executes its program.
        let address = rustix::net::SocketAddrUnix::new(&socket).unwrap();
        let unix = rustix::net::AddressFamily::UNIX;
        let dead = rustix::net::socket(unix, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&dead, &address).unwrap();
        assert!(matches!(connect(&socket).await, Err(HttpError::NobodyThere)));
    }
}
