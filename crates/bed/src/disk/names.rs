//! Which changes of names are there after a power loss.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::crash::Chance;
use super::recording::Op;

/// The names that `op` changes, each with its directory.
fn places(op: &Op) -> Vec<(u64, &OsStr)> {
    match op {
        Op::Make { dir, name, .. } | Op::Remove { dir, name } => vec![(*dir, name)],
        Op::Rename { from, to } => vec![(from.0, &from.1), (to.0, &to.1)],
        _ => Vec::new(),
    }
}

/// For each operation whether it is there; what is not about names is not.
pub(super) fn there(ops: &[Op], chance: &mut Chance) -> Vec<bool> {
    let (mut synced, mut last) = (BTreeMap::new(), BTreeMap::new());
    let mut before = vec![Vec::new(); ops.len()];
    for (at, op) in ops.iter().enumerate() {
        if let Op::SyncNames { dir } = op {
            synced.insert(*dir, at);
        }
        for place in places(op) {
            before[at].extend(last.insert(place, at));
        }
    }
    let is_synced = |at: usize, dir: u64| synced.get(&dir).is_some_and(|sync| at < *sync);
    let mut must = vec![false; ops.len()];
    for (at, op) in ops.iter().enumerate().rev() {
        must[at] |= places(op).iter().any(|(dir, _)| is_synced(at, *dir));
        if must[at] {
            before[at].iter().for_each(|earlier| must[*earlier] = true);
        }
    }
    let mut there = vec![false; ops.len()];
    for at in (0..ops.len()).filter(|at| !places(&ops[*at]).is_empty()) {
        there[at] = must[at] || before[at].iter().all(|earlier| there[*earlier]) && chance.keeps();
    }
    there
}
