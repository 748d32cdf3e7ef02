//! The URLs that are mounted: `segue://HOST[:PORT]/VOLUME[?invite=CODE&ca=FINGERPRINT]`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The port when the URL names none.
pub const PORT: u16 = 7420;
const SCHEME: &str = "segue://";
/// Longest host name (RFC 1035).
const HOST_MAX: usize = 253;
/// Longest volume name: a file name.
const VOLUME_MAX: usize = 128;
/// Longest code of an invite.
const CODE_MAX: usize = 128;
/// Hex digits of a BLAKE3-256.
const FINGERPRINT_DIGITS: usize = 64;

/// The volume to mount, and the way in for the first time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountUrl {
    host: String,
    port: u16,
    volume: String,
    invite: Option<Invite>,
}

/// The way in, for one use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invite {
    /// The server checks it.
    pub code: String,
    /// Fingerprint of the server's authority. The host checks it.
    pub authority: String,
}

/// Why text is not a URL to mount.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// Another scheme, or none.
    #[error("a URL to mount is segue://HOST[:PORT]/VOLUME, or a whole line of 'segue invite'")]
    Scheme,
    /// The host is missing or not one.
    #[error("'{0}' is not a host name or address (IPv6 addresses stand in brackets)")]
    Host(String),
    /// The port is not a number from 1 to 65535.
    #[error("'{0}' is not a port number from 1 to 65535")]
    Port(String),
    /// The volume is missing.
    #[error(
        "the volume is missing after '{0}': write segue://HOST[:PORT]/VOLUME, for example {0}/home"
    )]
    NoVolume(String),
    /// The volume has other characters.
    #[error("'{0}' is not the name of a volume (letters, digits, '.', '_' and '-')")]
    Volume(String),
    /// Something unknown after the question mark, or one of the two parts is missing.
    #[error("an invite ends with ?invite=CODE&ca=FINGERPRINT: is the URL complete?")]
    Query,
    /// The code has other characters.
    #[error("the invite's code is damaged: is the URL complete?")]
    Code,
    /// The fingerprint is not one.
    #[error("the invite's fingerprint is damaged: is the URL complete?")]
    Fingerprint,
}

impl MountUrl {
    /// Checks the parts and puts them together.
    pub fn new(
        host: &str,
        port: u16,
        volume: &str,
        invite: Option<Invite>,
    ) -> Result<MountUrl, UrlError> {
        if !is_host(host) {
            return Err(UrlError::Host(host.into()));
        }
        if port == 0 {
            return Err(UrlError::Port(port.to_string()));
        }
        if !is_volume(volume) {
            return Err(UrlError::Volume(volume.into()));
        }
        if let Some(invite) = &invite {
            if !is_word(&invite.code, CODE_MAX, b"-_") {
                return Err(UrlError::Code);
            }
            if !is_fingerprint(&invite.authority) {
                return Err(UrlError::Fingerprint);
            }
        }
        // Host names are the same in any case.
        Ok(MountUrl { host: host.to_ascii_lowercase(), port, volume: volume.into(), invite })
    }

    /// Name or address, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// UDP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Volume.
    pub fn volume(&self) -> &str {
        &self.volume
    }

    /// The invite, if the URL is one.
    pub fn invite(&self) -> Option<&Invite> {
        self.invite.as_ref()
    }

    /// The same without the invite, for later mounts.
    pub fn plain(&self) -> MountUrl {
        MountUrl { invite: None, ..self.clone() }
    }

    /// HOST:PORT, an IPv6 address in brackets.
    pub(crate) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for MountUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<MountUrl, UrlError> {
        let rest = text.trim().strip_prefix(SCHEME).ok_or(UrlError::Scheme)?;
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (address, volume) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = host_and_port(address)?;
        let invite = query.map(parse_invite).transpose()?;
        if volume.is_empty() {
            return Err(UrlError::NoVolume(format!("{SCHEME}{address}")));
        }
        MountUrl::new(
            host,
            port.unwrap_or(PORT),
            volume.strip_suffix('/').unwrap_or(volume),
            invite,
        )
    }
}

/// The host without brackets and the port of `HOST[:PORT]`.
///
/// # Errors
/// Neither a name nor an address, or the port is not a number.
pub fn host_and_port(address: &str) -> Result<(&str, Option<u16>), UrlError> {
    let bad_host = || UrlError::Host(address.into());
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(bad_host)?;
            // A name in brackets is no address.
            host.parse::<Ipv6Addr>().map_err(|_| bad_host())?;
            let port = if port.is_empty() {
                None
            } else {
                Some(port.strip_prefix(':').ok_or_else(bad_host)?)
            };
            (host, port)
        }
        None => match address.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(bad_host()),
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    let number = |digits: &str| digits.parse().map_err(|_| UrlError::Port(digits.into()));
    Ok((host, port.map(number).transpose()?))
}

fn parse_invite(query: &str) -> Result<Invite, UrlError> {
    let (mut code, mut authority) = (None, None);
    for part in query.split('&') {
        match part.split_once('=') {
            Some(("invite", value)) => code = Some(value.to_owned()),
            Some(("ca", value)) => authority = Some(value.to_owned()),
            _ => return Err(UrlError::Query),
        }
    }
    match (code, authority) {
        (Some(code), Some(authority)) => Ok(Invite { code, authority }),
        _ => Err(UrlError::Query),
    }
}

impl fmt::Display for MountUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.address(), self.volume)?;
        match &self.invite {
            Some(Invite { code, authority }) => write!(f, "?invite={code}&ca={authority}"),
            None => Ok(()),
        }
    }
}

fn is_host(host: &str) -> bool {
    host.parse::<Ipv6Addr>().is_ok() || is_word(host, HOST_MAX, b"-._")
}

fn is_volume(volume: &str) -> bool {
    is_word(volume, VOLUME_MAX, b"-._") && volume != "." && volume != ".."
}

pub(super) fn is_fingerprint(text: &str) -> bool {
    text.len() == FINGERPRINT_DIGITS
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_word(text: &str, length_max: usize, others: &[u8]) -> bool {
    !text.is_empty()
        && text.len() <= length_max
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}
