//! What a client that has just started shows before it has heard from the server: nothing that was
//! not so, and of what was noted nothing less.
//!
//! Proves S12.2, S13.1.

use std::collections::BTreeMap;

use segue_core::nouns::{Ino, Kind, Name};

use super::clean;
use super::ledger::Ledger;
use crate::Violation;
use crate::client::Mount;
use crate::disk::NotedInodes;
use crate::model::Model;
use crate::work::NAMES;

/// Checks `mount`, of which no more is used, against what is known of the same moment. Its index
/// had `noted`.
pub(crate) fn check(
    mount: &mut Mount,
    noted: &NotedInodes,
    ledger: &Ledger,
    model: Option<&Model>,
) -> Result<(), Violation> {
    let files = mount.disk.kept.index.files();
    for ino in files {
        clean::check(mount, ledger, ino)?;
    }
    for (ino, bytes) in mount.disk.acknowledged.written() {
        check_written(mount, ino, &bytes)?;
    }
    match model {
        Some(model) => check_tree(mount, model, noted),
        None => Ok(()),
    }
}

/// What was written and is not sealed is here.
fn check_written(mount: &mut Mount, ino: Ino, told: &BTreeMap<u64, u8>) -> Result<(), Violation> {
    let is_named = mount.core.tree().peek(ino).is_some_and(|attr| attr.nlink > 0);
    if !is_named || !mount.core.is_ahead(ino) {
        return Ok(());
    }
    let here = mount
        .disk
        .here(&mut mount.core, ino)
        .into_iter()
        .flat_map(|(offset, bytes)| (offset..).zip(bytes));
    let here: BTreeMap<u64, u8> = here.collect();
    match told.iter().find(|(at, byte)| here.get(at) != Some(byte)) {
        Some((at, byte)) => {
            let words = format!("byte {at} of #{ino} is {byte}, here {:?}", here.get(at));
            Err(Violation(words))
        }
        None => Ok(()),
    }
}

fn check_tree(mount: &mut Mount, model: &Model, noted: &NotedInodes) -> Result<(), Violation> {
    let mut open = vec![Ino::ROOT];
    while let Some(ino) = open.pop() {
        let differs = |what: String| Violation(format!("offline #{ino} is {what}"));
        let attr = match mount.getattr(ino) {
            Ok(attr) => attr,
            Err(_) if !noted.nodes.contains(&ino) => continue,
            Err(stop) => return Err(differs(format!("not known though it was noted: {stop:?}"))),
        };
        if mount.core.is_cloning(ino) {
            // The server has not said whether it gets another file's data.
            continue;
        }
        model.check_attr(&attr).map_err(differs)?;
        if attr.kind == Kind::File {
            for (offset, bytes) in mount.disk.here(&mut mount.core, ino) {
                model.check_bytes(ino, offset, &bytes).map_err(differs)?;
            }
        }
        let Some(names) = model.names(ino) else { continue };
        match mount.list(ino) {
            Ok(seen) if seen == names => {}
            Ok(seen) => return Err(differs(format!("listed as {seen:?}, not {names:?}"))),
            Err(_) if !noted.listed.contains(&ino) => {}
            Err(stop) => return Err(differs(format!("not listed though it was noted: {stop:?}"))),
        }
        for name in NAMES.iter().filter_map(|name| Name::new(*name).ok()) {
            let known = names.iter().find(|(other, _)| *other == name).map(|(_, ino)| *ino);
            match mount.lookup(ino, &name) {
                Ok(seen) if seen.map(|attr| attr.ino) == known => {}
                Ok(seen) => {
                    return Err(differs(format!("{name} leads to {seen:?}, not {known:?}")));
                }
                Err(_) => {}
            }
        }
        open.extend(names.into_iter().map(|(_, ino)| ino));
    }
    Ok(())
}
