//! The logs of the programs of a bed, for the report of a test that failed: the files go with the
//! bed.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of each log that are shown, its last ones.
const LINES: usize = 25;
/// Directories below the bed's that are searched.
const DEPTH: usize = 9;

/// Prints the end of each log below `dir` to stderr.
pub(crate) fn print_below(dir: &Path) {
    for path in logs(dir, DEPTH) {
        let text = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
        if !end.is_empty() {
            eprintln!("--- the end of {}\n{}", path.display(), end.join("\n"));
        }
    }
}

/// The files called `*.log` below `dir`, on its own file system only: a mount may hang.
fn logs(dir: &Path, depth: usize) -> Vec<PathBuf> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !crate::segue::is_mounted(&path) => {
                found.extend(logs(&path, depth));
            }
            Ok(kind)
                if kind.is_file()
                    && path.extension().is_some_and(|end| end == "log")
                    && path.file_name().is_some_and(|name| name != "update.log") =>
            {
                found.push(path);
            }
            _ => {}
        }
    }
    found.sort();
    found
}
