//! `git-checkout`: how long another branch takes to be there, in a repository that is mounted.

use std::fs;
use std::path::Path;

use super::{Waited, Workload, WorkloadDir, content, timed, untar};
use segue_bed::{Doing, Result, Rng, run};

const FILES: u32 = 4_000;
const FILES_IN_DIRECTORY: u32 = 40;
/// Sizes are uniform up to twice this.
const MEAN_BYTES: u64 = 8 * 1024;

pub(crate) struct Checkout;

impl Workload for Checkout {
    fn name(&self) -> &'static str {
        "git-checkout"
    }

    fn about(&self) -> &'static str {
        "git checkout of a branch with 2,000 other files of 4,000, 16 MB of text"
    }

    /// Two branches, of which the second has every other file changed; what that has is also put
    /// into an archive, as what is to be sent.
    fn warm(&self, place: &WorkloadDir) -> Result<()> {
        let files = place.scaled(FILES).max(2);
        git(place, &["init", "-q", "-b", "one", "."])?;
        for (key, value) in
            [("user.name", "bench"), ("user.email", "bench@bench"), ("gc.auto", "0")]
        {
            git(place, &["config", key, value])?;
        }
        let mut rng = Rng::new(6);
        (0..files).try_for_each(|number| write(&place.dir, number, &mut rng))?;
        git(place, &["add", "."])?;
        git(place, &["commit", "-q", "-m", "one"])?;
        git(place, &["checkout", "-q", "-b", "two"])?;
        (0..files).step_by(2).try_for_each(|number| write(&place.dir, number, &mut rng))?;
        git(place, &["commit", "-q", "-a", "-m", "two"])?;
        // Not by tar, which finds that files change under it: rclone sets their times once they are
        // sent.
        let mut archive = place.host.command("git");
        archive.arg("-C").arg(&place.dir).args(["archive", "--format=tar", "-o"]);
        archive.arg(untar::archive(&place.host)).arg("two");
        run(archive.args((0..files).step_by(2).map(name)))?;
        git(place, &["checkout", "-q", "one"])
    }

    fn measure(&self, place: &WorkloadDir) -> Result<Waited> {
        timed(|| git(place, &["checkout", "-q", "two"]))
    }

    fn writes(&self) -> bool {
        true
    }
}

fn git(place: &WorkloadDir, args: &[&str]) -> Result<()> {
    let mut git = place.host.command("git");
    run(git.arg("-C").arg(&place.dir).args(args)).map(drop)
}

fn name(number: u32) -> String {
    format!("d{:02}/file{number:04}.c", number / FILES_IN_DIRECTORY)
}

fn write(root: &Path, number: u32, rng: &mut Rng) -> Result<()> {
    let path = root.join(name(number));
    let bytes = usize::try_from(rng.below(2 * MEAN_BYTES)).unwrap_or(0);
    let dir = path.parent().unwrap_or(root);
    fs::create_dir_all(dir).doing("make a directory")?;
    fs::write(&path, content::text(rng, bytes)).doing("write a file")
}
