//! Extended attributes: the user's own, and `user.segue.*`, which answer where a file is, but for
//! `user.segue.persist`, which says how soon it is to be with the server.

use segue_core::host::cache::XattrMap;
use segue_core::host::call::{Look, Seen};
use segue_core::namespace::{XATTR_COUNT_MAX, check_xattr_shape};
use segue_core::nouns::{Caller, Ino, Kind};
use segue_core::persist::ATTRIBUTE;
use segue_core::refusal::Refusal;

use crate::mount::Mount;

const OWN: &[u8] = b"user.segue.";

/// Whether anybody may set it: the answers of this host are nobody's.
fn is_settable(name: &[u8]) -> bool {
    name == ATTRIBUTE || name.starts_with(b"user.") && !name.starts_with(OWN)
}

impl Mount {
    /// What `look` makes of the user's attributes of `ino`.
    async fn user_xattrs<R>(
        &self,
        ino: Ino,
        look: impl FnOnce(&XattrMap) -> R,
    ) -> Result<R, Refusal> {
        match self.shell.look(Look::Xattrs(ino)).await? {
            (Seen::Xattrs(map), _) => Ok(look(&map)),
            _ => Err(Refusal::Io),
        }
    }

    /// Value of an attribute.
    pub(crate) async fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Refusal> {
        if !name.starts_with(b"user.") {
            return Err(Refusal::NotSupported);
        }
        if let Some(question) = name.strip_prefix(OWN).filter(|_| name != ATTRIBUTE) {
            return self.own_xattr(ino, question).await;
        }
        self.user_xattrs(ino, |map| map.get(name).cloned()).await?.ok_or(Refusal::NoAttribute)
    }

    /// `where` (host or server), `dirty` (0 or 1), `version`.
    async fn own_xattr(&self, ino: Ino, question: &[u8]) -> Result<Vec<u8>, Refusal> {
        let attr = self.getattr(ino).await?;
        let pending = self.host.lock().tree().is_pending(ino);
        match question {
            b"where" => {
                let core = self.host.lock();
                let below = core.unsent_below(ino, &core.tree().path_bytes(ino));
                let has_unsent = attr.kind == Kind::Directory && below.files > 0;
                Ok(if pending || has_unsent { b"host".to_vec() } else { b"server".to_vec() })
            }
            b"dirty" => Ok(if pending { b"1".to_vec() } else { b"0".to_vec() }),
            b"version" => Ok(attr.data_version.to_string().into_bytes()),
            _ => Err(Refusal::NoAttribute),
        }
    }

    /// Names of all attributes, without Segue's own.
    pub(crate) async fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Refusal> {
        self.user_xattrs(ino, |map| map.keys().cloned().collect()).await
    }

    /// Sets an attribute.
    pub(crate) async fn set_xattr(
        &self,
        ino: Ino,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: i32,
        caller: Caller,
    ) -> Result<(), Refusal> {
        if !is_settable(&name) {
            return Err(Refusal::NotSupported);
        }
        check_xattr_shape(&name, &value)?;
        let look = |map: &XattrMap| (map.contains_key(&name), map.len() >= XATTR_COUNT_MAX);
        let (exists, is_full) = self.user_xattrs(ino, look).await?;
        match flags {
            _ if is_full && !exists && flags != libc::XATTR_REPLACE => Err(Refusal::NoSpace),
            libc::XATTR_CREATE if exists => Err(Refusal::Exists),
            libc::XATTR_REPLACE if !exists => Err(Refusal::NoAttribute),
            _ => self.change_xattr(ino, name, Some(value), caller).await,
        }
    }

    /// Removes an attribute.
    pub(crate) async fn remove_xattr(
        &self,
        ino: Ino,
        name: Vec<u8>,
        caller: Caller,
    ) -> Result<(), Refusal> {
        if !is_settable(&name) {
            return Err(Refusal::NotSupported);
        }
        if !self.user_xattrs(ino, |map| map.contains_key(&name)).await? {
            return Err(Refusal::NoAttribute);
        }
        self.change_xattr(ino, name, None, caller).await
    }
}
