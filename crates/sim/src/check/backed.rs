//! The kernel reads one version of a passed-through file: all of its container is valid for as long
//! as the kernel reads that under the file's own number. A write that failed on a full disk leaves
//! its part there, as in any file system.

use crate::Violation;
use crate::client::Mount;

/// Checks the files that the kernel of `mount` reads by itself.
pub(crate) fn check(mount: &Mount) -> Result<(), Violation> {
    let core = &mount.core;
    let half_written = &mount.disk.half_written;
    for ino in core.nodes().backed_files().filter(|ino| !half_written.contains(ino)) {
        let size = core.tree().peek(ino).map_or(0, |attr| attr.size);
        let file = core.data_of(ino);
        let is_whole = file.is_some_and(|file| file.is_valid(0..size, size));
        let container = file.map(|file| (ino, file.container()));
        let is_there =
            size == 0 || container.is_some_and(|key| mount.disk.kept.containers.contains_key(&key));
        if !is_whole || !is_there {
            return Err(Violation(format!("the kernel reads {ino}, of which not all is there")));
        }
    }
    Ok(())
}
