//! What carries calls and bodies: Segue's transport, or quinn alone.

use segue_core::wire::Reply;
use segue_rpc::{Body, Peer};

use super::plain;
use crate::transport::drive::{give, question, swallow};
use crate::transport::serve::pour;
use crate::transport::wrong;
use crate::workload::expect;
use segue_bed::Result;

/// A connection; clones are the same one.
#[derive(Debug, Clone)]
pub(super) enum Carrier {
    Segue(Peer),
    Quinn(plain::Connection),
}

impl Carrier {
    /// One small call, and its answer.
    pub(super) async fn call(&self) -> Result<()> {
        match self {
            Carrier::Segue(peer) => {
                let response = peer.call(&question()?, Body::Empty).await.map_err(wrong)?;
                let is_answer = matches!(response.reply, Reply::Refused(_));
                expect(is_answer, || format!("{:?}", response.reply))
            }
            Carrier::Quinn(connection) => connection.call().await,
        }
    }

    /// A body to the server, until that has all of it.
    pub(super) async fn upload(&self, bytes: u64) -> Result<()> {
        match self {
            Carrier::Segue(peer) => {
                let (sender, body) = Body::channel();
                tokio::spawn(pour(sender, bytes));
                peer.call(&swallow(), body).await.map_err(wrong).map(drop)
            }
            Carrier::Quinn(connection) => connection.upload(bytes).await,
        }
    }

    /// A body from the server, until the last of it is here.
    pub(super) async fn download(&self, bytes: u64) -> Result<()> {
        let came = match self {
            Carrier::Segue(peer) => {
                let response = peer.call(&give(bytes), Body::Empty).await.map_err(wrong)?;
                let (mut body, mut came) = (response.body, 0);
                while let Some(piece) = body.next().await.map_err(wrong)? {
                    came += piece.len() as u64;
                }
                came
            }
            Carrier::Quinn(connection) => connection.download(bytes).await?,
        };
        expect(came == bytes, || format!("{came} bytes of {bytes}"))
    }
}
