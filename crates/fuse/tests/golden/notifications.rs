//! Every notification's bytes.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use segue_fuse::{FileSystem, Notifier, Reply, Request, Wishes};

use crate::examples::{Field, bytes};
use crate::kernel::Kernel;

struct Mute;

impl FileSystem for Mute {
    fn call(&self, _: Request<'_>, _: Reply) {}
}

fn told(code: i32, body: &[u8], tell: impl FnOnce(&Notifier) -> io::Result<()>) {
    let kernel = Kernel::new(Arc::new(Mute), Wishes::default());
    tell(&kernel.notifier).unwrap();
    let len = u32::try_from(16 + body.len()).unwrap();
    assert_eq!(kernel.receive(), [bytes![len, code, 0_u64], body.to_vec()].concat());
    kernel.end();
}

#[test]
fn a_polled_file_changed() {
    told(1, &bytes![8_u64], |kernel| kernel.poll_wakeup(8));
}

#[test]
fn pages_are_invalid() {
    told(2, &bytes![77_u64, 4096_i64, 100_i64], |kernel| kernel.invalidate(77, 4096..4196));
    let to_the_end = bytes![77_u64, 4096_i64, 0_i64];
    told(2, &to_the_end, |kernel| kernel.invalidate(77, 4096..u64::MAX));
}

/// 0 would mean the whole file.
#[test]
fn no_pages_are_invalid_in_an_empty_range() {
    told(2, &bytes![77_u64, -1_i64, 0_i64], |kernel| kernel.invalidate(77, 4096..4096));
}

#[test]
fn attributes_are_invalid() {
    told(2, &bytes![77_u64, -1_i64, 0_i64], |kernel| kernel.invalidate_attributes(77));
}

#[test]
fn a_name_is_forgotten() {
    let name = OsStr::new("name");
    told(3, &bytes![9_u64, 4_u32, 0_u32, "name"], |kernel| kernel.forget_name(9, name));
}

#[test]
fn a_name_has_expired() {
    let name = OsStr::new("name");
    told(3, &bytes![9_u64, 4_u32, 1_u32, "name"], |kernel| kernel.expire_name(9, name));
}

#[test]
fn data_are_stored() {
    let body = bytes![77_u64, 4096_u64, 4_u32, 0_u32, b"data"];
    told(4, &body, |kernel| kernel.store(77, 4096, b"data"));
}

#[test]
fn data_are_asked_for() {
    let unique = 3_u64 << 1 | 1 << 61;
    let body = bytes![unique, 77_u64, 4096_u64, 100_u32, 0_u32];
    told(5, &body, |kernel| kernel.retrieve(3, 77, 4096, 100));
}

#[test]
fn a_name_was_removed() {
    let name = OsStr::new("name");
    let body = bytes![9_u64, 77_u64, 4_u32, 0_u32, "name"];
    told(6, &body, |kernel| kernel.deleted(9, 77, name));
}

#[test]
fn requests_are_to_be_sent_again() {
    told(7, &[], |kernel| kernel.resend());
}

#[test]
fn all_names_are_to_be_asked_for_again() {
    told(8, &[], |kernel| kernel.increment_epoch());
}

#[test]
fn nodes_are_to_be_let_go() {
    let body = bytes![2_u32, 0_u32, 0_u64, 77_u64, 78_u64];
    told(9, &body, |kernel| kernel.prune(&[77, 78]));
}
