//! Answers that go from a file to the kernel without passing through this process.
//!
//! A pipe holds references to the file's pages; the device copies from there. That saves one of
//! two copies and costs a call or two more than reading and writing do.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use zerocopy::IntoBytes;

use crate::abi::OutHeader;
use crate::device::Device;

/// Pipes are this large if the host lets us: a page of each slot may be partly used, and one
/// holds the header.
const PIPE_LEN: usize = 1 << 20;

thread_local! {
    /// This thread's pipe, empty; none before the first use and after a failure.
    static PIPE: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    len: usize,
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let len = fcntl_setpipe_size(&into, PIPE_LEN)?;
        Ok(Pipe { out, into, len })
    }
}

/// Answers request `unique` with `len` bytes of `file` from `offset` on. An error says that
/// nothing was answered: the file is shorter, the pipe too small, or there is none.
pub(crate) fn send(
    device: &Device,
    unique: u64,
    file: BorrowedFd<'_>,
    offset: u64,
    len: usize,
) -> io::Result<()> {
    let pipe = PIPE.take().map_or_else(Pipe::new, Ok)?;
    // Two pages of the first and the last slot, and one of the header, are not full.
    if len + 3 * rustix::param::page_size() > pipe.len {
        PIPE.set(Some(pipe));
        return Err(io::ErrorKind::InvalidInput.into());
    }
    fill(&pipe, unique, file, offset, len)?;
    let total = size_of::<OutHeader>() + len;
    // On failure the pipe is not empty, and is dropped.
    let sent = splice(&pipe.out, None, device.as_fd(), None, total, SpliceFlags::MOVE)?;
    if sent != total {
        return Err(io::ErrorKind::WriteZero.into());
    }
    PIPE.set(Some(pipe));
    Ok(())
}

fn fill(
    pipe: &Pipe,
    unique: u64,
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> io::Result<()> {
    let total = u32::try_from(size_of::<OutHeader>() + len);
    let total = total.map_err(|_| io::ErrorKind::InvalidInput)?;
    let header = OutHeader { len: total, error: 0, unique };
    rustix::io::write(&pipe.into, header.as_bytes())?;
    let mut left = len;
    while left > 0 {
        let moved = splice(file, Some(&mut offset), &pipe.into, None, left, SpliceFlags::MOVE)?;
        if moved == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= moved;
    }
    Ok(())
}
