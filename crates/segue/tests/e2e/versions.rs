//! Hosts and servers of different versions of the protocol.
//!
//! The other version is played by a QUIC endpoint in this process that has the server's own
//! certificate authority, so that nothing but the version can be wrong.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ConnectionError, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use segue_bed::Host;
use tokio::runtime::Runtime;

use crate::enrol::{expect, refused};
use crate::world::{World, arg, eventually, failing_mount, save};

/// The name in a server's certificate.
const SERVER_NAME: &str = "segue-server";
/// That of the protocol.
const VERSION: u32 = 17;
/// By this code a connection is closed whose other side speaks another version.
const OTHER_VERSION: u32 = 4;

fn alpn(version: u32) -> Vec<u8> {
    format!("segue/{version}").into_bytes()
}

/// The authority of the server that keeps `data`.
fn authority(data: &Path) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
    let read = |name| std::fs::read_to_string(data.join("identity").join(name)).unwrap();
    let certificate = CertificateDer::from_pem_slice(read("ca.pem").as_bytes()).unwrap();
    let key = KeyPair::from_pem(&read("ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_der(&certificate, key).unwrap();
    (certificate, issuer)
}

/// A socket of `host`.
fn bind(host: &Host, port: u16) -> UdpSocket {
    host.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))).unwrap().unwrap()
}

/// Takes the place of `world`'s server, as one that knows `protocols` and closes every
/// connection with `words`.
fn stand_in(
    world: &World,
    runtime: &Runtime,
    protocols: Vec<Vec<u8>>,
    words: &'static str,
) -> Endpoint {
    let (root, issuer) = authority(world.server.data());
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone(), root], key.into())
        .unwrap();
    tls.alpn_protocols = protocols;
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
    let socket = bind(&world.serving, world.server.addr().port());
    let _entered = runtime.enter();
    let endpoint =
        Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime));
    let endpoint = endpoint.unwrap();
    let accepting = endpoint.clone();
    runtime.spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(async move {
                if let Ok(connection) = incoming.await {
                    connection.close(OTHER_VERSION.into(), words.as_bytes());
                }
            });
        }
    });
    endpoint
}

/// How a connection from `host` to `world`'s server ends that offers `protocol` only.
fn end_of_client(world: &World, host: &Host, protocol: &[u8]) -> ConnectionError {
    let mut roots = RootCertStore::empty();
    roots.add(authority(world.server.data()).0).unwrap();
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut tls = tls.with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let socket = bind(host, 0);
    let server = SocketAddr::from(world.server.addr());
    Runtime::new().unwrap().block_on(async {
        let endpoint =
            Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime)).unwrap();
        match endpoint.connect_with(config, server, SERVER_NAME).unwrap().await {
            Ok(connection) => connection.closed().await,
            Err(error) => error,
        }
    })
}

/// A server of another version: `segue mount` ends with exit code 1 and says what to upgrade,
/// on a host that is enrolled and on one that is just invited. Nothing is lost by it: with the
/// right server back, the mount comes up and the invite is still good.
#[test]
fn a_server_of_another_version_is_not_mounted() {
    let Some(mut world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    save(&mount.path().join("file"), b"text").unwrap();
    mount.umount(&[]).unwrap();
    let (url, invite) = (world.server.url("home"), world.server.invite(&[]).unwrap());
    let ours = format!("version {VERSION}");
    let older = ["this host is older: upgrade"];
    let both = [VERSION + 1, VERSION].map(alpn).to_vec();
    let told: [&[&str]; 2] = [&older, &[&ours, "'segue --version'", "upgrade the older"]];
    let protocols = [both, vec![alpn(VERSION + 1)]];
    for ((protocols, words), told) in protocols.into_iter().zip([older[0], ""]).zip(told) {
        world.server.kill9().unwrap();
        let runtime = Runtime::new().unwrap();
        let other = stand_in(&world, &runtime, protocols, words);
        refused(&world.b, &invite, 1, told);
        let ended = failing_mount(&world.a, &[&url, arg(mount.path())]);
        expect(&ended, 1, told);
        assert!(!mount.is_mounted());
        drop(other);
        runtime.shutdown_timeout(crate::world::PATIENCE);
        world.server.restart().unwrap();
    }
    let mount = world.mount(&world.a);
    assert_eq!(std::fs::read(mount.path().join("file")).unwrap(), b"text");
    let point = world.b.mkdir("mnt").unwrap();
    drop(segue_bed::segue::SegueMount::new(&world.b, &invite, &point, &[]).unwrap());
}

/// A host of another version: the server closes the connection with words that say who has to
/// upgrade, logs which version came from where, and serves others as before.
#[test]
fn a_host_of_another_version_is_refused() {
    let Some(world) = World::new() else { return };
    let closed = end_of_client(&world, &world.a, &alpn(VERSION + 1));
    let ConnectionError::ApplicationClosed(close) = &closed else { panic!("{closed:?}") };
    assert_eq!(close.error_code, OTHER_VERSION.into());
    let words = String::from_utf8_lossy(&close.reason).into_owned();
    let (ours, theirs) =
        (format!("version {VERSION}"), format!("this host version {}", VERSION + 1));
    for word in [&ours, &theirs, "the server is older: upgrade"] {
        assert!(words.contains(word), "{word:?} is not in {words:?}");
    }
    let from = world.a.addr().to_string();
    let logged = |log: &str, cause: &str| {
        log.lines().any(|line| line.contains(cause) && line.contains(&from))
    };
    eventually("the refusal is logged", || logged(&world.server.log(), &words));

    let closed = end_of_client(&world, &world.a, b"other/1");
    assert!(matches!(closed, ConnectionError::ConnectionClosed(_)), "{closed:?}");
    eventually("the refusal is logged", || logged(&world.server.log(), "no version of Segue"));
    let mount = world.mount(&world.a);
    save(&mount.path().join("file"), b"text").unwrap();
}
