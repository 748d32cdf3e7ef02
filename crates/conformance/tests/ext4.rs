//! Every case passes on ext4.

#![allow(clippy::unwrap_used)]

mod mounted;

use mounted::Mounted;

/// What ext4 does not offer.
const NOT_OFFERED: &[&str] = &[];

#[test]
fn ext4_conforms() {
    // Inodes of 256 bytes hold nanoseconds and years after 2038. The size is a hole at first.
    let make = ["mkfs.ext4", "-q", "-F", "-I", "256", "image", "512m"];
    let Some(mounted) = Mounted::new(&make, &["-o", "loop", "image"]) else { return };
    let report = segue_conformance::run(mounted.root(), NOT_OFFERED);
    assert!(report.is_good(), "{report}");
}
