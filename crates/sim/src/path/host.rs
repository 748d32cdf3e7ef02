//! A connection between two hosts: real QUIC, whose clock and network are simulated.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::congestion::{BbrConfig, CubicConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig, VarInt,
};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SerialNumber};
use rustls::RootCertStore;
use rustls::pki_types::PrivatePkcs8KeyDer;
use segue_rpc::congestion::{Factory, Room, Shared, Stamps, acks};
use segue_rpc::{dialing, name_connections};

/// What holds a sender back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// Segue's law, and no more handed to QUIC than it can send.
    Segue,
    /// The same, behind all others: the mount option `link=background`.
    Background,
    /// TCP's usual one, as QUIC has it, which is given all there is.
    Cubic,
    /// The other one that is common, in the same way.
    Bbr,
}

const NAME: &str = "server";
/// Bytes of a question, and of its answer.
const QUESTION: usize = 60;
const WINDOW: u32 = 256 << 20;
/// Bytes of bulk on one stream. QUIC closes a connection with 1,024 gaps in a stream, and a loss of
/// half a long queue makes more.
const STREAM: u64 = 1 << 20;

/// One end of a connection.
pub(crate) struct Host {
    endpoint: Endpoint,
    handle: Option<ConnectionHandle>,
    connection: Option<Connection>,
    control: Control,
    /// Sends from then on, once connected, and until then.
    bulk_from: Option<Instant>,
    bulk_until: Option<Instant>,
    /// And what it may still take.
    bulk: Option<(StreamId, u64)>,
    /// When each question was asked.
    asked: BTreeMap<StreamId, Instant>,
    /// Questions that wait for room.
    to_ask: Vec<Instant>,
    /// When the pace allows more.
    paced: Option<Instant>,
    stamps: Stamps,
    heard: u64,
    pub(crate) trips: Vec<(Instant, Duration)>,
    pub(crate) received: u64,
    zeros: Bytes,
}

/// What both ends of a connection need.
pub(crate) struct Keys {
    server: ServerConfig,
    client: ClientConfig,
}

impl Keys {
    pub(crate) fn new(control: Control) -> Result<Keys, Box<dyn std::error::Error>> {
        // Other keys have signatures of chance length, and so would packets.
        let signing_key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut parameters = CertificateParams::new([NAME.to_owned()])?;
        parameters.serial_number = Some(SerialNumber::from(1));
        let cert = parameters.self_signed(&signing_key)?;
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone())?;
        let mut server = ServerConfig::with_single_cert(vec![cert.der().clone()], key.into())?;
        let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
        let mut transport = TransportConfig::default();
        transport
            .ack_frequency_config(Some(acks()))
            .stream_receive_window(VarInt::from_u32(WINDOW))
            .receive_window(VarInt::from_u32(WINDOW))
            .send_window(u64::from(WINDOW));
        match control {
            Control::Segue | Control::Background => {
                transport.congestion_controller_factory(Arc::new(Factory))
            }
            Control::Cubic => {
                transport.congestion_controller_factory(Arc::new(CubicConfig::default()))
            }
            Control::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        };
        let transport = Arc::new(transport);
        server.transport_config(transport.clone());
        client.transport_config(transport);
        Ok(Keys { server, client })
    }
}

impl Host {
    /// An end that listens.
    pub(crate) fn listening(
        keys: &Keys,
        control: Control,
        address: SocketAddr,
        now: Instant,
    ) -> Host {
        Host::new(Some(Arc::new(keys.server.clone())), control, address, now)
    }

