use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use rustls::pki_types::pem::PemObject;

use super::*;

const AUTHORITY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn authority_is_the_same_after_a_restart_and_its_key_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("identity");
    let made = Authority::open(&directory).unwrap();
    let loaded = Authority::open(&directory).unwrap();
    assert_eq!(made.fingerprint(), loaded.fingerprint());
    assert_eq!(made.derive("x"), loaded.derive("x"));
    assert_ne!(made.derive("x"), made.derive("y"));
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("ca.key")), 0o600);
    assert_eq!(mode(&directory.join("ca.pem")), 0o600);
}

#[test]
fn authority_that_hosts_have_pinned_is_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    Authority::open(directory.path()).unwrap();
    std::fs::remove_file(directory.path().join("ca.key")).unwrap();
    let error = Authority::open(directory.path()).unwrap_err();
    assert!(matches!(error, IdentityError::Missing { .. }), "{error}");
    std::fs::write(directory.path().join("ca.key"), "nonsense").unwrap();
    let error = Authority::open(directory.path()).unwrap_err();
    assert!(matches!(error, IdentityError::Damaged { .. }), "{error}");
}

#[test]
fn server_decides_what_a_host_certificate_says() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let request = params.serialize_request(&key).unwrap();
    let issued = authority.sign(request.der(), "laptop").unwrap();
    let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert!(!certificate.is_ca());
    assert!(certificate.subject_alternative_name().unwrap().is_none());
    let identity = PeerIdentity::of(&der).unwrap();
    assert_eq!(identity.name, "laptop");
    assert_eq!(identity.fingerprint, issued.fingerprint);
}

#[test]
fn signing_request_that_is_none_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(directory.path()).unwrap();
    let mut request = KeyRequest::generate().unwrap().request_der;
    assert!(authority.sign(b"", "laptop").is_err());
    assert!(authority.sign(&request[..request.len() / 2], "laptop").is_err());
    // Another key than the one that signed the request.
    let middle = request.len() / 2;
    request[middle] ^= 1;
    assert!(authority.sign(&request, "laptop").is_err());
}

#[test]
fn identities_are_kept_by_authority() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::open(&directory.path().join("server")).unwrap();
    let identities = Identities::at(directory.path().join("identities"));
    assert!(identities.load(authority.fingerprint(), "home").unwrap().is_none());
    let key = KeyRequest::generate().unwrap();
    let issued = authority.sign(&key.request_der, "laptop").unwrap();
    let place = (authority.fingerprint(), "home");
    identities.store(place, &key, &issued.certificate_pem, Role::Writer).unwrap();
    let identity = identities.load(authority.fingerprint(), "home").unwrap().unwrap();
    assert_eq!(identity.fingerprint(), issued.fingerprint);
    assert_eq!(identity.role(), Some(Role::Writer));
    let key = directory
        .path()
        .join("identities")
        .join(authority.fingerprint())
        .join("home")
        .join("key.pem");
    assert_eq!(mode(&key), 0o600);
    assert!(identities.load("../elsewhere", "home").is_err());
}

#[test]
fn server_of_a_url_is_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let identities = Identities::at(directory.path());
    for url in ["segue://nas/home", "segue://[::1]:99/home", "segue://10.0.0.1:1/home"] {
        let url: MountUrl = url.parse().unwrap();
        assert_eq!(identities.lookup(&url).unwrap(), None);
        identities.remember(&url, AUTHORITY).unwrap();
        assert_eq!(identities.lookup(&url).unwrap().as_deref(), Some(AUTHORITY));
    }
    let other: MountUrl = "segue://nas/work".parse().unwrap();
    assert_eq!(identities.lookup(&other).unwrap(), None);
}

#[test]
fn urls_as_people_write_them() {
    let url: MountUrl = "segue://NAS.example/home".parse().unwrap();
    assert_eq!((url.host(), url.port(), url.volume()), ("nas.example", PORT, "home"));
    let url: MountUrl = "segue://[fe80::1]/home/".parse().unwrap();
    assert_eq!((url.host(), url.port(), url.volume()), ("fe80::1", PORT, "home"));
    assert_eq!(url.to_string(), "segue://[fe80::1]:7420/home");
    let text = format!("segue://10.0.0.1:99/home?invite=a-B_9&ca={AUTHORITY}");
    let url: MountUrl = text.parse().unwrap();
    assert_eq!(url.invite().unwrap().code, "a-B_9");
    assert_eq!(url.to_string(), text);
    assert_eq!(url.plain().to_string(), "segue://10.0.0.1:99/home");
}

#[test]
fn urls_that_are_wrong_say_how() {
    let error = |text: &str| text.parse::<MountUrl>().unwrap_err();
    assert_eq!(error("nas:/home"), UrlError::Scheme);
    assert_eq!(error("segue:///home"), UrlError::Host(String::new()));
    assert_eq!(error("segue://::1/home"), UrlError::Host("::1".into()));
    assert_eq!(error("segue://[nas]/home"), UrlError::Host("[nas]".into()));
    assert_eq!(error("segue://nas:0/home"), UrlError::Port("0".into()));
    assert_eq!(error("segue://nas:70000/home"), UrlError::Port("70000".into()));
    assert_eq!(error("segue://nas"), UrlError::NoVolume("segue://nas".into()));
    assert_eq!(error("segue://nas/a/b"), UrlError::Volume("a/b".into()));
    assert_eq!(error("segue://nas/.."), UrlError::Volume("..".into()));
    assert_eq!(error("segue://nas/home?invite=abc"), UrlError::Query);
    assert_eq!(error(&format!("segue://nas/h?invite=&ca={AUTHORITY}")), UrlError::Code);
    assert_eq!(error("segue://nas/home?invite=abc&ca=1234"), UrlError::Fingerprint);
}

proptest! {
    #[test]
    fn urls_roundtrip(
        host in "[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?|::1|fe80::[1-9a-f]{1,4}",
        port in 1..=u16::MAX,
        volume in "[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}",
        code in prop::option::of("[A-Za-z0-9_-]{1,40}"),
    ) {
        let invite = code.map(|code| Invite { code, authority: AUTHORITY.into() });
        let url = MountUrl::new(&host, port, &volume, invite).unwrap();
        prop_assert_eq!(url.to_string().parse::<MountUrl>(), Ok(url));
    }

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>(), rest in "[a-z:/?&=\\[\\]%]{0,40}") {
        let _ = text.parse::<MountUrl>();
        let _ = format!("segue://{rest}").parse::<MountUrl>();
    }
}
