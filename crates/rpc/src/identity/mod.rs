//! Identities: a server's own authority, the hosts it has enrolled, and the URLs that invite.
//!
//! Each server is its own certificate authority, and trusts no other. An invite names the authority
//! by the BLAKE3 of its certificate, so the first contact already reaches the right server. The
//! host makes its key and sends a signing request with the invite's code. It keeps the certificate,
//! and its key never leaves it. Certificates live long; the server remembers which of them are
//! revoked.

mod authority;
mod files;
mod identities;
mod url;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use segue_core::nouns::Role;
use std::io;
use std::path::{Path, PathBuf};

pub use authority::{Authority, Issued};
pub use identities::Identities;
pub use url::{Invite, MountUrl, PORT, UrlError, host_and_port};

/// The name in every server's certificate. Hosts dial by addresses that change, so the name tells
/// nothing. The authority is verified instead.
pub(crate) const SERVER_NAME: &str = "segue-server";

/// Why an identity cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file failed.
    #[error("{path}: {error}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A necessary file is missing.
    #[error("{path} is missing")]
    Missing {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file has wrong content.
    #[error("{path} is damaged: {words}")]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The fault.
        words: String,
    },
    /// Bytes from outside are not a certificate or a signing request.
    #[error("not a valid {what}: {words}")]
    Invalid {
        /// The expected kind of bytes.
        what: &'static str,
        /// The fault.
        words: String,
    },
    /// A certificate or key could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl IdentityError {
    fn damaged(path: &Path, words: impl ToString) -> IdentityError {
        IdentityError::Damaged { path: path.to_owned(), words: words.to_string() }
    }
}

/// Digits of an identity's fingerprint that are shown.
const ID_DIGITS: usize = 16;

/// Hex BLAKE3 of a certificate's DER.
pub fn fingerprint(certificate_der: &[u8]) -> String {
    blake3::hash(certificate_der).to_hex().to_string()
}

/// The ID of an identity, as people see it: the first digits of its fingerprint.
pub fn short(fingerprint: &str) -> &str {
    fingerprint.get(..ID_DIGITS).unwrap_or(fingerprint)
}

/// Why an identity cannot be read.
enum DamagedPem {
    Certificate(String),
    Key(String),
}

/// A host's key and the certificate that one server gave it.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    role: Option<Role>,
}

impl Clone for Identity {
    fn clone(&self) -> Identity {
        Identity {
            certificate: self.certificate.clone(),
            key: self.key.clone_key(),
            role: self.role,
        }
    }
}

impl Identity {
    fn from_pem(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Identity, DamagedPem> {
        let certificate = CertificateDer::from_pem_slice(certificate_pem)
            .map_err(|error| DamagedPem::Certificate(error.to_string()))?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(key_pem)
            .map_err(|error| DamagedPem::Key(error.to_string()))?;
        Ok(Identity { certificate, key, role: None })
    }

    /// What it was allowed to do when it was enrolled: no server makes more of it later. `None` if
    /// an earlier version enrolled it.
    pub fn role(&self) -> Option<Role> {
        self.role
    }

    /// Hex BLAKE3 of the certificate, by which the server lists and revokes it.
    pub fn fingerprint(&self) -> String {
        fingerprint(&self.certificate)
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key().into()
    }
}

/// A new key with the request to certify it.
pub struct KeyRequest {
    key: rcgen::KeyPair,
    /// PKCS #10, DER.
    pub request_der: Vec<u8>,
}

impl KeyRequest {
    /// Makes a key.
    pub fn generate() -> Result<KeyRequest, IdentityError> {
        let key = rcgen::KeyPair::generate()?;
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        Ok(KeyRequest { key, request_der: request.der().to_vec() })
    }

    /// The key, PKCS #8 in PEM.
    fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }
}

/// The certificate that the other side of a connection has shown and proved to own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerIdentity {
    /// Hex BLAKE3 of the certificate.
    pub fingerprint: String,
    /// The certificate's serial number, hex.
    pub serial: String,
    /// The certificate's common name: the host, as it was enrolled.
    pub name: String,
    /// The certificate.
    pub der: Vec<u8>,
}

impl PeerIdentity {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<PeerIdentity> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let name = parsed.subject().iter_common_name().next();
        Some(PeerIdentity {
            fingerprint: fingerprint(certificate),
            serial: hex(parsed.raw_serial()),
            name: name.and_then(|name| name.as_str().ok()).unwrap_or_default().to_owned(),
            der: certificate.to_vec(),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
