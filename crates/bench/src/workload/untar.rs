//! `untar` and `npm-tree`: how long unpacking a tree takes, and how long until the server has it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Waited, Workload, WorkloadDir, content, timed};
use segue_bed::{Doing, Host, Result, Rng, run};

/// A tree to unpack.
pub(crate) struct Untar {
    name: &'static str,
    about: &'static str,
    files: u32,
    files_in_directory: u32,
    /// Sizes are uniform up to twice this.
    mean_bytes: u64,
}

/// Like the sources of a program: 30 MB.
pub(crate) const SOURCES: Untar = Untar {
    name: "untar",
    about: "unpack a local tar of 2,000 files, 30 MB, three quarters of them compressible text",
    files: 2_000,
    files_in_directory: 40,
    mean_bytes: 15 * 1024,
};

/// Like what a program in JavaScript depends on: 80 MB.
pub(crate) const PACKAGES: Untar = Untar {
    name: "npm-tree",
    about: "the same with 20,000 files in 2,500 directories, 80 MB",
    files: 20_000,
    files_in_directory: 8,
    mean_bytes: 4 * 1024,
};

impl Workload for Untar {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn warm(&self, place: &WorkloadDir) -> Result<()> {
        let tree = place.host.mkdir("tree")?;
        self.make_tree(&tree, place.scaled(self.files))?;
        let mut tar = place.host.command("tar");
        tar.args(["--sort=name", "--mtime=2024-01-01", "-C"]).arg(&tree).arg("-cf");
        // The tree stays: ext4 looks for places for new files among those that were removed in the
        // last minutes, which took a third of the time of the thread that made them.
        run(tar.arg(archive(&place.host)).arg(".")).map(drop)
    }

    fn measure(&self, place: &WorkloadDir) -> Result<Waited> {
        let mut tar = place.host.command("tar");
        tar.arg("-C").arg(&place.dir).arg("-xf").arg(archive(&place.host));
        timed(|| run(&mut tar).map(drop))
    }

    fn writes(&self) -> bool {
        true
    }
}

/// What is unpacked.
pub(crate) fn archive(host: &Host) -> PathBuf {
    host.dir().join("tree.tar")
}

impl Untar {
    fn make_tree(&self, dir: &Path, files: u32) -> Result<()> {
        let mut rng = Rng::new(2);
        for number in 0..files {
            let dir = dir.join(format!("d{:02}", number / self.files_in_directory));
            fs::create_dir_all(&dir).doing("make a directory")?;
            let bytes = usize::try_from(rng.below(2 * self.mean_bytes)).unwrap_or(0);
            let make = if number % 4 == 0 { content::noise } else { content::text };
            fs::write(dir.join(format!("file{number:04}.c")), make(&mut rng, bytes))
                .doing("write a file")?;
        }
        Ok(())
    }
}
