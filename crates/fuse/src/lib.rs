//! A narrow binding to /dev/fuse: the kernel's file system protocol, 7.31 to 7.45, and nothing
//! else.
//!
//! ```text
//!              ┌ device: read ─┐                        ┌ device: writev ┐
//!   kernel ────┤               ├─▶ request ─▶ call ─▶ answer             ├───▶ kernel
//!              └ uring: fetch ─┘     (decode)  (yours) (encode)  uring: commit
//! ```
//!
//! A file system is one function, [`FileSystem::call`]: a [`Request`] comes in, and a
//! [`Reply`] takes its [`Answer`], at once on the thread that read the request or at any time
//! from any thread. Each request gets exactly one answer; a reply that is dropped says EIO.
//! Codec and agreement are pure (bytes in, bytes out); only `device`, `uring` and `mount`
//! touch the system.
//!
//! Not spoken: CUSE, and virtio-fs's SETUPMAPPING and REMOVEMAPPING, which map files into a
//! memory window that /dev/fuse does not have.

pub mod abi;
mod agreement;
mod answer;
mod backing;
mod device;
mod errno;
mod interrupts;
mod mount;
mod notifier;
mod reply;
mod request;
mod session;
mod uring;

pub use agreement::{Agreement, Wishes};
pub use answer::{Answer, Entry, Listing, Open, Outcome};
pub use backing::{Backing, BackingId};
pub use errno::Errno;
pub use interrupts::{Interrupts, PendingCall};
pub use mount::{MountOptions, NOSYMFOLLOW, detach, mount, unmount};
pub use notifier::Notifier;
pub use reply::Reply;
pub use request::{Call, Dialect, Lock, Malformed, Request, SetAttr, SetTime, decode};
pub use session::{FileSystem, FuseSession};
