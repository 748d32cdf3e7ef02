//! Small secret files: written whole or not at all, readable by their owner only.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use super::IdentityError;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, IdentityError> {
    result.map_err(|error| IdentityError::File { path: path.to_owned(), error })
}

/// The file's bytes, `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, IdentityError> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => at(path, result).map(Some),
    }
}

/// Makes a directory, and its parents, for secrets.
pub(super) fn make_directory(path: &Path) -> Result<(), IdentityError> {
    at(path, DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path))
}

/// Replaces a file, durably: after a crash it has its old bytes or all the new ones.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    // The process id keeps two writers apart; both write a whole file.
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new-{}", std::process::id()));
    let replaced = (|| {
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(FILE_MODE).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(directory)?.sync_all()
    })();
    if replaced.is_err() {
        // An error of this cleanup is not worth reporting.
        let _ = fs::remove_file(&new);
    }
    at(path, replaced)
}

/// Renames a file, if it is there, so that `.old` is added to its name.
pub(super) fn set_aside(directory: &Path, name: &str) -> Result<(), IdentityError> {
    let path = directory.join(name);
    match fs::rename(&path, directory.join(format!("{name}.old"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => at(&path, result),
    }
}
