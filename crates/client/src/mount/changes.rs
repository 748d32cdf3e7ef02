//! Changing names and attributes: the record, its log entry, and who waits for the server.
//!
//! Under `write-back=async` no call waits: all return once they are logged. Under `close` those
//! wait for the server whose success means "this name was not there before", because other hosts
//! may race for the name. Under `sync` every call waits. Nobody waits longer than
//! `grace` for a server that cannot be reached: the change then stays logged, and wins or
//! becomes a conflict copy later.

use segue_core::host::call::{Answer, Call, NameCall, RenameFlag};
use segue_core::nouns::{Attr, Caller, Dentry, Ino, Name, NewNode, SetAttr};
use segue_core::refusal::Refusal;

use crate::mount::Mount;
use crate::shell::Changed;

/// A new inode under a new name.
#[derive(Clone, Debug)]
pub(crate) struct Creation {
    pub(crate) parent: Ino,
    pub(crate) name: Name,
    pub(crate) node: NewNode,
    pub(crate) mode: u32,
    /// It must not exist yet, on any host.
    pub(crate) exclusive: bool,
}

impl Mount {
    /// Carries out a change of names or attributes. Returns the inode that it is about.
    async fn change(&self, call: NameCall, caller: Caller) -> Result<Option<Ino>, Refusal> {
        let call = Call::Name(call, caller);
        let Changed { answer: Answer { ino, slowed_by, .. }, made, .. } =
            self.shell.call_asking(call).await?;
        if let Some(record) = made {
            self.disk.for_user.conflicts.lock().changed(&record);
            self.shell.slow_down(slowed_by).await;
        }
        Ok(ino)
    }

    /// Makes a new inode under a new name.
    pub(crate) async fn create(&self, new: Creation, caller: Caller) -> Result<Attr, Refusal> {
        let Creation { parent, name, node, mode, exclusive } = new;
        let at = Dentry { parent, name };
        let ino = self.change(NameCall::Create { at, node, mode, exclusive }, caller).await?;
        self.getattr(ino.ok_or(Refusal::Io)?).await
    }

    /// Opens a name with O_CREAT: the new file and true, or the one that was there and false.
    pub(crate) async fn create_or_find(
        &self,
        new: Creation,
        caller: Caller,
    ) -> Result<(Attr, bool), Refusal> {
        if !new.exclusive
            && let Some(found) = self.lookup(new.parent, &new.name).await?
        {
            return Ok((found, false));
        }
        self.create(new, caller).await.map(|made| (made, true))
    }

    /// A further name for `ino`.
    pub(crate) async fn link(
        &self,
        ino: Ino,
        parent: Ino,
        name: Name,
        caller: Caller,
    ) -> Result<Attr, Refusal> {
        self.change(NameCall::Link { ino, at: Dentry { parent, name } }, caller).await?;
        self.getattr(ino).await
    }

    /// Takes away a name of something that is not a directory.
    pub(crate) async fn unlink(
        &self,
        parent: Ino,
        name: Name,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.change(NameCall::Unlink(Dentry { parent, name }), caller).await.map(drop)
    }

    /// Takes away an empty directory.
    pub(crate) async fn rmdir(
        &self,
        parent: Ino,
        name: Name,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.change(NameCall::Rmdir(Dentry { parent, name }), caller).await.map(drop)
    }

    /// Moves a name.
    pub(crate) async fn rename(
        &self,
        from: Dentry,
        to: Dentry,
        flag: RenameFlag,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.change(NameCall::Rename { from, to, flag }, caller).await.map(drop)
    }

    /// Changes attributes. Ids are those of this host.
    pub(crate) async fn set_attr(
        &self,
        ino: Ino,
        set: SetAttr,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.change(NameCall::SetAttr { ino, set }, caller).await.map(drop)
    }

    /// Sets or (without a value) removes an extended attribute.
    pub(super) async fn change_xattr(
        &self,
        ino: Ino,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.change(NameCall::SetXattr { ino, name, value }, caller).await.map(drop)
    }
}
