//! The addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// Addresses that other hosts may reach, those of IPv4 first, in the kernel's order.
#[allow(unsafe_code)]
pub(crate) fn reachable() -> Vec<IpAddr> {
    let mut list = ptr::null_mut();
    // SAFETY: `list` is a valid place for the pointer that the call writes.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: the list is valid and unchanged until it is freed below, and `at` is one of
        // its entries.
        let entry = unsafe { &*at };
        // SAFETY: the kernel's address of an entry is null or a whole socket address.
        found.extend(unsafe { address(entry.ifa_addr) });
        at = entry.ifa_next;
    }
    // SAFETY: `list` came from getifaddrs, is freed once, and nothing points into it any more.
    unsafe { libc::freeifaddrs(list) };
    found.retain(is_reachable);
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// The IP address at `at`, if it is one.
///
/// # Safety
///
/// `at` is null or points to a socket address that is as long as its family says.
#[allow(unsafe_code)]
unsafe fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: not null where it is read, and valid by this function's contract.
    let family = i32::from(unsafe { at.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that it is an IPv4 socket address.
            let address = unsafe { ptr::read_unaligned(at.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is an IPv6 socket address.
            let address = unsafe { ptr::read_unaligned(at.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// Neither this machine itself nor an address that means something on one cable only.
fn is_reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_others_reach_are_named() {
        let found = reachable();
        assert!(found.iter().all(|address| is_reachable(address) && !address.is_loopback()));
        assert!(found.is_sorted_by_key(IpAddr::is_ipv6));
    }
}
