//! The owner of a volume: how user and group ids of this host and of the server's store map.

use crate::namespace::personal_mode;
use crate::nouns::{Kind, Role};

/// The user who mounted a volume.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// The role of the identity.
    pub role: Role,
}

impl Owner {
    /// The ids that a file gets in the store. The volume's owner is 0 there, whoever mounts.
    pub fn to_store(self, uid: u32, gid: u32) -> (u32, u32) {
        if self.role == Role::Host {
            return (uid, gid);
        }
        (if uid == self.uid { 0 } else { uid }, if gid == self.gid { 0 } else { gid })
    }

    /// The ids that this host shows for a file of the store.
    pub fn to_host(self, uid: u32, gid: u32) -> (u32, u32) {
        if self.role == Role::Host {
            return (uid, gid);
        }
        (if uid == 0 { self.uid } else { uid }, if gid == 0 { self.gid } else { gid })
    }

    /// The mode that the server gives a new or changed file for which the host asks for `mode`.
    pub fn mode(self, mode: u32, kind: Kind) -> u32 {
        if self.role == Role::Host { mode } else { personal_mode(mode, kind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volumes_owner_is_the_user_who_mounts_and_root_in_the_store() {
        let owner = Owner { uid: 1000, gid: 100, role: Role::Writer };
        assert_eq!(owner.to_store(1000, 100), (0, 0));
        assert_eq!(owner.to_store(7, 8), (7, 8));
        assert_eq!(owner.to_host(0, 0), (1000, 100));
        let host = Owner { role: Role::Host, ..owner };
        assert_eq!((host.to_store(1000, 100), host.to_host(0, 0)), ((1000, 100), (0, 0)));
    }
}
