//! Hosts and servers of different versions: neither serves the other, and both give advice.
//!
//! A host offers its one version. A server completes the handshake with a host of any version, and
//! closes at once if it differs from its own. The closing words reach hosts of all versions; an
//! alert of TLS would carry none. So [`CloseCode`](crate::CloseCode) on the wire never changes its
//! meaning.

use std::cmp::Ordering;

use quinn::Connection;
use quinn::crypto::rustls::HandshakeData;
use segue_core::wire::{VERSION, alpn};

/// The highest version that a server answers with words: far more than there will be.
const ANSWERED_MAX: u32 = 99;

/// The versions that a server answers, its own and preferred one first.
pub(crate) fn answered() -> impl Iterator<Item = u32> {
    std::iter::once(VERSION).chain((1..=ANSWERED_MAX).filter(|version| *version != VERSION))
}

/// The other side's version on a server's connection, if it is not ours.
pub(crate) fn other_version(connection: &Connection) -> Option<u32> {
    let data = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
    let protocol = data.protocol?;
    answered().find(|version| alpn(*version) == protocol).filter(|version| *version != VERSION)
}

/// The advice of a server of version `ours` to a host of version `theirs`.
pub(crate) fn words(ours: u32, theirs: u32) -> String {
    let older = match ours.cmp(&theirs) {
        Ordering::Less => "the server is older: upgrade Segue there",
        _ => "this host is older: upgrade Segue here",
    };
    format!(
        "the server speaks version {ours} of Segue's protocol, this host version {theirs}; {older}"
    )
}

/// The words of a host about a server that shares no version and gives no reason.
pub(crate) fn silent_words() -> String {
    format!(
        "the server does not speak version {VERSION} of Segue's protocol, which this host speaks; \
         compare 'segue --version' on both and upgrade the older"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_who_is_older() {
        assert!(
            words(1, 2).ends_with("this host version 2; the server is older: upgrade Segue there")
        );
        assert!(
            words(2, 1).ends_with("this host version 1; this host is older: upgrade Segue here")
        );
    }

    #[test]
    fn own_version_is_preferred() {
        assert_eq!(answered().next(), Some(VERSION));
        assert_eq!(answered().count(), ANSWERED_MAX as usize);
    }
}
