//! Open files and directories, by the numbers that the kernel hands back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use segue_core::types::{Caller, Ino, Name};

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) ino: Ino,
    pub(crate) writable: bool,
    /// O_SYNC or O_DSYNC: each write waits.
    pub(crate) synchronous: bool,
    /// Who opened it; a write has no caller of its own.
    pub(crate) caller: Caller,
}

/// What a directory lists.
pub(crate) type Names = Arc<Vec<(Name, Ino)>>;

/// An open directory: its names as of when it was first read, or rewound.
#[derive(Debug)]
pub(crate) struct DirectoryHandle {
    pub(crate) ino: Ino,
    pub(crate) names: Mutex<Option<Names>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    next: u64,
    files: HashMap<u64, Arc<FileHandle>>,
    directories: HashMap<u64, Arc<DirectoryHandle>>,
}

impl Handles {
    pub(crate) fn add_file(&mut self, file: FileHandle) -> u64 {
        self.next += 1;
        self.files.insert(self.next, Arc::new(file));
        self.next
    }

    pub(crate) fn file(&self, handle: u64) -> Option<Arc<FileHandle>> {
        self.files.get(&handle).cloned()
    }

    /// Who has `ino` open for writing.
    pub(crate) fn writer(&self, ino: Ino) -> Option<Caller> {
        let mut writers = self.files.values().filter(|file| file.ino == ino && file.writable);
        writers.next().map(|file| file.caller.clone())
    }

    pub(crate) fn remove_file(&mut self, handle: u64) -> Option<Arc<FileHandle>> {
        self.files.remove(&handle)
    }

    pub(crate) fn add_directory(&mut self, directory: DirectoryHandle) -> u64 {
        self.next += 1;
        self.directories.insert(self.next, Arc::new(directory));
        self.next
    }

    pub(crate) fn directory(&self, handle: u64) -> Option<Arc<DirectoryHandle>> {
        self.directories.get(&handle).cloned()
    }

    pub(crate) fn remove_directory(&mut self, handle: u64) {
        self.directories.remove(&handle);
    }
}
