//! FUSE over io_uring, which the kernel offers only where it is told to.

use std::fs;

use super::{Doing, Result};

const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";

/// Has the kernel offer io_uring to new mounts while this lives, and then does as it did.
#[derive(Debug)]
pub struct FuseUring {
    before: String,
}

impl FuseUring {
    /// Whether the kernel offers it now.
    pub fn is_offered() -> bool {
        fs::read_to_string(ENABLE).is_ok_and(|offered| offered.starts_with('Y'))
    }

    /// Begins; an error says that this kernel has none.
    pub fn offer() -> Result<FuseUring> {
        let before = fs::read_to_string(ENABLE).doing("io_uring in this kernel's FUSE")?;
        fs::write(ENABLE, "Y").doing("allow FUSE over io_uring")?;
        Ok(FuseUring { before })
    }
}

impl Drop for FuseUring {
    fn drop(&mut self) {
        if let Err(error) = fs::write(ENABLE, &self.before) {
            eprintln!("segue-bench: {ENABLE}: {error}");
        }
    }
}
