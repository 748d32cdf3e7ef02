//! A file system that is mounted for one test, and is gone after it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A mounted file system. Dropping it unmounts, also while a test fails.
pub(crate) struct Mounted {
    root: PathBuf,
    _dir: TempDir,
}

impl Mounted {
    /// What `mount` makes of `arguments`, with `DIR` for a fresh directory; `prepare` is run
    /// there before. Nothing where `SEGUE_SKIP_E2E=1` allows to do without.
    pub(crate) fn new(prepare: &[&str], arguments: &[&str]) -> Option<Mounted> {
        if !rustix::process::geteuid().is_root() {
            let is_allowed = std::env::var_os("SEGUE_SKIP_E2E").is_some_and(|value| value == "1");
            assert!(is_allowed, "mounting needs root; SEGUE_SKIP_E2E=1 skips this test");
            eprintln!("SKIPPED: mounting needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        if let [program, rest @ ..] = prepare {
            run(program, rest, dir.path());
        }
        let root_argument = root.to_str().unwrap();
        run("mount", &[arguments, &[root_argument]].concat(), dir.path());
        Some(Mounted { root, _dir: dir })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily where something is stuck in it: the loop device goes with the last use.
        for flags in [&[][..], &["-l"]] {
            let unmounted = Command::new("umount").args(flags).arg(&self.root).status();
            if unmounted.is_ok_and(|status| status.success()) {
                return;
            }
        }
        eprintln!("{} stays mounted", self.root.display());
    }
}

fn run(program: &str, arguments: &[&str], dir: &Path) {
    let ran = Command::new(program).args(arguments).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} {}: {said}", arguments.join(" "));
}
