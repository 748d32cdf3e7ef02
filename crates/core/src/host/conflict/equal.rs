//! Duplicates with the same contents.

use super::may_be_same;
use crate::host::call::{Halt, Known};
use crate::host::{Fault, Host};
use crate::nouns::{Attr, Kind};
use crate::wire::Compare;

/// The result of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) enum Are {
    Same,
    Different,
    /// Not known before the server has all data of this host.
    Unsettled,
}

impl Host {
    /// Compares `copy` with `other`: all but their times. An open file is different.
    pub(in crate::host) fn are(
        &self,
        known: Known<'_>,
        copy: &Attr,
        other: &Attr,
    ) -> Result<Are, Halt> {
        if self.is_open(copy.ino) || !may_be_same(copy, other) {
            return Ok(Are::Different);
        }
        if [copy, other].iter().any(|of| self.tree.is_pending(of.ino) || self.is_ahead(of.ino)) {
            return Ok(Are::Unsettled);
        }
        if known.xattrs(copy.ino)? != known.xattrs(other.ino)? {
            return Ok(Are::Different);
        }
        let is_same = match copy.kind {
            Kind::Symlink => Some(known.target(copy.ino)? == known.target(other.ino)?),
            Kind::File if copy.size > 0 => {
                let [one, other] = [copy, other].map(|attr| (attr.ino, attr.data_version));
                let files = Compare { one, other };
                if self.has_planted(Fault::MergesUnlike) {
                    Some(true)
                } else if self.different.get(&copy.ino) == Some(&files) {
                    Some(false)
                } else {
                    known.same(&files)?
                }
            }
            _ => Some(true),
        };
        Ok(match is_same {
            Some(true) => Are::Same,
            Some(false) => Are::Different,
            None => Are::Unsettled,
        })
    }
}
