//! Where the volume is: a Segue server (later also an NFS server).

mod segue;

pub(crate) use segue::{Remote, WireChunk};
