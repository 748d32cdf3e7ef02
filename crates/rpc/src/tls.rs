//! TLS 1.3 on both sides: the trusted certificates, and why.
//!
//! A client trusts a server whose leaf certificate is signed by the authority that the client has
//! pinned. The server shows the authority's certificate beside its own. The rest of the leaf
//! (dates, name, purpose, signature) and the proof of its key are verified as for any web server. A
//! server trusts the certificates of its own authority.

use std::sync::{Arc, OnceLock};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use segue_core::wire;

use crate::identity::{Authority, Identity, fingerprint};
use crate::version;

/// Why TLS cannot be configured: bytes on disk are no certificate or key.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}")]
pub struct TlsError(String);

impl TlsError {
    fn of(error: impl ToString) -> TlsError {
        TlsError(error.to_string())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A server answers hosts of every earlier and later version, with advice.
pub(crate) fn server(authority: &Authority) -> Result<QuicServerConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().clone()).map_err(TlsError::of)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        // A host without certificate may be enrolled, and nothing else.
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::of)?;
    let (chain, key) = authority.server_certificate().map_err(TlsError::of)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::of)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(TlsError::of)?;
    config.alpn_protocols = version::answered().map(wire::alpn).collect();
    // A resumed session would skip the check of the client's certificate.
    config.send_tls13_tickets = 0;
    config.try_into().map_err(TlsError::of)
}

pub(crate) fn client(
    pin: Arc<Pin>,
    identity: Option<&Identity>,
) -> Result<QuicClientConfig, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::of)?
        .dangerous()
        .with_custom_certificate_verifier(pin);
    let mut config = match identity {
        Some(identity) => config
            .with_client_auth_cert(vec![identity.certificate()], identity.key())
            .map_err(TlsError::of)?,
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![wire::alpn(wire::VERSION)];
    config.try_into().map_err(TlsError::of)
}

/// The authority that a client trusts, for one connection.
#[derive(Debug)]
pub(crate) struct Pin {
    expected: String,
    /// The authority shown instead.
    found: OnceLock<String>,
    provider: Arc<CryptoProvider>,
}

impl Pin {
    pub(crate) fn new(authority: &str) -> Arc<Pin> {
        let (expected, found) = (authority.to_owned(), OnceLock::new());
        Arc::new(Pin { expected, found, provider: provider() })
    }

    /// Returns the fingerprint of the last certificate shown, if the expected one was missing.
    pub(crate) fn other_authority(&self) -> Option<&str> {
        self.found.get().map(String::as_str)
    }
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority =
            intermediates.iter().find(|certificate| fingerprint(certificate) == self.expected);
        let Some(authority) = authority else {
            let last = intermediates.last().unwrap_or(end_entity);
            let _ = self.found.set(fingerprint(last));
            return Err(CertificateError::UnknownIssuer.into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
