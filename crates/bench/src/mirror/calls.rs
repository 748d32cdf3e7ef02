//! One request, one answer: translation only.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::fs::{self, AtFlags, Mode};
use segue_fuse::abi::Attr;
use segue_fuse::{Answer, Call, Entry, Errno, FileSystem, Notifier, Outcome, Reply, Request};

use super::counts::Counts;
use super::files::{Backings, Opened};
use super::names::Listed;
use super::nodes::Nodes;
use super::{Flush, Options};
use segue_bed::handles::Handles;

#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) nodes: Nodes,
    pub(crate) files: Handles<Opened>,
    pub(crate) backings: Backings,
    pub(crate) listings: Handles<Vec<Listed>>,
    pub(crate) options: Options,
    pub(crate) counts: Counts,
    notifier: OnceLock<Notifier>,
}

impl Mirror {
    pub(crate) fn new(source: &Path, options: Options) -> io::Result<Mirror> {
        Ok(Mirror {
            nodes: Nodes::new(source)?,
            files: Handles::new(),
            backings: Backings::default(),
            listings: Handles::new(),
            options,
            counts: Counts::new(),
            notifier: OnceLock::new(),
        })
    }

    /// The handshake is done.
    pub(crate) fn begin(&self, notifier: Notifier) {
        // Called once.
        let _ = self.notifier.set(notifier);
    }

    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }

    pub(crate) fn entry(&self, attr: Attr) -> Entry {
        let ttl = self.options.ttl();
        Entry { node: attr.ino, generation: 0, name_ttl: ttl, attr_ttl: ttl, attr }
    }

    fn lookup(&self, parent: u64, name: &OsStr) -> io::Result<Answer> {
        match self.nodes.lookup(parent, name) {
            // Node 0 lets the kernel cache that there is no such name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Answer::Entry(self.entry(Attr::default())))
            }
            found => Ok(Answer::Entry(self.entry(found?))),
        }
    }

    fn attr(&self, attr: io::Result<Attr>) -> io::Result<Answer> {
        Ok(Answer::Attr(attr?, self.options.ttl()))
    }

    fn answer(&self, request: &Request<'_>) -> io::Result<Answer> {
        let (node, from) = (request.node(), &request.header);
        let mode_of = Mode::from_raw_mode;
        match request.call {
            Call::Lookup { name } => self.lookup(node, name),
            Call::GetAttr { .. } => self.attr(self.nodes.attr(node)),
            Call::SetAttr(ref set) => self.attr(self.set(node, set)),
            Call::ReadLink => self.read_link(node),
            Call::Symlink { name, target } => {
                self.made(from, name, |dir| fs::symlinkat(target, dir, name))
            }
            Call::MkNod { name, mode, device, .. } => {
                let kind = fs::FileType::from_raw_mode(mode);
                let make = |dir: &_| fs::mknodat(dir, name, kind, mode_of(mode), device.into());
                self.made(from, name, make)
            }
            Call::MkDir { name, mode, .. } => {
                self.made(from, name, |dir| fs::mkdirat(dir, name, mode_of(mode)))
            }
            Call::Unlink { name } => self.remove(node, name, AtFlags::empty()),
            Call::RmDir { name } => self.remove(node, name, AtFlags::REMOVEDIR),
            Call::Rename { name, new_parent, new_name, flags } => {
                self.rename((node, name), (new_parent, new_name), flags)
            }
            Call::Link { node: linked, name } => self.link(linked, (node, name)),
            Call::Open { .. } if self.options.no_open => Err(nosys()),
            Call::Open { flags, .. } => self.open(node, flags),
            Call::Create { .. } if self.options.no_open => Err(nosys()),
            Call::Create { name, flags, mode, .. } => self.create(from, name, flags, mode),
            Call::Read { handle, offset, size, .. } => self.read((node, handle), offset, size),
            Call::Write { handle, offset, data, .. } => self.write((node, handle), offset, data),
            Call::Flush { .. } if self.options.flush == Flush::Answer => Ok(Answer::Empty),
            Call::Release { handle, .. } => {
                self.files.remove(handle);
                Ok(Answer::Empty)
            }
            Call::FSync { handle, data_only } => self.sync((node, handle), data_only),
            Call::StatFs => self.space(node),
            Call::SetXattr { name, value, flags, .. } => self.set_xattr(node, name, value, flags),
            Call::GetXattr { name, size } => self.get_xattr(node, name, size),
            Call::ListXattr { size } => self.list_xattr(node, size),
            Call::RemoveXattr { name } => self.remove_xattr(node, name),
            Call::OpenDir { .. } => self.list(node),
            Call::ReadDir { handle, offset, size } => self.names(handle, offset, size),
            Call::ReadDirPlus { handle, offset, size } => {
                self.names_plus((node, handle), offset, size)
            }
            Call::ReleaseDir { handle } => {
                self.listings.remove(handle);
                Ok(Answer::Empty)
            }
            _ => Err(nosys()),
        }
    }
}

pub(crate) fn nosys() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSYS)
}

impl FileSystem for Mirror {
    fn call(&self, request: Request<'_>, reply: Reply) {
        let start = self.options.counts.is_some().then(Instant::now);
        let outcome: Outcome = self.answer(&request).map_err(|error| Errno::from(&error));
        if let Some(start) = start {
            self.counts.add(request.header.opcode, start.elapsed());
        }
        reply.send(outcome);
    }

    fn forget(&self, nodes: Vec<(u64, u64)>) {
        for (node, lookups) in nodes {
            self.nodes.forget(node, lookups);
        }
    }
}
