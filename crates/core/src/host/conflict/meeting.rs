//! The server that a cache belongs to.

/// How a host meets a server for the volume of a cache, before anything is sent to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// It is the cache's server, or the cache has none.
    Known,
    /// It takes the other server's place, as the user said.
    Replaced,
    /// It is another server: it gets nothing.
    Refused,
}

/// Decides about a server whose authority has the fingerprint `found`. The cache belongs to the
/// server of `known`; `is_replaced` says that the user accepts another one.
pub fn meet(known: Option<&str>, found: &str, is_replaced: bool) -> Meeting {
    match known {
        Some(known) if known != found && is_replaced => Meeting::Replaced,
        Some(known) if known != found => Meeting::Refused,
        _ => Meeting::Known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_met_only_if_the_user_says_so() {
        assert_eq!(meet(None, "one", false), Meeting::Known);
        assert_eq!(meet(Some("one"), "one", false), Meeting::Known);
        assert_eq!(meet(Some("one"), "one", true), Meeting::Known);
        assert_eq!(meet(Some("one"), "other", true), Meeting::Replaced);
        assert_eq!(meet(Some("one"), "other", false), Meeting::Refused);
    }
}
