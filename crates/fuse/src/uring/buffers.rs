//! The memory that a ring's entries share with the kernel: a header and a payload each, at fixed
//! addresses.

use std::io;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::HEADER;

/// The buffers of all entries of a queue.
pub(super) struct Buffers {
    headers: Vec<[u8; HEADER]>,
    payloads: Payloads,
    payload_len: usize,
    vectors: Vec<[libc::iovec; 2]>,
}

// SAFETY: the pointers in `vectors` point into `headers` and `payloads`, which move along.
unsafe impl Send for Buffers {}

impl std::fmt::Debug for Buffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffers").field("entries", &self.headers.len()).finish_non_exhaustive()
    }
}

impl Buffers {
    pub(super) fn new(entries: u16, payload_len: usize) -> io::Result<Buffers> {
        let mut headers = vec![[0; HEADER]; entries.into()];
        let mut payloads = Payloads::new(usize::from(entries) * payload_len)?;
        let vector = |base: &mut [u8]| libc::iovec {
            iov_base: base.as_mut_ptr().cast(),
            iov_len: base.len(),
        };
        let vectors = headers.iter_mut().enumerate().map(|(entry, header)| {
            let payload = payloads.part(entry * payload_len, payload_len)?;
            Some([vector(header), vector(payload)])
        });
        let vectors = vectors.collect::<Option<_>>().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Buffers { headers, payloads, payload_len, vectors })
    }

    /// Header and payload of an entry that is ours.
    pub(super) fn entry(&mut self, entry: u16) -> Option<(&mut [u8; HEADER], &mut [u8])> {
        let entry = usize::from(entry);
        let at = entry * self.payload_len;
        let payload = self.payloads.part(at, self.payload_len)?;
        Some((self.headers.get_mut(entry)?, payload))
    }

    /// The address by which the kernel finds the buffers of `entry`.
    pub(super) fn vectors(&self, entry: u16) -> u64 {
        self.vectors.get(usize::from(entry)).map_or(0, |vectors| vectors.as_ptr() as u64)
    }
}

/// Memory of which only used pages count. Most entries stay unused: the kernel takes the one that
/// came back last.
struct Payloads {
    start: *mut u8,
    len: usize,
}

impl Payloads {
    fn new(len: usize) -> io::Result<Payloads> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the address, so nothing in use is there.
        let start = unsafe { mmap_anonymous(null_mut(), len, prot, flags | MapFlags::NORESERVE)? };
        Ok(Payloads { start: start.cast(), len })
    }

    /// The payload of one of our entries: the kernel writes into those of others.
    fn part(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        if at.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: it lies in the mapping, which is initialized with zeros. The kernel does not
        // touch an entry of ours until it is submitted.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) })
    }
}

impl Drop for Payloads {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and no reference into it is left.
        if let Err(error) = unsafe { munmap(self.start.cast(), self.len) } {
            tracing::debug!("unmapping buffers: {error}");
        }
    }
}
