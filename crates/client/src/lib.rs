//! A mount of a Segue volume: FUSE adaptor, container files, index, update log, remote.
//!
//! Everything that can be decided without waiting is in `segue-core`; here is what waits for
//! the kernel, the disk and the server. The library prints nothing, asks nothing and does not
//! read the environment.

pub mod bandwidth;
pub mod bare;
mod clock;
pub mod control;
mod disk;
mod error;
mod fuse;
mod host;
mod kernel;
mod metrics;
mod mount;
mod net;
pub mod options;
pub mod paths;
mod rank;
pub mod replies;
mod shell;
pub mod unmounted;
mod volume;
mod waits;
mod wakes;
mod write_back;

pub use error::MountError;
pub use mount::{MountPlan, Ready, mount};
pub use options::MountOptions;
pub use paths::Paths;
pub use segue_core::namespace::original_name;
pub use segue_core::quantity;
pub use segue_fuse::NOSYMFOLLOW;
pub use segue_rpc::identity::MountUrl;
