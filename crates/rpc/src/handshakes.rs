//! Which handshakes a server begins: so many at once that a thousand hosts that return get in
//! within a second, and none that keep the others out.
//!
//! An address that nobody has proven may be forged: these get few places, and then must prove
//! theirs. A proven one gets few places too, because whoever has it may only knock. Some places are
//! left to networks from which hosts came lately.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::places::{Full, Places, network};

/// Handshakes under way, and connections that wait to be accepted.
pub(crate) const HANDSHAKES_MAX: usize = 256;
/// Of these, handshakes with addresses that may be forged.
const UNPROVEN_MAX: usize = 64;
/// Handshakes with proven addresses of networks from which no host came lately.
const STRANGE_MAX: usize = 128;
/// Of these, handshakes with one network.
const OF_STRANGE_MAX: usize = 8;
/// Of the others, handshakes with one network, behind which there may be a whole office.
const OF_KNOWN_MAX: usize = 64;
/// Networks that are remembered, the latest.
const NETWORKS_MAX: usize = 4096;

/// The handshakes under way.
#[derive(Debug)]
pub(crate) struct Handshakes {
    unproven: Places<()>,
    strange: Places<IpAddr>,
    known: Places<IpAddr>,
    lately: Lately,
}

/// The networks from which hosts with an identity came, in the order of their last time.
#[derive(Debug, Default)]
struct Lately {
    next: u64,
    times: BTreeMap<IpAddr, u64>,
    order: BTreeSet<(u64, IpAddr)>,
}

/// The place of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HandshakePlace {
    Unproven,
    Strange(IpAddr),
    Known(IpAddr),
}

/// What becomes of a handshake that a host begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Enter(HandshakePlace),
    /// Once the host has proven its address.
    Prove,
    /// Not now. The host asks again within a second by itself.
    Wait,
    /// Not now: there is no place for anybody like it.
    Refuse,
}

impl Default for Handshakes {
    fn default() -> Handshakes {
        let known = HANDSHAKES_MAX - UNPROVEN_MAX - STRANGE_MAX;
        Handshakes {
            unproven: Places::new(UNPROVEN_MAX, UNPROVEN_MAX),
            strange: Places::new(STRANGE_MAX, OF_STRANGE_MAX),
            known: Places::new(known, OF_KNOWN_MAX),
            lately: Lately::default(),
        }
    }
}

impl Handshakes {
    /// Takes a place for a host at `address`, which it has proven or not.
    pub(crate) fn admit(&mut self, address: IpAddr, is_proven: bool) -> Admission {
        if !is_proven {
            let entered = self.unproven.enter(());
            return entered
                .map_or(Admission::Prove, |()| Admission::Enter(HandshakePlace::Unproven));
        }
        let from = network(address);
        if self.lately.times.contains_key(&from) && self.known.enter(from).is_ok() {
            return Admission::Enter(HandshakePlace::Known(from));
        }
        match self.strange.enter(from) {
            Ok(()) => Admission::Enter(HandshakePlace::Strange(from)),
            Err(Full::Own) => Admission::Wait,
            Err(Full::All) => Admission::Refuse,
        }
    }

    /// A handshake has ended.
    pub(crate) fn leave(&mut self, place: HandshakePlace) {
        match place {
            HandshakePlace::Unproven => self.unproven.leave(&()),
            HandshakePlace::Strange(from) => self.strange.leave(&from),
            HandshakePlace::Known(from) => self.known.leave(&from),
        }
    }

    /// A host with an identity came from `address`.
    pub(crate) fn came(&mut self, address: IpAddr) {
        let Lately { next, times, order } = &mut self.lately;
        let from = network(address);
        if let Some(before) = times.insert(from, *next) {
            order.remove(&(before, from));
        }
        order.insert((*next, from));
        *next += 1;
        if times.len() > NETWORKS_MAX
            && let Some((_, oldest)) = order.pop_first()
        {
            times.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    /// As many as get in.
    fn entered(handshakes: &mut Handshakes, from: impl Iterator<Item = IpAddr>) -> usize {
        from.filter(|from| matches!(handshakes.admit(*from, true), Admission::Enter(_))).count()
    }

    /// One address had filled all places, and nobody else got in.
    #[test]
    fn one_address_keeps_nobody_out() {
        let mut handshakes = Handshakes::default();
        assert_eq!(entered(&mut handshakes, (0..1000).map(|_| v4(7))), OF_STRANGE_MAX);
        assert_eq!(handshakes.admit(v4(7), true), Admission::Wait);
        let network = |low| IpAddr::from(Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | low));
        assert_eq!(entered(&mut handshakes, (0..1000).map(network)), OF_STRANGE_MAX);
        assert_eq!(handshakes.admit(v4(8), true), Admission::Enter(HandshakePlace::Strange(v4(8))));
        handshakes.leave(HandshakePlace::Strange(v4(7)));
        assert_eq!(handshakes.admit(v4(7), true), Admission::Enter(HandshakePlace::Strange(v4(7))));
    }

    /// A thousand addresses fill the places of strangers, and forged ones those of the unproven.
    #[test]
    fn places_are_left_to_networks_from_which_hosts_came() {
        let mut handshakes = Handshakes::default();
        handshakes.came(v4(1));
        let unproven = (0..1000).filter(|from| {
            matches!(handshakes.admit(v4(*from), false), Admission::Enter(HandshakePlace::Unproven))
        });
        assert_eq!(unproven.count(), UNPROVEN_MAX);
        assert_eq!(handshakes.admit(v4(1), false), Admission::Prove);
        assert_eq!(entered(&mut handshakes, (100..1100).map(v4)), STRANGE_MAX);
        assert_eq!(handshakes.admit(v4(5000), true), Admission::Refuse);
        assert_eq!(handshakes.admit(v4(1), true), Admission::Enter(HandshakePlace::Known(v4(1))));
        for from in 0..u32::try_from(NETWORKS_MAX).unwrap() {
            handshakes.came(v4(10_000 + from));
        }
        assert_eq!(handshakes.admit(v4(1), true), Admission::Refuse, "that was long ago");
        assert_eq!(handshakes.lately.order.len(), NETWORKS_MAX);
    }
}
