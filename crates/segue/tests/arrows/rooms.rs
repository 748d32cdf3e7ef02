//! The cuts of `segue-core` and of a mount into modules: which of them a module must not use.
//!
//! The test reads text, not syntax. It looks for paths that begin at the root of the crate, as
//! `crate::host`, as an item of `crate::{..}`, or as `super::super::host` in a file that deep.
//! Tests may use every module: directories and files named `tests`, and the rest of a file behind
//! `#[cfg(test)]` and `mod tests {`, are left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate's module, and the modules that it must not use.
type Cut = (&'static str, &'static [&'static str]);

const CORE: [Cut; 4] = [
    ("nouns", &["host", "namespace", "upkeep", "wire", "promise"]),
    ("wire", &["host", "namespace", "upkeep"]),
    ("promise", &["namespace", "host", "upkeep"]),
    ("namespace", &["host", "upkeep"]),
];

/// The rooms of a mount, from the top. None uses one before it.
const MOUNT: [&str; 8] =
    ["fuse", "control", "mount", "write_back", "shell", "net", "kernel", "disk"];
/// Both are at the top: starting a mount opens its socket and its FUSE session.
const TOP: [&str; 3] = ["fuse", "control", "mount"];

const ROOT: &str = "crate::";
const PARENT: &str = "super::";

/// The files of a module of a crate, and how deep in the tree of modules each is.
fn files_of(of: &str, module: &str) -> Vec<(PathBuf, usize)> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{of}/src"));
    let mut found = vec![(sources.join(format!("{module}.rs")), 1)];
    let mut directories = vec![(sources.join(module), 1)];
    while let Some((directory, depth)) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            match path.file_stem().and_then(|stem| stem.to_str()) {
                Some("tests") => {}
                _ if path.is_dir() => directories.push((path, depth + 1)),
                Some("mod") => found.push((path, depth)),
                _ => found.push((path, depth + 1)),
            }
        }
    }
    found.retain(|(path, _)| path.is_file());
    found
}

/// A source without its comments and without the module of its tests.
fn code(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or("");
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The first words of a path, or of each path of a group in braces.
fn firsts(path: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let first = |text: &'_ str| text.find(|c| !is_word(c)).unwrap_or(text.len());
    let Some(group) = path.strip_prefix('{') else { return vec![&path[..first(path)]] };
    let (mut depth, mut begin, mut all) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let item = group[begin..at].trim_start();
                all.push(&item[..first(item)]);
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    all
}

/// The modules at the root of the crate that a source uses, which is `depth` modules below it.
fn used(source: &str, depth: usize) -> Vec<String> {
    let code = code(source);
    let climb = PARENT.repeat(depth);
    let at_root = code.match_indices(ROOT).map(|(at, _)| &code[at + ROOT.len()..]);
    let climbed = code.match_indices(&climb).filter_map(|(at, _)| {
        let is_whole = !code[..at].ends_with("::");
        is_whole.then(|| &code[at + climb.len()..])
    });
    at_root.chain(climbed).flat_map(firsts).map(str::to_owned).collect()
}

/// The uses of modules that a module must not use.
fn wrong_uses(of: &str, module: &str, forbidden: &[&str]) -> Vec<String> {
    let files = files_of(of, module);
    assert!(!files.is_empty(), "there is no module {module}");
    let mut faults = Vec::new();
    for (path, depth) in files {
        let used = used(&fs::read_to_string(&path).unwrap(), depth);
        let wrong = used.iter().filter(|used| forbidden.contains(&used.as_str()));
        faults.extend(wrong.map(|used| format!("{}: {used}", path.display())));
    }
    faults
}

#[test]
fn modules_of_core_use_only_modules_below_them() {
    let of = |(module, forbidden): (&str, &[&str])| wrong_uses("core", module, forbidden);
    let faults: Vec<String> = CORE.into_iter().flat_map(of).collect();
    assert!(faults.is_empty(), "these uses make circles in core:\n{}", faults.join("\n"));
}

#[test]
fn rooms_of_a_mount_use_only_rooms_below_them() {
    let below = MOUNT.iter().enumerate().filter(|(_, room)| !TOP.contains(room));
    let of = |(at, room): (usize, &&str)| wrong_uses("client", room, &MOUNT[..at]);
    let faults: Vec<String> = below.flat_map(of).collect();
    assert!(faults.is_empty(), "these uses make circles in a mount:\n{}", faults.join("\n"));
    assert!(!wrong_uses("client", "fuse", &["mount"]).is_empty(), "uses are found");
}

#[test]
fn uses_are_found_in_all_their_forms() {
    assert_eq!(used("use crate::upkeep::check;", 2), ["upkeep"]);
    assert_eq!(used("    crate::upkeep::collect(txn)", 2), ["upkeep"]);
    let group = "use crate::{\n    host::{log, cache},\n    nouns,\n    upkeep};";
    assert_eq!(used(group, 2), ["host", "nouns", "upkeep"]);
    assert_eq!(used("use super::super::host::log;", 2), ["host"]);
    assert_eq!(used("use super::host::log;", 1), ["host"]);
}

#[test]
fn uses_elsewhere_and_in_tests_do_not_count() {
    for text in [
        "//! As crate::upkeep does.",
        "use super::host::log;",
        "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::upkeep::tests;\n}",
    ] {
        assert_eq!(used(text, 2), Vec::<String>::new(), "{text}");
    }
}

/// A machine of core changes when it is told what happened, and in no other way.
#[test]
fn a_machine_shows_no_field() {
    let machines =
        [("host/mod.rs", "Host"), ("upload/mod.rs", "Upload<B, C>"), ("sched.rs", "Scheduler")];
    for (file, machine) in machines {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src").join(file);
        let source = code(&fs::read_to_string(&path).unwrap());
        let (_, fields) = source.split_once(&format!("pub struct {machine} {{\n")).unwrap();
        let (fields, _) = fields.split_once("\n}\n").unwrap();
        let shown: Vec<_> = fields.lines().filter(|line| line.contains("pub")).collect();
        assert!(shown.is_empty(), "{} shows {shown:?}", path.display());
    }
}

/// A mutex of the client without a rank could be taken in any order. Those of tokio are held across
/// waits, and each is alone in its task.
#[test]
fn mutexes_of_the_client_have_ranks() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client/src");
    let all = fs::read_dir(sources).unwrap().map(|entry| entry.unwrap().path());
    let rooms: BTreeSet<String> =
        all.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let others = rooms.iter().filter(|room| *room != "rank");
    for (path, _) in others.flat_map(|room| files_of("client", room)) {
        let source = code(&fs::read_to_string(&path).unwrap()).replace("tokio::sync::Mutex", "");
        let found = source.lines().find(|line| line.contains("Mutex"));
        assert!(found.is_none(), "{}: {found:?} has no rank", path.display());
    }
}
