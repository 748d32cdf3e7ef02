//! A client of the server: what a mount says to it, without a mount.

use std::time::Duration;

use segue_core::nouns::{Attr, ClientId, Outcome, Stamped};
use segue_core::wire::{Applied, Apply, Hello, Reply, Request};
use segue_rpc::identity::Identity;
use segue_rpc::{Body, Peer, Response, Target, dial, greet};

use super::changes::Changes;
use segue_bed::{Error, Result};

/// When to give up on connecting.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How a volume is reached by a host that is let in.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) volume: &'static str,
    pub(super) target: Target,
    pub(super) identity: Identity,
}

/// One client: a connection, a session, a log.
pub(super) struct Client {
    pub(super) peer: Peer,
    /// Key of the session's proofs.
    pub(super) nonce: [u8; 32],
    pub(super) changes: Changes,
}

impl Client {
    /// Client number `number`, which nobody else is, whose files hold `data`.
    pub(super) async fn open(door: &Door, number: u32, data: Vec<u8>) -> Result<Client> {
        let peer = dial(&door.target, Some(&door.identity), PATIENCE).await.map_err(wrong)?;
        let mut client = [0; 16];
        client[..4].copy_from_slice(&number.to_be_bytes());
        let hello = Hello {
            volume: door.volume.to_owned(),
            client: ClientId(client),
            incarnation: 1,
            host: format!("client-{number}"),
            acked_below: 0,
            next: u64::MAX,
            known: None,
            was: None,
            fresh_start: true,
        };
        let welcome = greet(&peer, hello).await.map_err(wrong)?;
        let numbers = welcome.grants.first().copied();
        let numbers = numbers.ok_or_else(|| wrong("a client got no inode numbers"))?;
        Ok(Client { peer, nonce: welcome.nonce, changes: Changes::new(numbers, data) })
    }

    /// Makes the next `count` changes in one APPLY.
    pub(super) async fn apply_next(&mut self, count: u32) -> Result<()> {
        let acked_below = self.changes.next_seq();
        let records = self.changes.take(count)?;
        self.apply(records, acked_below).await.map(drop)
    }

    /// Sends `records`, of which each must be done; what came of them.
    pub(super) async fn apply(
        &self,
        records: Vec<Stamped>,
        acked_below: u64,
    ) -> Result<Vec<Vec<Attr>>> {
        let sent = records.len();
        let request =
            Request::Apply(Apply { records, chunks: Vec::new(), acked_below, ..Apply::default() });
        let Reply::Applied(Applied { outcomes, .. }) = self.ask(&request).await? else {
            return Err(wrong("APPLY was not answered"));
        };
        let done = |outcome| match outcome {
            Outcome::Done { touched } => Ok(touched),
            other => Err(wrong(format!("a change came to {other:?}"))),
        };
        let done = outcomes.into_iter().map(done).collect::<Result<Vec<_>>>()?;
        if done.len() == sent { Ok(done) } else { Err(wrong("not all changes were tried")) }
    }

    /// Calls without a body.
    pub(super) async fn ask(&self, request: &Request) -> Result<Reply> {
        Ok(self.call(request, Body::Empty).await?.reply)
    }

    pub(super) async fn call(&self, request: &Request, body: Body) -> Result<Response> {
        let response = self.peer.call(request, body).await.map_err(wrong)?;
        match response.reply {
            Reply::Refused(refused) => {
                Err(wrong(format!("{} was refused: {refused:?}", request.name())))
            }
            _ => Ok(response),
        }
    }
}

/// An answer that makes the figure worthless.
pub(super) fn wrong(why: impl ToString) -> Error {
    Error::Wrong(why.to_string())
}
