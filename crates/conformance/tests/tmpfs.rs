//! Every case passes on tmpfs.

#![allow(clippy::unwrap_used)]

mod mounted;

use mounted::Mounted;

/// What tmpfs does not offer.
const NOT_OFFERED: &[&str] = &["offers::zeroing", "offers::collapsing", "offers::inserting"];

#[test]
fn tmpfs_conforms() {
    let options = ["-t", "tmpfs", "-o", "size=256m,mode=755", "tmpfs"];
    let Some(mounted) = Mounted::new(&[], &options) else { return };
    let report = segue_conformance::run(mounted.root(), NOT_OFFERED);
    assert!(report.is_good(), "{report}");
}
