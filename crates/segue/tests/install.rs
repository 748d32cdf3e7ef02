//! `make install` and `make uninstall`, into a directory.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory to install into, and what is taken for what cargo has built.
struct Packaging {
    top: TempDir,
}

impl Packaging {
    fn new() -> Packaging {
        let top = tempfile::tempdir().unwrap();
        // Whoever installs builds and fetches nothing.
        let programs = top.path().join("programs");
        fs::create_dir(&programs).unwrap();
        for name in ["cargo", "rustc", "apt-get", "curl", "sudo"] {
            let program = programs.join(name);
            fs::write(&program, "#!/bin/sh\ntouch \"${0%/*}/was-run\"\nexit 1\n").unwrap();
            let marked = Command::new("chmod").arg("755").arg(&program).status().unwrap();
            assert!(marked.success());
        }
        Packaging { top }
    }

    fn root(&self) -> PathBuf {
        self.top.path().join("root")
    }

    fn make(&self, target: &str) -> Output {
        let path = std::env::var("PATH").unwrap();
        let made = Command::new("make")
            .args(["--no-print-directory", target, "PREFIX=/usr"])
            .arg(format!("DESTDIR={}", self.root().display()))
            .arg("--directory")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .env("PATH", format!("{}:{path}", self.top.path().join("programs").display()))
            .env("CARGO_TARGET_DIR", self.top.path().join("target"))
            .env_remove("MAKEFLAGS")
            .output()
            .unwrap();
        assert!(!self.top.path().join("programs/was-run").exists(), "{made:?}");
        made
    }

    /// systemd accepts the units, where it is installed.
    fn verify_units(&self, installed: &[&str]) {
        let units = |user: bool| {
            let wanted = if user { "systemd/user/" } else { "systemd/system/" };
            installed.iter().filter(move |path| path.contains(wanted))
        };
        for user in [false, true] {
            let mut verify = Command::new("systemd-analyze");
            verify.arg(if user { "--user" } else { "--system" }).args(["verify", "--man=no"]);
            // A template is verified as one of its units.
            for unit in units(user) {
                let path = self.root().join(unit);
                let instance = self.top.path().join(path.file_name().unwrap());
                let instance = instance.to_str().unwrap().replace("@.", "@home.");
                // The program is not where the unit says.
                let program = self.root().join("usr/bin/segue");
                let text = fs::read_to_string(path).unwrap();
                let text = text.replace("/usr/bin/segue", &program.display().to_string());
                fs::write(&instance, text).unwrap();
                verify.arg(instance);
            }
            let Ok(verified) = verify.env("XDG_RUNTIME_DIR", self.top.path()).output() else {
                return;
            };
            let said = String::from_utf8(verified.stderr).unwrap();
            assert!(verified.status.success() && !said.contains("segue-"), "{said}");
        }
    }

    /// All files and links below the root.
    fn found(&self) -> BTreeSet<String> {
        let mut directories = vec![self.root()];
        let mut found = BTreeSet::new();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    directories.push(entry.path());
                } else {
                    let path = entry.path();
                    let path = path.strip_prefix(self.root()).unwrap();
                    found.insert(path.to_str().unwrap().to_owned());
                }
            }
        }
        found
    }
}

#[test]
fn what_was_built_is_installed_and_removed() {
    let packaging = Packaging::new();
    let without = packaging.make("install");
    assert!(!without.status.success());
    let words = String::from_utf8(without.stderr).unwrap();
    assert!(words.contains("segue is not there: run 'make build' first"), "{words}");
    assert_eq!(packaging.found(), BTreeSet::new());

    let built = packaging.top.path().join("target/release/segue");
    fs::create_dir_all(built.parent().unwrap()).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_segue"), &built).unwrap();
    let installed = packaging.make("install");
    assert!(installed.status.success(), "{installed:?}");
    let expected = [
        "sbin/mount.fuse.segue",
        "sbin/mount.segue",
        "usr/bin/segue",
        "usr/lib/systemd/system-sleep/segue",
        "usr/lib/systemd/system/segue-backup@.service",
        "usr/lib/systemd/system/segue-backup@.timer",
        "usr/lib/systemd/system/segue-check.service",
        "usr/lib/systemd/system/segue-check.timer",
        "usr/lib/systemd/system/segue-server.service",
        "usr/lib/systemd/system/segue-shutdown.service",
        "usr/lib/systemd/user/segue-mount@.service",
        "usr/lib/sysusers.d/segue.conf",
        "usr/share/bash-completion/completions/segue",
        "usr/share/fish/vendor_completions.d/segue.fish",
        "usr/share/zsh/site-functions/_segue",
    ];
    assert_eq!(packaging.found(), expected.map(str::to_owned).into());
    let program = packaging.root().join("usr/bin/segue");
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(size(&program) < size(&built) / 2, "{} bytes", size(&program));
    let version = Command::new(&program).arg("--version").output().unwrap();
    assert!(version.stdout.starts_with(b"segue "), "{version:?}");
    let helper = fs::read_link(packaging.root().join("sbin/mount.segue")).unwrap();
    assert_eq!(helper, Path::new("/usr/bin/segue"));
    for packaged in expected.iter().filter(|path| path.contains("systemd/")) {
        let text = fs::read_to_string(packaging.root().join(packaged)).unwrap();
        assert!(text.contains("/usr/bin/segue ") || packaged.ends_with(".timer"), "{text}");
        assert!(!text.contains("/usr/local"), "{text}");
    }
    packaging.verify_units(&expected);

    // Somebody else's file stays.
    fs::write(packaging.root().join("usr/bin/other"), "").unwrap();
    let removed = packaging.make("uninstall");
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(packaging.found(), ["usr/bin/other".to_owned()].into());
}
