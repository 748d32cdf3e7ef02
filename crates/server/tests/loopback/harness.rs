//! A server in this process, and hosts that speak to it as a client would.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use segue_core::chunk::{fingerprint, possession_proof};
use segue_core::nouns::{
    Attr, Base, Caller, ClientId, Fingerprint, Ino, Name, NewNode, Outcome, Piece, PieceBytes,
    Record, Role, Stamped, Store, Timestamp, Version,
};
use segue_core::wire::{
    Applied, Apply, Fetch, Hello, Looked, Lookup, Offer, Put, Refused, Reply, Request, Stored,
    Welcome,
};
use segue_rpc::codec::{BlockReader, encode_block};
use segue_rpc::identity::{Identities, Identity, MountUrl};
use segue_rpc::{Body, CallError, Peer, Target, dial};
use segue_server::admin::{AdminReply, AdminRequest};
use segue_server::{ServeOptions, serve};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Long enough for a loaded machine; nothing asserts that it is needed.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) dir: TempDir,
    running: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) async fn start() -> Server {
        let mut server = Server::new();
        server.begin().await;
        server
    }

    /// A server that has not begun.
    pub(crate) fn new() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Server { dir, running: None, address: listen }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) async fn begin(&mut self) {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let options = ServeOptions {
            data: self.data(),
            listen: self.address,
            record_calls: None,
            priorities: Default::default(),
        };
        let task = tokio::spawn(async move {
            let stopped = async move { drop(stopped.await) };
            serve(options, |address| tell.send(address).unwrap(), stopped).await.unwrap();
        });
        self.address = told.await.expect("the server starts");
        self.running = Some((stop, task));
    }

    pub(crate) async fn stop(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        stop.send(()).unwrap();
        task.await.unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.begin().await;
    }

    pub(crate) async fn admin(&self, request: &AdminRequest) -> AdminReply {
        let body = serde_json::to_string(request).unwrap();
        let answer = http(&self.data(), "POST", "/v1/admin", &body).await;
        serde_json::from_str(&answer).unwrap()
    }

    pub(crate) async fn invite(&self, role: Role, ttl_seconds: u64) -> MountUrl {
        let request = AdminRequest::Invite {
            volume: "home".to_owned(),
            role,
            ttl_seconds,
            host: None,
            no_root_squash: false,
        };
        match self.admin(&request).await {
            AdminReply::Invite { url } => url.parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// A host that has just been let in.
    pub(crate) async fn host(&self, name: &str, role: Role) -> Host {
        let url = self.invite(role, 3600).await;
        let home = self.dir.path().join(name);
        let identities = Identities::at(home);
        segue_rpc::enrol(&url, &identities, name, PATIENCE).await.unwrap();
        let authority = url.invite().unwrap().authority.clone();
        let identity = identities.load(&authority, "home").unwrap().unwrap();
        let target = Target::new(&url, &authority);
        Host { target, identity, name: name.to_owned() }
    }

    /// A session of a new host.
    pub(crate) async fn client(&self, name: &str, role: Role) -> Client {
        self.host(name, role).await.client(name.as_bytes()[0]).await
    }
}

/// One HTTP exchange on the control socket; returns the body.
pub(crate) async fn http(data: &Path, method: &str, path: &str, body: &str) -> String {
    let mut stream =
        tokio::net::UnixStream::connect(segue_server::socket_path(data)).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: segue\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// A host with an identity.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) name: String,
}

impl Host {
    pub(crate) async fn dial(&self) -> Peer {
        dial(&self.target, Some(&self.identity), PATIENCE).await.unwrap()
    }

    pub(crate) fn hello(&self, id: u8) -> Hello {
        Hello {
            volume: "home".to_owned(),
            client: ClientId([id; 16]),
            incarnation: 1,
            host: self.name.clone(),
            acked_below: 0,
            next: u64::MAX,
            known: None,
            was: None,
            fresh_start: false,
        }
    }

    pub(crate) async fn client(&self, id: u8) -> Client {
        let peer = self.dial().await;
        let welcome = match call(&peer, &Request::Hello(self.hello(id))).await {
            Reply::Welcome(welcome) => welcome,
            other => panic!("{other:?}"),
        };
        let next_ino = welcome.grants[0].first;
        Client { peer, welcome, next_ino, seq: 0 }
    }
}

pub(crate) async fn call(peer: &Peer, request: &Request) -> Reply {
    peer.call(request, Body::Empty).await.unwrap().reply
}

/// A session.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    pub(crate) welcome: Welcome,
    pub(crate) next_ino: u64,
    pub(crate) seq: u64,
}

impl Client {
    pub(crate) fn stamp(&mut self, record: Record) -> Stamped {
        self.seq += 1;
        let caller = Caller { uid: 1000, gid: 1000, ..Caller::default() };
        let time = Timestamp { secs: 1_795_250_399, nanos: 0 };
        Stamped { seq: self.seq, time, caller, operation: None, known: None, record }
    }

