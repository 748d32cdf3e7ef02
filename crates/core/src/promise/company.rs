//! Company: whether a client is the only one that may know the files of a volume.
//!
//! What a client that is alone removes need not be kept for others. A client that was connected
//! lately counts: it may come back with the file open.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::nouns::{ClientId, Time, VolumeId};

/// Seconds for which a removed file can be read on after its removal, and after each question for
/// its attributes: longer than a host takes from a lookup to the open, and longer than a short loss
/// of the network.
pub const KEPT_SECONDS: u64 = 60;

/// A client that is gone for longer finds no remnant in any case.
const LATELY: Duration = Duration::from_secs(KEPT_SECONDS);

/// The clients that are connected, and those that were lately.
#[derive(Debug, Default)]
pub struct Company {
    here: BTreeMap<(VolumeId, ClientId), u32>,
    /// On any volume if that is not known.
    left: BTreeMap<ClientId, (Option<VolumeId>, Time)>,
}

impl Company {
    /// Nobody is here yet. The server before this one had sessions with `absent`.
    pub fn new(absent: impl IntoIterator<Item = ClientId>, now: Time) -> Company {
        let left = absent.into_iter().map(|client| (client, (None, now))).collect();
        Company { here: BTreeMap::new(), left }
    }

    /// A session begins.
    pub fn enter(&mut self, volume: VolumeId, client: ClientId) {
        *self.here.entry((volume, client)).or_default() += 1;
    }

    /// A session is over.
    pub fn leave(&mut self, volume: VolumeId, client: ClientId, now: Time) {
        if let Some(sessions) = self.here.get_mut(&(volume, client)) {
            *sessions -= 1;
            if *sessions == 0 {
                self.here.remove(&(volume, client));
            }
        }
        self.left.insert(client, (Some(volume), now));
        self.left.retain(|_, (_, at)| now.since(*at) < LATELY);
    }

    /// True if another client than this one may know files of the volume.
    pub fn has_others(&self, volume: VolumeId, client: ClientId, now: Time) -> bool {
        let first = (volume, ClientId([0; 16]));
        let of_volume = self.here.range(first..).take_while(|((of, _), _)| *of == volume);
        let mut left = self.left.iter();
        of_volume.into_iter().any(|((_, other), _)| *other != client)
            || left.any(|(other, (of, at))| {
                *other != client && of.is_none_or(|of| of == volume) && now.since(*at) < LATELY
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_left_lately_counts() {
        let at = |seconds| Time(Duration::from_secs(seconds));
        let [tin, zinc, lead] = [1, 2, 3].map(|id| ClientId([id; 16]));
        let [home, other] = [VolumeId(1), VolumeId(2)];
        let mut company = Company::new([lead], at(0));
        company.enter(home, tin);
        company.enter(other, zinc);
        assert!(company.has_others(home, tin, at(KEPT_SECONDS - 1)), "it may come back");
        assert!(!company.has_others(home, tin, at(KEPT_SECONDS)));
        company.enter(home, zinc);
        company.enter(home, zinc);
        company.leave(home, zinc, at(70));
        assert!(company.has_others(home, tin, at(1000)), "it has another session");
        assert!(company.has_others(home, zinc, at(1000)));
        company.leave(home, zinc, at(1000));
        assert!(company.has_others(home, tin, at(1000 + KEPT_SECONDS - 1)));
        assert!(!company.has_others(home, tin, at(1000 + KEPT_SECONDS)));
        assert!(!company.has_others(other, zinc, at(2000)));
    }
}