    /// An end that connects.
    pub(crate) fn connecting(
        keys: &Keys,
        control: Control,
        (address, to): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Host {
        let mut host = Host::new(None, control, address, now);
        if let Ok((handle, connection)) = host.endpoint.connect(now, keys.client.clone(), to, NAME)
        {
            host.handle = Some(handle);
            host.connection = Some(connection);
        }
        host
    }

    fn new(
        server: Option<Arc<ServerConfig>>,
        control: Control,
        address: SocketAddr,
        now: Instant,
    ) -> Host {
        let seed = Some([u8::try_from(address.port() % 256).unwrap_or(0); 32]);
        let config = match server {
            Some(_) => {
                let mut config = EndpointConfig::default();
                name_connections(&mut config);
                config
            }
            None => dialing(),
        };
        Host {
            endpoint: Endpoint::new(Arc::new(config), server, true, seed),
            handle: None,
            connection: None,
            control,
            bulk_from: None,
            bulk_until: None,
            bulk: None,
            asked: BTreeMap::new(),
            to_ask: Vec::new(),
            paced: None,
            stamps: Stamps::new(now),
            heard: 0,
            trips: Vec::new(),
            received: 0,
            zeros: Bytes::from(vec![0; 64 << 10]),
        }
    }

    /// Sends for ever from then on, or until then.
    pub(crate) fn send_bulk(&mut self, from: Instant, until: Option<Instant>) {
        self.bulk_from = Some(from);
        self.bulk_until = until;
    }

    /// Asks a question as soon as there is room.
    pub(crate) fn ask(&mut self, now: Instant) {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_handshaking()) {
            self.to_ask.push(now);
        }
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.to_ask.len() + self.asked.len()
    }

