//! A server's certificate authority.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

use super::{IdentityError, SERVER_NAME, files, fingerprint};

/// File of the authority's key.
const KEY: &str = "ca.key";
/// File of its certificate.
const CERTIFICATE: &str = "ca.pem";
/// How long certificates are valid. It is long, because an unattended server must not stop on some
/// day. An unwanted host is revoked.
const VALID: Duration = Duration::days(3653);
/// The authority outlives the certificates that it signs late in a long service.
const AUTHORITY_VALID: Duration = Duration::days(3 * 3653);
/// Certificates are valid from a day ago, for hosts whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::days(1);
/// Longest host name that goes into a certificate (X.509's ub-common-name).
const NAME_MAX: usize = 64;

/// The authority of one server: made once, then kept in its data directory.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    fingerprint: String,
}

/// A certificate for a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    /// PEM, for the host.
    pub certificate_pem: String,
    /// Hex BLAKE3 of its DER, under which the server knows the host.
    pub fingerprint: String,
}

impl Authority {
    /// Loads the authority in `directory`, or makes one where there is none yet.
    pub fn open(directory: &Path) -> Result<Authority, IdentityError> {
        match files::read(&directory.join(CERTIFICATE))? {
            Some(_) => Self::load(directory),
            // Without its certificate a key was never used.
            None => Self::make(directory),
        }
    }

    /// Loads the authority in `directory`. Hosts have pinned its certificate, so a new authority in
    /// place of a missing file would lock all of them out.
    pub fn load(directory: &Path) -> Result<Authority, IdentityError> {
        let (key_path, certificate_path) = (directory.join(KEY), directory.join(CERTIFICATE));
        let text = |path: &Path| match files::read(path)? {
            Some(bytes) => {
                String::from_utf8(bytes).map_err(|error| IdentityError::damaged(path, error))
            }
            None => Err(IdentityError::Missing { path: path.to_owned() }),
        };
        let (key, certificate) = (text(&key_path)?, text(&certificate_path)?);
        let key =
            KeyPair::from_pem(&key).map_err(|error| IdentityError::damaged(&key_path, error))?;
        Authority::from_parts(key, certificate)
            .map_err(|error| IdentityError::damaged(&certificate_path, error))
    }

    /// Makes another authority in `directory`. Certificates of the last one lose their value. Its
    /// files stay, as `*.old`.
    pub fn renew(directory: &Path) -> Result<Authority, IdentityError> {
        // The certificate first: a key without one was never used.
        [CERTIFICATE, KEY].into_iter().try_for_each(|name| files::set_aside(directory, name))?;
        Self::make(directory)
    }

    fn make(directory: &Path) -> Result<Self, IdentityError> {
        let pair = KeyPair::generate()?;
        // A name of its own: certificates name their issuer. Two authorities of one name would be
        // confused until the signature fails.
        let unique = fingerprint(pair.public_key_raw());
        let name = format!("segue authority {}", unique.get(..16).unwrap_or_default());
        let mut params = params(&name, AUTHORITY_VALID);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate_pem = params.self_signed(&pair)?.pem();
        files::make_directory(directory)?;
        files::write(&directory.join(KEY), pair.serialize_pem().as_bytes())?;
        files::write(&directory.join(CERTIFICATE), certificate_pem.as_bytes())?;
        Authority::from_parts(pair, certificate_pem)
    }

    fn from_parts(key: KeyPair, certificate_pem: String) -> Result<Authority, IdentityError> {
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| {
                IdentityError::Invalid { what: "certificate", words: error.to_string() }
            })?;
        let words = "it does not belong to the key beside it";
        if public_key(&certificate).as_deref() != Some(key.public_key_raw()) {
            return Err(IdentityError::Invalid { what: "certificate", words: words.to_owned() });
        }
        let fingerprint = fingerprint(&certificate);
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Authority { issuer, certificate, certificate_pem, fingerprint })
    }

    /// Hex BLAKE3 of the authority's certificate, which invites pin.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The authority's certificate, PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Certifies the key in a host's PKCS #10 request. Only the key of the request counts: the
    /// server decides the content of the certificate.
    pub fn sign(&self, request_der: &[u8], host: &str) -> Result<Issued, IdentityError> {
        let invalid = |error: rcgen::Error| IdentityError::Invalid {
            what: "signing request",
            words: error.to_string(),
        };
        let mut request =
            CertificateSigningRequestParams::from_der(&request_der.into()).map_err(invalid)?;
        request.params = params(host, VALID);
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = request.signed_by(&self.issuer)?;
        Ok(Issued {
            certificate_pem: certificate.pem(),
            fingerprint: fingerprint(certificate.der()),
        })
    }

    /// A fresh certificate for the server itself: its chain and key. No host pins it, so it is made
    /// at each start and never stored.
    pub(crate) fn server_certificate(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), IdentityError> {
        let key = KeyPair::generate()?;
        let mut params = params(SERVER_NAME, VALID);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(SERVER_NAME.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((vec![certificate.der().clone(), self.certificate.clone()], key.into()))
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A secret key for `purpose`, the same after a restart.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, self.issuer.key().serialized_der())
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("fingerprint", &self.fingerprint).finish()
    }
}

fn params(name: &str, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + valid;
    params.use_authority_key_identifier_extension = true;
    params
}

/// The public key in a certificate.
fn public_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.tbs_certificate.subject_pki.subject_public_key.data.into_owned())
}
