//! Whether what a host wrote to a file while its link was cut is kept, where others wrote to it
//! too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::check::{Did, Event, Moment};

/// A write to the file to which all write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Shared {
    pub(super) host: usize,
    pub(super) began: Moment,
    pub(super) ended: Moment,
    pub(super) value: String,
    pub(super) surely: bool,
}

/// A host's link was down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) host: usize,
    pub(super) began: Moment,
    pub(super) ended: Moment,
}

/// Contents of all files in a directory.
pub(super) fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(root).unwrap().map(Result::unwrap);
    let entries = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let name = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| (name(&entry), fs::read(entry.path()).unwrap())).collect()
}

/// What the shared file and its conflict copies have.
pub(super) fn found(root: &Path) -> BTreeSet<String> {
    let files = tree(root).into_iter().filter(|(name, _)| name.starts_with("shared"));
    files.map(|(_, bytes)| String::from_utf8(bytes).unwrap()).collect()
}

/// The first value that is kept nowhere: the last that a host wrote during a cut in which another
/// wrote and synced. So neither had seen the other's. What the host wrote afterwards before it had
/// synced may be over it, in the same copy.
pub(super) fn lost(
    writes: &[Shared],
    cuts: &[Cut],
    history: &[Event],
    found: &BTreeSet<String>,
) -> Option<Shared> {
    let syncs = |host: usize| {
        history.iter().filter(move |event| event.host == host && matches!(event.did, Did::Synced))
    };
    for cut in cuts {
        let is_in = |began: Moment, ended: Moment| began > cut.began && ended < cut.ended;
        let others = writes.iter().any(|write| {
            let mut syncs = syncs(write.host);
            let is_synced = syncs.any(|sync| sync.began > write.ended && sync.ended < cut.ended);
            write.host != cut.host && is_in(write.began, write.ended) && is_synced
        });
        let synced = syncs(cut.host).map(|sync| sync.ended).filter(|at| *at > cut.ended).min();
        let (true, Some(synced)) = (others, synced) else { continue };
        let of_host = |write: &&Shared| write.host == cut.host && write.began > cut.began;
        let last = writes.iter().filter(of_host).rfind(|write| write.began < synced);
        let Some(last) = last else { continue };
        if last.surely && is_in(last.began, last.ended) && !found.contains(&last.value) {
            return Some(last.clone());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(host: usize, (began, ended): (Moment, Moment), value: &str) -> Shared {
        Shared { host, began, ended, value: value.into(), surely: true }
    }

    fn synced(host: usize, began: Moment, ended: Moment) -> Event {
        Event { host, began, ended, did: Did::Synced }
    }

    #[test]
    fn what_two_wrote_apart_is_kept_twice() {
        let cuts = [Cut { host: 0, began: 10, ended: 20 }];
        let writes = [write(0, (11, 12), "ours"), write(1, (13, 14), "theirs")];
        let history = [synced(1, 15, 16), synced(0, 30, 31)];
        let is_lost = |writes: &[Shared], history: &[Event], found: &[&str]| {
            let found = found.iter().map(ToString::to_string).collect();
            lost(writes, &cuts, history, &found).is_some()
        };
        assert!(is_lost(&writes, &history, &["theirs"]));
        assert!(!is_lost(&writes, &history, &["ours", "later"]));
        assert!(!is_lost(&writes, &history[1..], &["theirs"]), "they may have seen ours");
        let later = [writes[0].clone(), writes[1].clone(), write(0, (22, 23), "more")];
        assert!(!is_lost(&later, &history, &["theirs"]), "it may be over it");
        let after = [writes[0].clone(), writes[1].clone(), write(0, (32, 33), "more")];
        assert!(is_lost(&after, &history, &["theirs"]));
        let failed = [Shared { surely: false, ..writes[0].clone() }, writes[1].clone()];
        assert!(!is_lost(&failed, &history, &["theirs"]));
    }
}
