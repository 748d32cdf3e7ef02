//! Files that two hosts made alike under one name: the one that came second, which stands beside as
//! a conflict copy, goes.
//!
//! It goes as it was when it was compared. Who writes it meanwhile keeps it, here or on another
//! host.

use segue_core::host::call::Call;
use segue_core::host::conflict::may_be_same;
use segue_core::host::send::Claim;
use segue_core::nouns::{Attr, Caller, Ino, Kind, Name, Record};
use segue_core::refusal::Refusal;

use super::{Changed, Mount, Shared, lock};

/// What a copy and what it stands beside are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Are {
    Same,
    Different,
    /// Not known before the server has what was written here.
    Unsettled,
}

impl Mount {
    /// Compares `copy`, which nobody has open here, with `other`: all but their times.
    pub(super) async fn compare_files(&self, copy: &Attr, other: &Attr) -> Result<Are, Refusal> {
        if self.core().is_open(copy.ino) || !may_be_same(copy, other) {
            return Ok(Are::Different);
        }
        let is_unsettled = {
            let core = self.core();
            [copy, other].iter().any(|of| core.tree.is_pending(of.ino) || core.is_ahead(of.ino))
        };
        if is_unsettled {
            return Ok(Are::Unsettled);
        }
        let attributes = |ino| self.user_xattrs(ino, Clone::clone);
        if attributes(copy.ino).await? != attributes(other.ino).await? {
            return Ok(Are::Different);
        }
        match copy.kind {
            Kind::Symlink => {
                let is_one = self.readlink(copy.ino).await? == self.readlink(other.ino).await?;
                Ok(if is_one { Are::Same } else { Are::Different })
            }
            Kind::File if copy.size > 0 => self.have_same_bytes(copy, other).await,
            _ => Ok(Are::Same),
        }
    }

    /// Asks the server, once for two versions.
    async fn have_same_bytes(&self, copy: &Attr, other: &Attr) -> Result<Are, Refusal> {
        let [copy, other] = [copy, other].map(|attr| (attr.ino, attr.data_version));
        if lock(&self.merges.different).get(&copy.0) == Some(&[copy, other]) {
            return Ok(Are::Different);
        }
        match self.remote.compare(copy, other).await {
            Ok(true) => Ok(Are::Same),
            Ok(false) => {
                lock(&self.merges.different).insert(copy.0, [copy, other]);
                Ok(Are::Different)
            }
            Err(Refusal::Changed | Refusal::Stale) => Ok(Are::Unsettled),
            Err(refusal) => Err(refusal),
        }
    }

    /// Removes `copy` as it was compared. [Wait](Mount::waited_for) for the outcome. `None` if it
    /// is another one by now, or somebody has it open.
    pub(super) fn remove_same(
        self: &Shared,
        (parent, name): (Ino, &Name),
        copy: &Attr,
        by: &Caller,
    ) -> Result<Option<Changed>, Refusal> {
        let record = Record::Unlink { parent, name: name.clone(), ino: copy.ino, open: false };
        let (claim, expects) = (Some(Claim::Answers), Some(copy.data_version));
        let call = Call::Change { record, caller: by.clone(), claim, expects };
        let removing = match self.begin(call, &[]) {
            Err(Refusal::Changed) => None,
            removing => Some(removing?),
        };
        self.kernel.forget_name(parent, name.clone());
        Ok(removing)
    }
}
