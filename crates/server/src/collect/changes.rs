//! What is known of changes goes when it is old, or too much.

use segue_core::namespace::changes;

use super::stopping;
use crate::clock::now_seconds;
use crate::meta::Kv;
use crate::serve::Server;

/// Hosts that were away for longer ask anew.
const KEPT: u64 = 30 * 86_400;
/// Most bytes of it.
const MOST: u64 = 256 << 20;
/// Rows of one transaction.
const SLICE: usize = 256;

/// Removes what is beyond that.
pub(super) fn look(server: &Server) {
    let before = now_seconds().saturating_sub(KEPT);
    while !stopping(server) {
        let slice = move |txn: &mut Kv<'_>| changes::forget(txn, (before, MOST), SLICE);
        match server.data.store.write_blocking(slice) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return tracing::error!("cannot remove old rows of changes: {error}"),
        }
    }
}
