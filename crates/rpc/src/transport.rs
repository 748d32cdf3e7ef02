//! QUIC's parameters, with the reason for each number.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use quinn::{EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use quinn_proto::RandomConnectionIdGenerator;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::congestion;
use crate::options::Control;

/// Calls that the other side may have under way: enough for every thread of a busy build.
pub(crate) const STREAMS_MAX: u32 = 256;
/// Bytes by which one body may be ahead of its reader: 100 ms at 100 MB/s, so that a single body
/// can fill a fast and distant link.
const STREAM_WINDOW_BYTES: u32 = 10 << 20;
/// Bytes by which all bodies may be ahead of their readers. Three unread ones leave room for a
/// fourth. It bounds the memory for one connection.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 4 * STREAM_WINDOW_BYTES;
/// The same for a host without a known identity: some requests to be let in.
const STRANGER_WINDOW_BYTES: u32 = 256 << 10;
/// Bytes of datagrams that may wait to be read.
const DATAGRAMS_BYTES: usize = 4 << 10;
/// How often an idle connection is asked for a sign of life.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A connection is over when three signs of life in a row are missing.
const IDLE_MS: u32 = 20_000;
/// Requested from the kernel for each direction of a socket; the kernel may grant less. Its usual
/// 208 KiB hold 2 ms of a 100 MB/s link.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

pub(crate) fn config(control: Control) -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .ack_frequency_config(Some(congestion::acks()))
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        // Stamps only.
        .datagram_receive_buffer_size(Some(DATAGRAMS_BYTES))
        // The bytes are chosen before QUIC gets them.
        .send_window(u64::from(CONNECTION_WINDOW_BYTES))
        .congestion_controller_factory(control.factory())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_MS))));
    config
}

/// For connections from hosts, which are strangers at first.
pub(crate) fn listening(control: Control) -> TransportConfig {
    let mut config = config(control);
    config.receive_window(VarInt::from_u32(STRANGER_WINDOW_BYTES));
    config
}

/// Bytes of a connection's name, which each packet from a host has: enough for millions at once.
const NAME_BYTES: usize = 4;

/// For a server's socket: QUIC's own names have twice as many bytes.
pub fn name_connections(config: &mut EndpointConfig) {
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(NAME_BYTES)));
}

/// For the one connection of a host's socket. Packets to it need no connection ID, which saves
/// eight bytes each.
pub fn dialing() -> EndpointConfig {
    let mut config = EndpointConfig::default();
    config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(0)));
    config
}

/// A UDP socket at `address`. One at `[::]` takes IPv4 as well.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(
        family,
        SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    // The kernel may grant less. A smaller buffer is slower, not wrong.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    rustix::net::bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}
