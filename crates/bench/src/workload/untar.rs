//! `untar`: how long unpacking a source tree takes, and how long until the server has it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Place, Waited, Workload, content, timed};
use crate::bed::{Doing, Result, Rng, run};

const FILES: u32 = 2_000;
const FILES_IN_DIRECTORY: u32 = 40;

/// 30 MB in 2,000 files: sizes are uniform up to twice the mean.
const MEAN_BYTES: u64 = 15 * 1024;

pub(crate) struct Untar;

impl Workload for Untar {
    fn name(&self) -> &'static str {
        "untar"
    }

    fn about(&self) -> &'static str {
        "unpack a local tar of 2,000 files, 30 MB, three quarters of them compressible text"
    }

    fn warm(&self, place: &Place) -> Result<()> {
        let tree = place.host.mkdir("tree")?;
        make_tree(&tree, place.scaled(FILES))?;
        let mut tar = place.host.command("tar");
        tar.args(["--sort=name", "--mtime=2024-01-01", "-C"]).arg(&tree).arg("-cf");
        run(tar.arg(archive(place)).arg("."))?;
        fs::remove_dir_all(&tree).doing("remove the tree")
    }

    fn measure(&self, place: &Place) -> Result<Waited> {
        let mut tar = place.host.command("tar");
        tar.arg("-C").arg(&place.dir).arg("-xf").arg(archive(place));
        timed(|| run(&mut tar).map(drop))
    }

    fn writes(&self) -> bool {
        true
    }
}

fn archive(place: &Place) -> PathBuf {
    place.host.dir().join("tree.tar")
}

fn make_tree(dir: &Path, files: u32) -> Result<()> {
    let mut rng = Rng::new(2);
    for number in 0..files {
        let dir = dir.join(format!("d{:02}", number / FILES_IN_DIRECTORY));
        fs::create_dir_all(&dir).doing("make a directory")?;
        let bytes = usize::try_from(rng.below(2 * MEAN_BYTES)).unwrap_or(0);
        let make = if number % 4 == 0 { content::noise } else { content::text };
        fs::write(dir.join(format!("file{number:04}.c")), make(&mut rng, bytes))
            .doing("write a file")?;
    }
    Ok(())
}
