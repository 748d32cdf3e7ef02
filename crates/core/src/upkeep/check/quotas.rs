//! Quotas: each counts what names it, and names stand on one side of its border.

use super::scan::Scan;
use super::{Checker, Damage, Halt, Visitor, decode};
use crate::namespace::quota::{QuotaRow, outside};
use crate::namespace::rows::InodeRow;
use crate::namespace::{MetaSnapshot, QUOTAS_MAX, Usage, keys};
use crate::nouns::Ino;

impl<S: MetaSnapshot, V: Visitor> Checker<'_, S, V> {
    /// Counts an inode whose extents come to `bytes`.
    pub(super) fn count_against_quota(&mut self, row: &InodeRow, bytes: u64) {
        let Some(quota) = row.attr.quota else { return };
        // There are no more quotas than that; beyond it some are missing in any case.
        if self.quotas.len() < QUOTAS_MAX || self.quotas.contains_key(&quota) {
            let usage = self.quotas.entry(quota).or_default();
            usage.inodes += 1;
            usage.bytes = usage.bytes.saturating_add(bytes);
        }
    }

    /// Whether the inode of a name counts against the quota of the directory it stands in.
    pub(super) fn is_on_its_side(row: &InodeRow, directory: Option<Ino>) -> bool {
        outside(&row.attr) == directory
    }

    /// Each quota's sums against what was found.
    pub(super) fn quotas(&mut self) -> Result<(), Halt<S::Error>> {
        let mut found = std::mem::take(&mut self.quotas);
        let mut scan = Scan::new(keys::quotas(self.volume));
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            let (Some((ino, [])), Some(row)) = (keys::inode_part(&key), decode::<QuotaRow>(&value))
            else {
                self.report_row(&key, "a directory's quota");
                continue;
            };
            let Usage { bytes, inodes } = found.remove(&ino).unwrap_or_default();
            if row.usage.bytes != bytes {
                let told = row.usage.bytes;
                self.report(ino, Damage::QuotaBytes { told, found: bytes })?;
            }
            if row.usage.inodes != inodes {
                let told = row.usage.inodes;
                self.report(ino, Damage::QuotaInodes { told, found: inodes })?;
            }
        }
        for ino in found.into_keys() {
            self.report(ino, Damage::NoQuota)?;
        }
        Ok(())
    }
}
