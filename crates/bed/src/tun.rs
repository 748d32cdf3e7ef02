//! TUN devices: packets of a namespace, read and written as bytes of a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::error::{Doing, Result};
use super::netns::NetNs;

/// Makes the TUN device `name` in `ns`; it lives as long as the returned file.
pub(crate) fn open(ns: &NetNs, name: &str) -> Result<File> {
    let made: io::Result<File> = ns.enter(|| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        attach(&file, name)?;
        Ok(file)
    })?;
    made.doing(format!("make the TUN device {name} in {}", ns.name()))
}

#[allow(unsafe_code)]
fn attach(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or(0);
    // SAFETY: the descriptor is open for the whole call, and TUNSETIFF reads and writes one
    // ifreq, which `request` is.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
