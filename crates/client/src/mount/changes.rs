//! Changing names and attributes: the record, its log entry, and who waits for the server.
//!
//! Under `write-back=async` no call waits: all return once they are logged. Under `close` those
//! wait for the server whose success means "this name was not there before", because other hosts
//! may race for the name. Under `sync` every call waits. Nobody waits longer than
//! `grace` for a server that cannot be reached: the change then stays logged, and wins or
//! becomes a conflict copy later.

use segue_core::host::call::Call;
use segue_core::host::send::Claim;
use segue_core::namespace::check_border;
use segue_core::nouns::{
    Attr, Caller, Ino, Kind, Name, NewNode, Outcome, Record, RenameMode, SYMLINK_MAX, SetAttr,
};
use segue_core::refusal::Refusal;

use super::{Mount, lock};

/// How a rename was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RenameFlag {
    Replace,
    NoReplace,
    Exchange,
}

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
    /// Logs `record`, which needs no answer of the server.
    pub(super) fn log_record(&self, record: Record, caller: Caller) -> Result<(), Refusal> {
        self.call(Call::Change { record, caller, claim: None, expects: None }).map(drop)
    }

    async fn change(&self, record: Record, caller: Caller, exclusive: bool) -> Result<(), Refusal> {
        self.check_bound_for(&record)?;
        let claim = self.waits(&record, exclusive).then_some(Claim::Answers);
        let by = claim.is_some().then(|| caller.clone());
        let logged = Call::Change { record: record.clone(), caller, claim, expects: None };
        let changed = self.call(logged)?;
        lock(&self.conflicts).changed(&record);
        self.slow_down(changed.slowed_by).await;
        let Some(told) = changed.told else { return Ok(()) };
        match self.outcome(told).await {
            Ok(Outcome::Refused { refusal }) => Err(refusal),
            Ok(Outcome::Conflict { parent, name, copy, .. }) => {
                self.give_way(record, (parent, name, copy), by.unwrap_or_default())?;
                Err(Refusal::Exists)
            }
            Ok(_) | Err(Refusal::Unreachable) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// The caller is told that the name exists: so what was made beside it must go, and what was
    /// renamed gets its old name again.
    fn give_way(
        &self,
        change: Record,
        (parent, name, ino): (Ino, Name, Ino),
        caller: Caller,
    ) -> Result<(), Refusal> {
        let is_new = matches!(change, Record::Create { .. });
        let record = match change {
            Record::Rename { from_parent, from_name, .. } => {
                let (to_parent, to_name) = (from_parent, from_name);
                let (from_parent, from_name) = (parent, name);
                let (mode, open) = (RenameMode::Replace(None), false);
                Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open }
            }
            _ if self.core().tree.is_directory(ino) => Record::Rmdir { parent, name, ino },
            _ => Record::Unlink { parent, name, ino, open: false },
        };
        self.log_record(record, caller)?;
        if is_new {
            // The kernel never heard of it.
            self.core().let_go(ino);
        }
        Ok(())
    }

    async fn new_ino(&self) -> Result<Ino, Refusal> {
        loop {
            let taken = lock(&self.numbers).take_ino();
            match taken.map_err(|error| self.disk_refusal("state.json", &error))? {
                Some(ino) if self.core().is_known(ino) => {}
                Some(ino) => return Ok(ino),
                None => {
                    let grant = self.remote.grant().await?;
                    let added = lock(&self.numbers).add_grant(grant);
                    added.map_err(|error| self.disk_refusal("state.json", &error))?;
                }
            }
        }
    }

    /// Makes a new inode under a new name.
    pub(crate) async fn create(&self, new: Creation, caller: Caller) -> Result<Attr, Refusal> {
        if let NewNode::Symlink(target) = &new.node
            && target.len() > SYMLINK_MAX
        {
            return Err(Refusal::NameTooLong);
        }
        if self.lookup(new.parent, &new.name).await?.is_some() {
            return Err(Refusal::Exists);
        }
        let parent = self.getattr(new.parent).await?;
        let more = self.core().growth_in(new.parent);
        self.check_quota(more)?;
        let ino = self.new_ino().await?;
        let (uid, mut gid) = self.owner.to_store(caller.uid, caller.gid);
        let kind = if new.node == NewNode::Directory { Kind::Directory } else { Kind::File };
        let mut mode = self.owner.mode(new.mode & 0o7777, kind);
        if parent.mode & 0o2000 != 0 {
            gid = self.core().tree.peek(new.parent).map_or(gid, |attr| attr.gid);
            if new.node == NewNode::Directory {
                mode |= 0o2000;
            }
        }
        let exclusive = new.exclusive || new.node != NewNode::File;
        let (parent, name, node) = (new.parent, new.name, new.node);
        let record = Record::Create { parent, name, ino, node, mode, uid, gid };
        self.change(record, caller, exclusive).await?;
        self.getattr(ino).await
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
        if self.lookup(parent, &name).await?.is_some() {
            return Err(Refusal::Exists);
        }
        let attr = self.getattr(ino).await?;
        if attr.kind == Kind::Directory {
            return Err(Refusal::NotPermitted);
        }
        check_border(&attr, &self.getattr(parent).await?, false)?;
        self.change(Record::Link { ino, parent, name }, caller, true).await?;
        self.getattr(ino).await
    }

    async fn existing(&self, parent: Ino, name: &Name) -> Result<Attr, Refusal> {
        self.lookup(parent, name).await?.ok_or(Refusal::NotFound)
    }

    /// Takes away a name of something that is not a directory.
    pub(crate) async fn unlink(
        &self,
        parent: Ino,
        name: Name,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let attr = self.existing(parent, &name).await?;
        if attr.kind == Kind::Directory {
            return Err(Refusal::IsDirectory);
        }
        self.getattr(parent).await?;
        let record = Record::Unlink { parent, name, ino: attr.ino, open: false };
        self.change(record, caller, false).await
    }

    /// Takes away an empty directory.
    pub(crate) async fn rmdir(
        &self,
        parent: Ino,
        name: Name,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let attr = self.existing(parent, &name).await?;
        if attr.kind != Kind::Directory {
            return Err(Refusal::NotDirectory);
        }
        self.check_empty(attr.ino).await?;
        self.getattr(parent).await?;
        self.change(Record::Rmdir { parent, name, ino: attr.ino }, caller, false).await
    }

    async fn check_empty(&self, directory: Ino) -> Result<(), Refusal> {
        match self.list(directory, 0).await?.is_empty() {
            true => Ok(()),
            false => Err(Refusal::NotEmpty),
        }
    }

    /// Moves a name.
    pub(crate) async fn rename(
        &self,
        from: (Ino, Name),
        to: (Ino, Name),
        flag: RenameFlag,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let source = self.existing(from.0, &from.1).await?;
        let target = self.lookup(to.0, &to.1).await?;
        let directories = (self.getattr(from.0).await?, self.getattr(to.0).await?);
        check_border(&source, &directories.1, true)?;
        if let (RenameFlag::Exchange, Some(target)) = (flag, &target) {
            check_border(target, &directories.0, true)?;
        }
        let mode = match (flag, target) {
            (RenameFlag::NoReplace, Some(_)) => return Err(Refusal::Exists),
            (RenameFlag::NoReplace, None) if self.hears_verdict(to.0) => RenameMode::NoReplace,
            // It is done here, whoever else has the name by then: the server puts it beside.
            (RenameFlag::NoReplace, None) => RenameMode::Replace(None),
            (RenameFlag::Exchange, None) => return Err(Refusal::NotFound),
            (RenameFlag::Exchange, Some(target)) => RenameMode::Exchange(target.ino),
            (RenameFlag::Replace, target) => {
                if target.is_some_and(|target| target.ino == source.ino) {
                    return Ok(());
                }
                if let Some(target) = target {
                    self.replaceable(&source, &target).await?;
                }
                RenameMode::Replace(target.map(|target| target.ino))
            }
        };
        let ((from_parent, from_name), (to_parent, to_name)) = (from, to);
        let (ino, open) = (source.ino, false);
        let record = Record::Rename { from_parent, from_name, ino, to_parent, to_name, mode, open };
        self.change(record, caller, flag == RenameFlag::NoReplace).await
    }

    /// True if who gives a name in `directory` hears from the server whether it was free.
    fn hears_verdict(&self, directory: Ino) -> bool {
        self.lm(directory).waits(true) && !self.remote.is_silent()
    }

    async fn replaceable(&self, source: &Attr, target: &Attr) -> Result<(), Refusal> {
        match (source.kind == Kind::Directory, target.kind == Kind::Directory) {
            (true, false) => Err(Refusal::NotDirectory),
            (false, true) => Err(Refusal::IsDirectory),
            (true, true) => self.check_empty(target.ino).await,
            (false, false) => Ok(()),
        }
    }

    /// Changes attributes. Ids are those of this host.
    pub(crate) async fn set_attr(
        &self,
        ino: Ino,
        set: SetAttr,
        caller: Caller,
    ) -> Result<(), Refusal> {
        self.getattr(ino).await?;
        let (uid, gid) = self.owner.to_store(set.uid.unwrap_or(0), set.gid.unwrap_or(0));
        let kind = self.kind(ino);
        let mode = set.mode.map(|mode| self.owner.mode(mode, kind));
        let set = SetAttr { uid: set.uid.map(|_| uid), gid: set.gid.map(|_| gid), mode, ..set };
        self.change(Record::SetAttr { ino, set }, caller, false).await
    }

    /// Sets or (without a value) removes an extended attribute.
    pub(super) async fn change_xattr(
        &self,
        ino: Ino,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let record = match value {
            Some(value) => Record::SetXattr { ino, name, value },
            None => Record::RemoveXattr { ino, name },
        };
        self.change(record, caller, false).await
    }

    /// The last handle of a file without names is closed.
    pub(super) fn release_orphan(&self, ino: Ino, caller: Caller) -> Result<(), Refusal> {
        self.log_record(Record::Release { ino }, caller)
    }
}
