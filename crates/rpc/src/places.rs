//! Places: how many there may be at once, in all and of each who comes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    /// All are taken.
    All,
    /// So many are taken by whoever asks.
    Own,
}

/// A number of places.
#[derive(Debug)]
pub struct Places<K> {
    all_max: usize,
    own_max: usize,
    all: usize,
    own: BTreeMap<K, usize>,
}

impl<K: Ord> Places<K> {
    /// `all_max` places, of which each may have `own_max`.
    pub fn new(all_max: usize, own_max: usize) -> Places<K> {
        Places { all_max, own_max, all: 0, own: BTreeMap::new() }
    }

    /// Takes a place.
    pub fn enter(&mut self, who: K) -> Result<(), Full> {
        if self.own.get(&who).is_some_and(|own| *own >= self.own_max) {
            return Err(Full::Own);
        }
        if self.all >= self.all_max {
            return Err(Full::All);
        }
        self.all += 1;
        *self.own.entry(who).or_default() += 1;
        Ok(())
    }

    /// Gives a place back.
    pub fn leave(&mut self, who: &K) {
        if let Some(own) = self.own.get_mut(who) {
            self.all -= 1;
            *own -= 1;
            if *own == 0 {
                self.own.remove(who);
            }
        }
    }
}

/// Where `address` is: of IPv6 the network of 64 bits, in which a host takes any address.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_end_for_each_and_for_all_and_come_back() {
        let mut places = Places::new(3, 2);
        assert_eq!([(); 3].map(|()| places.enter("tin")), [Ok(()), Ok(()), Err(Full::Own)]);
        assert_eq!([(); 2].map(|()| places.enter("zinc")), [Ok(()), Err(Full::All)]);
        places.leave(&"nobody");
        places.leave(&"tin");
        assert_eq!([(); 2].map(|()| places.enter("zinc")), [Ok(()), Err(Full::Own)]);
        ["zinc", "zinc", "tin"].iter().for_each(|who| places.leave(who));
        assert_eq!((places.all, places.own.len()), (0, 0));
    }
}