    pub(crate) async fn send(&self, records: Vec<Stamped>) -> Vec<Outcome> {
        match call(&self.peer, &apply(records)).await {
            Reply::Applied(Applied { outcomes, .. }) => outcomes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn apply(&mut self, record: Record) -> Outcome {
        let stamped = self.stamp(record);
        self.send(vec![stamped]).await.remove(0)
    }

    pub(crate) fn creation(&mut self, name: &str) -> (Ino, Record) {
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        let name = Name::new(name).unwrap();
        let (parent, node) = (Ino::ROOT, NewNode::File);
        (ino, Record::Create { parent, name, ino, node, mode: 0o644, uid: 0, gid: 0 })
    }

    /// A new file in the root, with its version.
    pub(crate) async fn create(&mut self, name: &str) -> (Ino, Version) {
        let (ino, record) = self.creation(name);
        let outcome = self.apply(record).await;
        (ino, done(&outcome, ino).data_version)
    }

    pub(crate) async fn upload(&self, chunks: &[&[u8]]) -> Result<(), Refused> {
        let put = Put {
            chunks: chunks.iter().map(|chunk| (fingerprint(chunk), chunk.len() as u32)).collect(),
            ..Put::default()
        };
        let blocks: Vec<u8> = chunks.iter().flat_map(|chunk| encode_block(chunk)).collect();
        self.put(put, blocks).await
    }

    pub(crate) async fn put(&self, put: Put, blocks: Vec<u8>) -> Result<(), Refused> {
        match self.peer.call(&Request::Put(put), blocks.into()).await.unwrap().reply {
            Reply::Stored(Stored { lacking }) if lacking.is_empty() => Ok(()),
            Reply::Refused(refused) => Err(refused),
            other => panic!("{other:?}"),
        }
    }

    /// Places of the chunks that the server wants.
    pub(crate) async fn offer(&self, chunks: &[&[u8]]) -> Vec<u32> {
        let nonce = self.welcome.nonce;
        let proof = |chunk: &&[u8]| (fingerprint(chunk), possession_proof(&nonce, chunk));
        self.offer_with(chunks.iter().map(proof).collect()).await
    }

    pub(crate) async fn offer_with(&self, chunks: Vec<(Fingerprint, Fingerprint)>) -> Vec<u32> {
        match call(&self.peer, &Request::Offer(Offer { chunks })).await {
            Reply::Wanted(wanted) => wanted.indexes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn attr(&self, ino: Ino) -> Attr {
        match call(&self.peer, &Request::Getattr(ino)).await {
            Reply::Node(found) => found.node.attr,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn lookup(&self, name: &str) -> Option<Attr> {
        let ask = Lookup { parent: Ino::ROOT, name: Name::new(name).unwrap() };
        match call(&self.peer, &Request::Lookup(ask)).await {
            Reply::Looked(Looked { node, .. }) => node.map(|node| node.attr),
            other => panic!("{other:?}"),
        }
    }

    /// A range of a file, with the segments it came as.
    pub(crate) async fn fetch(&self, ask: Fetch) -> Result<(Vec<u8>, Vec<(u64, bool)>), Refused> {
        fetch(&self.peer, ask).await
    }

    /// All bytes of a file, fetched in pieces as a client would.
    pub(crate) async fn content(&self, ino: Ino) -> Vec<u8> {
        let attr = self.attr(ino).await;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < attr.size {
            let (offset, len) = (bytes.len() as u64, attr.size);
            let ask = Fetch { ino, version: attr.data_version, offset, len };
            bytes.extend_from_slice(&self.fetch(ask).await.unwrap().0);
        }
        bytes
    }
}

/// A range of a file, with the segments it came as.
pub(crate) async fn fetch(peer: &Peer, ask: Fetch) -> Result<(Vec<u8>, Vec<(u64, bool)>), Refused> {
    let response = peer.call(&Request::Fetch(ask), Body::Empty).await.unwrap();
    let segments = match response.reply {
        Reply::Fetched(fetched) => fetched.segments,
        Reply::Refused(refused) => return Err(refused),
        other => panic!("{other:?}"),
    };
    let (mut data, mut blocks) = (Vec::new(), BlockReader::new(response.body));
    while let Some(block) = blocks.next().await.unwrap() {
        data.extend_from_slice(&block);
    }
    let (mut bytes, mut rest) = (Vec::new(), &data[..]);
    for (len, is_data) in &segments {
        if *is_data {
            let (first, after) = rest.split_at(*len as usize);
            bytes.extend_from_slice(first);
            rest = after;
        } else {
            bytes.resize(bytes.len() + *len as usize, 0);
        }
    }
    assert!(rest.is_empty());
    Ok((bytes, segments))
}

pub(crate) fn apply(records: Vec<Stamped>) -> Request {
    Request::Apply(Apply { records, chunks: Vec::new(), acked_below: 0, ..Apply::default() })
}

/// The attributes that a record led to.
pub(crate) fn done(outcome: &Outcome, ino: Ino) -> Attr {
    match outcome {
        Outcome::Done { touched } => *touched.iter().find(|attr| attr.ino == ino).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn inline(offset: u64, bytes: &[u8]) -> Piece {
    Piece { offset, bytes: PieceBytes::Inline(bytes.to_vec()) }
}

pub(crate) fn chunk(offset: u64, bytes: &[u8]) -> Piece {
    let (fingerprint, len) = (fingerprint(bytes), bytes.len() as u32);
    Piece { offset, bytes: PieceBytes::Chunk { fingerprint, len } }
}

pub(crate) fn store(ino: Ino, base: Version, size: u64, pieces: Vec<Piece>) -> Record {
    let base = Base::Version(base);
    Record::Store(Store { ino, base, cut: None, size, pieces, mtime: None, whole: false })
}

pub(crate) fn whole(ino: Ino, base: Version, pieces: Vec<Piece>) -> Record {
    let size = pieces.iter().map(|piece| piece.offset + piece.len()).max().unwrap_or(0);
    let base = Base::Version(base);
    Record::Store(Store { ino, base, cut: None, size, pieces, mtime: None, whole: true })
}

/// Why a connection ended, in the words that the host got.
pub(crate) async fn shut_out(peer: &Peer) -> String {
    match tokio::time::timeout(PATIENCE, peer.call(&Request::Statfs(Ino::ROOT), Body::Empty)).await
    {
        Ok(Err(CallError::Lost(reason))) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Bytes that do not compress.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(step).collect()
}
