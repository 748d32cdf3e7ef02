//! What earlier connections told of the paths to other hosts, so that the next one begins better.
//!
//! It is advice: a host may have moved since. So nothing is sent by it that a path may not carry.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::{MtuDiscoveryConfig, TransportConfig};

use crate::congestion::Flight;

/// Addresses that are remembered.
const PATHS_MAX: usize = 4096;
/// On slower paths, bytes a second, packets are smaller than each path carries anyway.
const THIN: u64 = 48_000;
/// What QUIC takes for the first round trip of a path that is not known (RFC 9002, section 6.2.2).
const TRIP_UNKNOWN: Duration = Duration::from_millis(333);
/// The path may have become shorter.
const TRIP_MOST: Duration = Duration::from_secs(2);
/// UDP payload of a packet of 1,500 bytes, over IPv4 and IPv6.
const FULL_V4: u16 = 1472;
const FULL_V6: u16 = 1452;

/// One path, by the last connection over it.
#[derive(Debug, Default)]
pub struct PathKnowledge {
    /// Bytes a second from here; 0 before it was busy.
    rate: AtomicU64,
    /// The round trip of the empty path in microseconds; 0 before the first.
    trip: AtomicU64,
    /// Full packets were not found to pass.
    is_narrow: AtomicBool,
}

impl PathKnowledge {
    pub(crate) fn note(&self, to: IpAddr, flight: &Flight) {
        if !flight.is_learning() {
            self.rate.store(flight.rate(), Ordering::Relaxed);
        }
        if let Some(trip) = flight.base() {
            let micros = u64::try_from(trip.as_micros()).unwrap_or(u64::MAX);
            self.trip.store(micros, Ordering::Relaxed);
        }
        // Without a search nothing is learnt.
        if !self.is_thin() {
            self.is_narrow.store(flight.packet_max() < u64::from(full(to)), Ordering::Relaxed);
        }
    }

    /// The round trip of the empty path, if it is known.
    pub(crate) fn trip(&self) -> Option<Duration> {
        let micros = self.trip.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// QUIC's parameters for another connection `to` that address.
    pub(crate) fn configure(&self, to: IpAddr, config: &mut TransportConfig) {
        config.mtu_discovery_config(self.discovery(to));
        // QUIC repeats a first packet after three times that.
        if let Some(trip) = self.trip() {
            config.initial_rtt(trip.clamp(TRIP_UNKNOWN, TRIP_MOST));
        }
    }

    fn is_thin(&self) -> bool {
        (1..THIN).contains(&self.rate.load(Ordering::Relaxed))
    }

    /// How the largest packet is found. A full one is tried at first, because most paths carry
    /// that; where it did not pass, by halving. `None`: packets stay as each path carries them.
    fn discovery(&self, to: IpAddr) -> Option<MtuDiscoveryConfig> {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(full(to));
        if !self.is_narrow.load(Ordering::Relaxed) {
            // A search ends where it would change less, and its last step is the bound.
            discovery.minimum_change(full(to) - SURE);
        }
        (!self.is_thin()).then_some(discovery)
    }
}

/// Each path carries so many bytes of UDP payload (RFC 9000, section 14).
const SURE: u16 = 1200;

fn full(to: IpAddr) -> u16 {
    if to.to_canonical().is_ipv4() { FULL_V4 } else { FULL_V6 }
}

/// The paths to those who connected here.
#[derive(Debug, Default)]
pub(crate) struct Paths(Mutex<BTreeMap<IpAddr, Arc<PathKnowledge>>>);

impl Paths {
    /// What is known of the path to `address`, if a connection came from there.
    pub(crate) fn to(&self, address: IpAddr) -> Arc<PathKnowledge> {
        self.lock().get(&address).cloned().unwrap_or_default()
    }

    /// A connection came from `address`: what it tells is remembered.
    pub(crate) fn keep(&self, address: IpAddr, known: &Arc<PathKnowledge>) {
        let mut paths = self.lock();
        if paths.len() >= PATHS_MAX {
            paths.retain(|_, known| Arc::strong_count(known) > 1);
        }
        paths.insert(address, Arc::clone(known));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<PathKnowledge>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_connections_that_are_over_are_forgotten_for_others() {
        let paths = Paths::default();
        let address = |number: usize| IpAddr::from((number as u128).to_be_bytes());
        let held = paths.to(address(0));
        held.rate.store(7, Ordering::Relaxed);
        paths.keep(address(0), &held);
        for number in 1..3 * PATHS_MAX {
            paths.keep(address(number), &paths.to(address(number)));
            assert!(paths.lock().len() <= PATHS_MAX);
        }
        assert_eq!(paths.to(address(0)).rate.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_thin_path_is_not_searched_for_larger_packets() {
        let known = PathKnowledge::default();
        let to = IpAddr::from([10, 0, 0, 1]);
        for (rate, is_searched) in [(0, true), (1_229, false), (47_999, false), (48_000, true)] {
            known.rate.store(rate, Ordering::Relaxed);
            assert_eq!(known.discovery(to).is_some(), is_searched, "{rate}");
        }
    }
}
