//! FUSE over io_uring, which the kernel offers only where it is told to.

use std::fs::File;
use std::io::{Read, Write};

use rustix::fs::{FlockOperation, flock};

use super::{Doing, Result};

const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";

/// Has the kernel offer io_uring to new mounts, or not, while this lives, and then do as it did.
#[derive(Debug)]
pub struct FuseUring {
    before: String,
    /// Locked: tests in other processes wait.
    parameter: File,
}

impl FuseUring {
    /// Has it offered; an error says that this kernel has none.
    pub fn offer() -> Result<FuseUring> {
        FuseUring::set(b"Y")
    }

    /// Has it not offered; an error says that this kernel has none.
    pub fn withhold() -> Result<FuseUring> {
        FuseUring::set(b"N")
    }

    fn set(value: &[u8]) -> Result<FuseUring> {
        let parameter = File::options().read(true).write(true).open(ENABLE);
        let mut parameter = parameter.doing("io_uring in this kernel's FUSE")?;
        flock(&parameter, FlockOperation::LockExclusive).doing(format!("lock {ENABLE}"))?;
        let mut before = String::new();
        parameter.read_to_string(&mut before).doing(format!("read {ENABLE}"))?;
        parameter.write_all(value).doing(format!("write {ENABLE}"))?;
        Ok(FuseUring { before, parameter })
    }
}

impl Drop for FuseUring {
    fn drop(&mut self) {
        if let Err(error) = self.parameter.write_all(self.before.as_bytes()) {
            eprintln!("segue-bed: {ENABLE}: {error}");
        }
    }
}
