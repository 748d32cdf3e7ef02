//! Errors as the kernel takes them.

/// An error number between 1 and 511.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(i32);

impl Errno {
    /// The call is unknown here. For some requests the kernel does not ask again.
    pub const NOSYS: Errno = Errno(libc::ENOSYS);
    /// The caller was interrupted.
    pub const INTR: Errno = Errno(libc::EINTR);
    /// A failure without a better number.
    pub const IO: Errno = Errno(libc::EIO);

    /// The error `errno`; numbers that the kernel refuses become EIO.
    pub fn new(errno: i32) -> Errno {
        if (1..512).contains(&errno) { Errno(errno) } else { Errno::IO }
    }

    /// The number.
    pub fn raw(self) -> i32 {
        self.0
    }
}

impl From<&std::io::Error> for Errno {
    fn from(error: &std::io::Error) -> Errno {
        Errno::new(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno::new(error.raw_os_error())
    }
}