    /// Takes a packet in.
    pub(crate) fn receive(&mut self, now: Instant, from: SocketAddr, packet: BytesMut) {
        let mut answer = Vec::new();
        let event = self.endpoint.handle(now, from, None, None, packet, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some(connection) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok((handle, connection)) =
                    self.endpoint.accept(incoming, now, &mut answer, None)
                {
                    self.handle = Some(handle);
                    self.connection = Some(connection);
                }
            }
            _ => {}
        }
    }

    /// When something is due.
    pub(crate) fn timeout(&mut self) -> Option<Instant> {
        let due = self.connection.as_mut()?.poll_timeout();
        [due, self.paced].into_iter().flatten().min()
    }

    /// Does what is due and sends what can be sent.
    pub(crate) fn act(&mut self, now: Instant, mut send: impl FnMut(BytesMut)) {
        let Some(connection) = &mut self.connection else { return };
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            connection.handle_timeout(now);
        }
        self.read(now);
        self.write(now);
        let (Some(connection), Some(handle)) = (&mut self.connection, self.handle) else { return };
        loop {
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(handle, event) {
                    connection.handle_event(event);
                }
            }
            let mut packets = Vec::new();
            let Some(transmit) = connection.poll_transmit(now, 10, &mut packets) else { break };
            let Transmit { size, segment_size, .. } = transmit;
            let segment = segment_size.unwrap_or(size).max(1);
            for packet in packets.get(..size).unwrap_or_default().chunks(segment) {
                send(BytesMut::from(packet));
            }
        }
    }

    fn read(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else { return };
        let mut readable = Vec::new();
        while let Some(event) = connection.poll() {
            match event {
                Event::Stream(StreamEvent::Readable { id }) => readable.push(id),
                Event::DatagramReceived => {
                    while let Some(bytes) = connection.datagrams().recv() {
                        let Some(shared) = Shared::from(connection.congestion_state().clone_box())
                        else {
                            continue;
                        };
                        if let Some(echo) =
                            self.stamps.take(now, connection.stats().udp_rx.bytes, &bytes)
                        {
                            shared.flight().handle_echo(now, echo);
                        }
                    }
                }
                _ => {}
            }
        }
        while let Some(id) = connection.streams().accept(Dir::Bi) {
            readable.push(id);
        }
        for id in readable {
            let mut stream = connection.recv_stream(id);
            let (mut bytes, mut ended) = (0, false);
            if let Ok(mut chunks) = stream.read(true) {
                loop {
                    match chunks.next(usize::MAX) {
                        Ok(Some(chunk)) => bytes += chunk.bytes.len(),
                        Ok(None) => {
                            ended = true;
                            break;
                        }
                        Err(_) => break,
                    }
                }
                let _ = chunks.finalize();
            }
            self.received += bytes as u64;
            if !ended || id.dir() == Dir::Uni {
                continue;
            }
            match self.asked.remove(&id) {
                Some(at) => self.trips.push((now, now.saturating_duration_since(at))),
                None => {
                    let mut stream = connection.send_stream(id);
                    let _ = stream.set_priority(1);
                    let _ = stream.write(&self.zeros[..QUESTION]);
                    let _ = stream.finish();
                }
            }
        }
    }

    /// Hands to QUIC what can be sent, as Segue's writer does.
    fn write(&mut self, now: Instant) {
        self.paced = None;
        let Some(connection) = &self.connection else { return };
        if connection.is_handshaking() {
            return;
        }
        let shared = match self.control {
            Control::Segue | Control::Background => {
                Shared::from(connection.congestion_state().clone_box())
            }
            Control::Cubic | Control::Bbr => None,
        };
        if let Some(shared) = &shared {
            shared.flight().set_background(now, self.control == Control::Background);
            self.write_stamp(now, shared);
        }
        self.write_questions(now, shared.as_deref());
        let is_over = self.bulk_until.is_some_and(|until| now >= until);
        if self.bulk_from.is_some_and(|from| now >= from) && !is_over {
            self.write_bulk(now, shared.as_deref());
        } else if let Some(shared) = &shared {
            shared.flight().handle_idle();
        }
    }

    fn write_stamp(&mut self, now: Instant, shared: &Shared) {
        let Some(connection) = &mut self.connection else { return };
        let mut flight = shared.flight();
        if let Some(bytes) = self.stamps.next(now, flight.stamp_period()) {
            flight.handle_stamp(&bytes);
            drop(flight);
            let _ = connection.datagrams().send(bytes.into(), true);
        }
    }

    fn write_questions(&mut self, now: Instant, shared: Option<&Shared>) {
        let Some(connection) = &mut self.connection else { return };
        while let Some(at) = self.to_ask.first().copied() {
            let room = shared.map(|shared| shared.flight().room(now, true));
            if room.is_some_and(|room| !matches!(room, Room::Now(_))) {
                return;
            }
            let Some(id) = connection.streams().open(Dir::Bi) else { return };
            self.to_ask.remove(0);
            let mut stream = connection.send_stream(id);
            let _ = stream.set_priority(1);
            let _ = stream.write(&self.zeros[..QUESTION]);
            let _ = stream.finish();
            self.asked.insert(id, at);
            if let Some(shared) = shared {
                shared.flight().handle_handed(QUESTION as u64, true);
            }
        }
    }

    fn write_bulk(&mut self, now: Instant, shared: Option<&Shared>) {
        let Some(connection) = &mut self.connection else { return };
        loop {
            let (bulk, left) = match self.bulk {
                Some(bulk) => bulk,
                None => {
                    let Some(id) = connection.streams().open(Dir::Uni) else { return };
                    *self.bulk.insert((id, STREAM))
                }
            };
            let room = match shared {
                Some(shared) => {
                    let mut flight = shared.flight();
                    if self.received > self.heard {
                        flight.handle_acks_aside();
                    }
                    flight.room(now, false)
                }
                // Two windows are always more than it can send.
                None => {
                    let window = 2 * connection.congestion_state().window();
                    connection.set_send_window(window.max(64 << 10));
                    Room::Now(u64::MAX)
                }
            };
            let room = match room {
                Room::Now(bytes) => bytes,
                Room::At(at) => {
                    self.paced = Some(at);
                    return;
                }
                Room::Later => return,
            };
            let most = room.min(left);
            let wanted =
                usize::try_from(most).map_or(self.zeros.len(), |most| most.min(self.zeros.len()));
            let mut stream = connection.send_stream(bulk);
            let Ok(written) = stream.write(&self.zeros[..wanted]) else {
                return;
            };
            let left = left - written as u64;
            self.bulk = if left == 0 {
                let _ = stream.finish();
                None
            } else {
                Some((bulk, left))
            };
            self.heard = self.received;
            if let Some(shared) = shared {
                shared.flight().handle_handed(written as u64, false);
            }
        }
    }
}
