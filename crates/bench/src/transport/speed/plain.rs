//! The QUIC library alone: a stream for each call, one stream for bulk, all its own defaults.
//!
//! ```text
//!   request = kind u8, a length u64 LE; then filling up to a call's, or the body
//!   reply   = filling up to an answer's, or the body
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::{ClientConfig, Endpoint, RecvStream, SendStream, ServerConfig};

use super::carrier::Carrier;
use super::drive::{Spent, Task, threads};
use super::{Ends, end};
use crate::transport::serve::pieces;
use crate::transport::{pair, wrong};
use segue_bed::{Doing, Host, Result};

/// What its certificate says that it is.
const SERVER: &str = "plain";
/// A call, and as much for its answer.
const CALL_BYTES: usize = 50;
/// Longer answers are none.
const ANSWER_MAX: usize = 1000;

const CALL: u8 = 0;
const UP: u8 = 1;
const DOWN: u8 = 2;

/// What the server's process is told.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Where to listen.
    address: SocketAddr,
    /// Where to leave its certificate.
    certificate: PathBuf,
}

/// What the client's process is told.
#[derive(Debug, clap::Args)]
pub struct Drive {
    /// Where the server listens.
    address: SocketAddr,
    /// Where its certificate is.
    certificate: PathBuf,
    #[command(flatten)]
    task: Task,
}

/// Starts the server, and returns the command by which the client calls it.
pub(super) fn connect(server: &Host, client: &Host) -> Result<Ends> {
    let certificate = server.dir().join("certificate");
    let told = |mut command: std::process::Command| {
        command.arg(pair::address(server)).arg(&certificate);
        command
    };
    let process = pair::start(server, &mut told(end(server, "quinn-serve")?))?;
    Ok((process, told(end(client, "quinn-drive")?)))
}

/// Serves until its process is killed; `is_ready` is called once it listens.
pub(super) fn serve(options: &Serve, is_ready: impl FnOnce()) -> Result<()> {
    let own = rcgen::generate_simple_self_signed(vec![SERVER.to_owned()]).map_err(wrong)?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(wrong)?;
    let certificate = own.cert.der().clone();
    std::fs::write(&options.certificate, &certificate).doing("write a certificate")?;
    threads()?.block_on(async {
        let config = ServerConfig::with_single_cert(vec![certificate], key).map_err(wrong)?;
        let endpoint = Endpoint::server(config, options.address).doing("listen")?;
        is_ready();
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(async move {
                let connection = incoming.await.map_err(wrong)?;
                while let Ok((send, receive)) = connection.accept_bi().await {
                    // It fails when the caller has gone away.
                    tokio::spawn(answer(send, receive));
                }
                Ok::<(), segue_bed::Error>(())
            });
        }
        Ok(())
    })
}

async fn answer(mut send: SendStream, mut receive: RecvStream) -> Result<()> {
    let mut head = [0; 9];
    receive.read_exact(&mut head).await.map_err(wrong)?;
    let [kind, length @ ..] = head;
    drain(&mut receive).await?;
    if kind == DOWN {
        for piece in pieces(u64::from_le_bytes(length)) {
            send.write_chunk(piece).await.map_err(wrong)?;
        }
    } else {
        send.write_all(&[0; CALL_BYTES]).await.map_err(wrong)?;
    }
    send.finish().map_err(wrong)
}

/// Reads to the end, and returns how much that was.
async fn drain(receive: &mut RecvStream) -> Result<u64> {
    let mut came = 0;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await.map_err(wrong)? {
        came += chunk.bytes.len() as u64;
    }
    Ok(came)
}

/// Connects, and does what `options` say.
pub(super) fn drive(options: &Drive) -> Result<Spent> {
    let certificate = std::fs::read(&options.certificate).doing("read a certificate")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate)).map_err(wrong)?;
    let config = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(wrong)?;
    threads()?.block_on(async {
        let endpoint = Endpoint::client(SocketAddr::from(([0; 4], 0))).doing("open a socket")?;
        let connecting = endpoint.connect_with(config, options.address, SERVER).map_err(wrong)?;
        let connection = Connection(connecting.await.map_err(wrong)?);
        options.task.perform(&Carrier::Quinn(connection)).await
    })
}

/// A connection of quinn's.
#[derive(Debug, Clone)]
pub(super) struct Connection(quinn::Connection);

impl Connection {
    /// One small call, and its answer.
    pub(super) async fn call(&self) -> Result<()> {
        let mut call = [CALL; CALL_BYTES];
        call[1..9].fill(0);
        let (mut send, mut receive) = self.0.open_bi().await.map_err(wrong)?;
        send.write_all(&call).await.map_err(wrong)?;
        send.finish().map_err(wrong)?;
        receive.read_to_end(ANSWER_MAX).await.map_err(wrong).map(drop)
    }

    /// A body to the server, until that has all of it.
    pub(super) async fn upload(&self, bytes: u64) -> Result<()> {
        let (mut send, mut receive) = self.request(UP, bytes).await?;
        for piece in pieces(bytes) {
            send.write_chunk(piece).await.map_err(wrong)?;
        }
        send.finish().map_err(wrong)?;
        receive.read_to_end(ANSWER_MAX).await.map_err(wrong).map(drop)
    }

    /// A body from the server: how long it was.
    pub(super) async fn download(&self, bytes: u64) -> Result<u64> {
        let (mut send, mut receive) = self.request(DOWN, bytes).await?;
        send.finish().map_err(wrong)?;
        drain(&mut receive).await
    }

    async fn request(&self, kind: u8, length: u64) -> Result<(SendStream, RecvStream)> {
        let (mut send, receive) = self.0.open_bi().await.map_err(wrong)?;
        send.write_all(&[&[kind][..], &length.to_le_bytes()].concat()).await.map_err(wrong)?;
        Ok((send, receive))
    }
}
