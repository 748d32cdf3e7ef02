//! libfuse's own example of a mirror, built where its source is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use segue_bed::{Error, Result, run};

/// Where Debian's libfuse3-dev has it. The source is the GPL's, so it is not kept here.
const SOURCE: &str = "/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c";

/// Builds it in `dir`, unless it is there, and returns the program.
pub(super) fn build(dir: &Path) -> Result<PathBuf> {
    let program = dir.join("passthrough_ll");
    if program.exists() {
        return Ok(program);
    }
    if !Path::new(SOURCE).exists() {
        let hint = format!("{SOURCE} is missing: apt-get install libfuse3-dev");
        return Err(Error::Unavailable(hint));
    }
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-w", "-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3", "-o"]);
    run(cc.arg(&program).args([SOURCE, "-lfuse3", "-lpthread"]))?;
    Ok(program)
}
