use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, ConnectionError, Endpoint, ServerConfig};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;
use segue_core::nouns::Role;
use segue_core::wire::{Enrolled, VERSION, alpn};

use super::*;
use crate::identity::{Invite, MountUrl, SERVER_NAME};
use crate::tls::Pin;

#[tokio::test]
async fn server_of_another_authority_is_not_believed() {
    let world = World::new();
    let listener = world.listen();
    let mut target = world.target(listener.local_address());
    let expected = "0".repeat(64);
    target.authority = expected.clone();
    let error = dial(&target, None, PATIENCE).await.unwrap_err();
    let found = world.authority.fingerprint().to_owned();
    assert_eq!(error, ConnectError::WrongAuthority { expected, found });
}

/// A server that shows this certificate and speaks these protocols.
fn server(
    (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
    protocols: Vec<Vec<u8>>,
) -> Endpoint {
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = protocols;
    let config = QuicServerConfig::try_from(config).unwrap();
    Endpoint::server(ServerConfig::with_crypto(Arc::new(config)), loopback(0)).unwrap()
}

#[tokio::test]
async fn server_that_shows_an_authority_which_did_not_sign_it_is_not_believed() {
    let (world, other) = (World::new(), World::new());
    // A certificate of the other authority, beside the expected authority's own.
    let (mut chain, key) = other.authority.server_certificate().unwrap();
    chain[1] = world.authority.certificate().clone();
    let impostor = server((chain, key), vec![alpn(VERSION)]);
    let target = world.target(impostor.local_addr().unwrap());
    tokio::spawn(async move { while impostor.accept().await.map(|i| i.accept()).is_some() {} });
    let error = dial(&target, None, PATIENCE).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn host_of_another_authority_is_denied() {
    let (world, other) = (World::new(), World::new());
    let listener = world.listen();
    let target = world.target(listener.local_address());
    let peer = match dial(&target, Some(&other.identity), PATIENCE).await {
        Ok(peer) => peer,
        Err(error) => return assert!(matches!(error, ConnectError::Denied(_)), "{error:?}"),
    };
    let error = peer.call(&getattr(1), Body::Empty).await.unwrap_err();
    let CallError::Lost(CloseReason::Closed { code: CloseCode::Denied, .. }) = error else {
        panic!("{error:?}");
    };
    // The server is none the worse.
    world.dial(listener.local_address()).await;
}

/// How the connection of a client ends that offers `protocol`, and nothing else.
async fn end_of_client(world: &World, address: SocketAddr, protocol: &[u8]) -> ConnectionError {
    let pin = Pin::new(world.authority.fingerprint());
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(pin)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()));
    let endpoint = Endpoint::client(loopback(0)).unwrap();
    match endpoint.connect_with(config, address, SERVER_NAME).unwrap().await {
        Ok(connection) => connection.closed().await,
        Err(error) => error,
    }
}

#[tokio::test]
async fn client_of_another_version_hears_who_is_older() {
    let world = World::new();
    let listener = world.listen();
    let address = listener.local_address();
    let reason = CloseReason::from(end_of_client(&world, address, &alpn(VERSION + 1)).await);
    let words = crate::version::words(VERSION, VERSION + 1);
    assert_eq!(reason, CloseReason::Closed { code: CloseCode::OtherVersion, words });
    let error = end_of_client(&world, address, b"something else").await;
    assert!(crate::close::is_other_protocol(&error), "{error:?}");
    world.dial(address).await;
    // Neither of the two came through the door.
    assert!(listener.accept().await.unwrap().identity().is_some());
}

#[tokio::test]
async fn server_of_another_protocol_is_recognized() {
    let world = World::new();
    for protocols in [vec![b"segue/99".to_vec()], vec![]] {
        let other = server(world.authority.server_certificate().unwrap(), protocols);
        let target = world.target(other.local_addr().unwrap());
        tokio::spawn(async move {
            while let Some(incoming) = other.accept().await {
                tokio::spawn(async move { incoming.await.map(drop) });
            }
        });
        let error = dial(&target, Some(&world.identity), PATIENCE).await.unwrap_err();
        assert!(matches!(error, ConnectError::OtherVersion(_)), "{error:?}");
    }
}

