//! The commit that a run measures, and the changes that no commit has.
//!
//! A result names its commit, so that its program can be built again. A tree with changes has no
//! such commit; results themselves do not count as changes.

use std::path::Path;
use std::process::Command;

use segue_bed::run;

/// Files that no program is built from, for git.
const RESULTS: &str = ":(top,exclude)bench/results";
/// Changed files that an error names.
const NAMED_MAX: usize = 10;

/// The state of a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// None without git or a repository.
    commit: Option<String>,
    /// Tracked files that differ from the commit.
    changed: Vec<String>,
}

impl Tree {
    /// The tree that this program was built from.
    pub fn of_program() -> Tree {
        Tree::at(Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    fn at(dir: &Path) -> Tree {
        let git = |args: &[&str]| run(Command::new("git").arg("-C").arg(dir).args(args));
        let Ok(head) = git(&["rev-parse", "--short", "HEAD"]) else {
            return Tree { commit: None, changed: Vec::new() };
        };
        let status = ["status", "--porcelain", "--untracked-files=no", "--", ":/", RESULTS];
        let changed = match git(&status) {
            Ok(lines) => {
                lines.lines().filter_map(|line| line.get(3..)).map(str::to_owned).collect()
            }
            Err(error) => vec![format!("(git status: {error})")],
        };
        Tree { commit: Some(head.trim().to_owned()), changed }
    }

    /// The commit as results name it: `-dirty` if the tree differs from it.
    pub fn commit(&self) -> String {
        let Some(commit) = &self.commit else { return "unknown".into() };
        format!("{commit}{}", if self.changed.is_empty() { "" } else { "-dirty" })
    }

    /// Whether git tells the commit.
    pub fn has_commit(&self) -> bool {
        self.commit.is_some()
    }

    /// An error if the tree differs from its commit: the files, and the way out.
    pub fn expect_committed(&self) -> Result<(), String> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let more = self.changed.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        let named: String =
            self.changed.iter().take(NAMED_MAX).map(|file| format!("\n  {file}")).collect();
        Err(format!(
            "the work tree differs from commit {}, which the results would name:{named}{more}\n\
             Commit these files first. To try something out, run with --dirty: the results then \
             name the commit with \"-dirty\".",
            self.commit.as_deref().unwrap_or("unknown")
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn git(dir: &Path, args: &[&str]) {
        let author = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let mut command = Command::new("git");
        run(command.arg("-C").arg(dir).args(author).args(args)).unwrap();
    }

    #[test]
    fn a_changed_file_is_named_and_a_result_is_no_change() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        git(dir, &["init", "-q"]);
        fs::create_dir_all(dir.join("bench/results")).unwrap();
        fs::create_dir_all(dir.join("crates")).unwrap();
        for file in ["bench/results/INDEX.md", "a.rs"] {
            fs::write(dir.join(file), "1").unwrap();
        }
        git(dir, &["add", "."]);
        git(dir, &["commit", "-q", "-m", "first"]);
        fs::write(dir.join("bench/results/INDEX.md"), "2").unwrap();
        fs::write(dir.join("bench/results/new.md"), "2").unwrap();
        fs::write(dir.join("untracked.rs"), "2").unwrap();
        let clean = Tree::at(&dir.join("crates"));
        assert!(clean.has_commit());
        assert_eq!(clean.expect_committed(), Ok(()));
        assert!(!clean.commit().contains("dirty"));

        fs::write(dir.join("a.rs"), "2").unwrap();
        let dirty = Tree::at(&dir.join("crates"));
        let refused = dirty.expect_committed().unwrap_err();
        assert!(refused.contains("\n  a.rs\n") && refused.contains("--dirty"), "{refused}");
        assert!(!refused.contains("INDEX"), "{refused}");
        assert_eq!(dirty.commit(), format!("{}-dirty", clean.commit()));
    }

    #[test]
    fn without_a_repository_the_commit_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::at(dir.path());
        assert!(!tree.has_commit());
        assert_eq!(tree.commit(), "unknown");
        assert_eq!(tree.expect_committed(), Ok(()));
    }

    #[test]
    fn an_error_names_ten_files() {
        let changed = (0..12).map(|number| format!("f{number}.rs")).collect();
        let tree = Tree { commit: Some("c".into()), changed };
        let refused = tree.expect_committed().unwrap_err();
        assert!(refused.contains("f9.rs\n  and 2 more\n"), "{refused}");
    }
}
