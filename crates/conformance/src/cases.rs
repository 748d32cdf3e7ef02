//! The cases, one file for each group of calls.

use crate::Case;

/// Lists a group's cases: those that anyone can run, and those only root can.
macro_rules! cases {
    ($group:literal anyone: $($anyone:ident),* $(,)?; root: $($root:ident),* $(,)?;) => {
        pub(crate) const CASES: &[$crate::Case] = &[
            $($crate::Case {
                name: concat!($group, "::", stringify!($anyone)),
                needs: $crate::Needs::Nothing,
                run: $anyone,
            },)*
            $($crate::Case {
                name: concat!($group, "::", stringify!($root)),
                needs: $crate::Needs::Root,
                run: $root,
            },)*
        ];
    };
}

mod access;
mod append;
mod attributes;
mod chmod;
mod chown;
mod copy;
mod directory;
mod exec;
mod filesystem;
mod flock;
mod holes;
mod inotify;
mod link;
mod mkdir;
mod mknod;
mod mmap;
mod mounts;
mod offers;
mod open;
mod paths;
mod read_write;
mod record_locks;
mod rename;
mod rename_flags;
mod rmdir;
mod stamps;
mod symlink;
mod times;
mod tmpfile;
mod together;
mod truncate;
mod unlink;
mod xattr;

/// Every case of the suite, group by group.
pub fn cases() -> Vec<Case> {
    [
        paths::CASES,
        open::CASES,
        mkdir::CASES,
        rmdir::CASES,
        unlink::CASES,
        link::CASES,
        symlink::CASES,
        rename::CASES,
        rename_flags::CASES,
        mknod::CASES,
        truncate::CASES,
        chmod::CASES,
        chown::CASES,
        access::CASES,
        attributes::CASES,
        times::CASES,
        stamps::CASES,
        directory::CASES,
        read_write::CASES,
        append::CASES,
        holes::CASES,
        copy::CASES,
        mmap::CASES,
        tmpfile::CASES,
        xattr::CASES,
        flock::CASES,
        record_locks::CASES,
        together::CASES,
        inotify::CASES,
        exec::CASES,
        mounts::CASES,
        filesystem::CASES,
        offers::CASES,
    ]
    .concat()
}