/// A server of another version closes with words; this end must not take that for a refusal
/// that a new invite could lift.
#[tokio::test]
async fn words_of_a_server_of_another_version_arrive() {
    let world = World::new();
    let listener = world.listen();
    let (target, invite) = (world.target(listener.local_address()), invite(&world, &listener, "x"));
    tokio::spawn(async move {
        while let Some(peer) = listener.accept().await {
            peer.close(CloseCode::OtherVersion, "upgrade");
        }
    });
    let host = tempfile::tempdir().unwrap();
    let identities = Identities::at(host.path());
    let error = enrol(&invite, &identities, "laptop", PATIENCE).await.unwrap_err();
    let EnrolError::Connect(ConnectError::OtherVersion(words)) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(words, "upgrade");
    let greeting: Greeting = Arc::new(|peer| {
        Box::pin(async move {
            let reply = peer.call(&getattr(1), Body::Empty).await;
            Err(reply.expect_err("it is closed").into())
        })
    });
    let link = Link::open(target, world.identity.clone(), greeting);
    let error = link.call(&getattr(1), bytes::Bytes::new(), PATIENCE).await.unwrap_err();
    assert_eq!(error, CallError::Refused { why: "upgrade".into() });
    assert_eq!(link.state(), LinkState::OtherVersion { why: "upgrade".into() });
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    let world = World::new();
    let gone = std::net::UdpSocket::bind(loopback(0)).unwrap().local_addr().unwrap();
    let patience = Duration::from_millis(50);
    let error = dial(&world.target(gone), None, patience).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
    let mut target = world.target(gone);
    target.host = "host.invalid".into();
    let error = dial(&target, None, PATIENCE).await.unwrap_err();
    assert!(matches!(error, ConnectError::Resolve(_)), "{error:?}");
}

/// A server that was just starting did not hear the first packet.
#[tokio::test]
async fn silent_server_is_asked_again_from_another_socket() {
    let world = World::new();
    let silent = tokio::net::UdpSocket::bind(loopback(0)).await.unwrap();
    let target = world.target(silent.local_addr().unwrap());
    let dialling = tokio::spawn(async move { dial(&target, None, PATIENCE).await });
    let (_, first) = silent.recv_from(&mut []).await.unwrap();
    let another = async { while silent.recv_from(&mut []).await.unwrap().1 == first {} };
    tokio::time::timeout(PATIENCE, another).await.unwrap();
    dialling.abort();
}

#[tokio::test]
async fn host_is_found_by_name_and_over_ipv6() {
    let world = World::new();
    let listener =
        Listener::bind("[::]:0".parse().unwrap(), &world.authority, &Options::default()).unwrap();
    for host in ["localhost", "127.0.0.1", "::1"] {
        let mut target = world.target(listener.local_address());
        target.host = host.into();
        dial(&target, Some(&world.identity), PATIENCE).await.unwrap();
    }
}

fn invite(world: &World, listener: &Listener, code: &str) -> MountUrl {
    let invite = Invite { code: code.into(), authority: world.authority.fingerprint().into() };
    let port = listener.local_address().port();
    MountUrl::new("127.0.0.1", port, "home", Some(invite)).unwrap()
}

/// Enrols every host that knows the code.
async fn enrolling(world: Arc<World>, listener: Arc<Listener>) {
    while let Some(peer) = listener.accept().await {
        assert!(peer.identity().is_none());
        while let Some(incoming) = peer.accept().await {
            let Request::Enrol(enrol) = &incoming.request else { panic!() };
            let reply = if enrol.code == "right" {
                let issued = world.authority.sign(&enrol.request_der, &enrol.host).unwrap();
                Reply::Enrolled(Enrolled {
                    certificate_pem: issued.certificate_pem,
                    authority_pem: world.authority.certificate_pem().into(),
                    volume: "home".into(),
                    role: Role::Writer,
                })
            } else {
                answer("this invite is used up")
            };
            incoming.reply(reply, Body::Empty).await.unwrap();
        }
    }
}

#[tokio::test]
async fn invite_becomes_an_identity() {
    let world = Arc::new(World::new());
    let listener = Arc::new(world.listen());
    let serving = tokio::spawn(enrolling(world.clone(), listener.clone()));
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::at(directory.path());
    let url = invite(&world, &listener, "wrong");
    let error = enrol(&url, &identities, "laptop", PATIENCE).await.unwrap_err();
    assert_eq!(error.to_string(), "this invite is used up");
    let url = invite(&world, &listener, "right");
    let enrolled = enrol(&url, &identities, "laptop", PATIENCE).await.unwrap();
    assert_eq!(enrolled.volume, "home");
    serving.abort();
    let authority = identities.lookup(&url.plain()).unwrap().unwrap();
    let identity = identities.load(&authority, url.volume()).unwrap().unwrap();
    let target = Target::new(&url.plain(), &authority);
    let _client = dial(&target, Some(&identity), PATIENCE).await.unwrap();
    let peer = listener.accept().await.unwrap();
    assert_eq!(peer.identity().unwrap().fingerprint, identity.fingerprint());
}
