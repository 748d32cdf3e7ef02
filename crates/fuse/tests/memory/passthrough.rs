//! Files that the kernel reads and writes past the file system.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use segue_fuse::abi::opcode;
use segue_fuse::{Answer, Backing, Call, Open, Wishes};

use crate::mounted::{Mounted, Serving, until, wishes};

#[test]
fn a_backed_file_is_read_and_written_without_requests() {
    for way in Serving::ways() {
        let wishes = Wishes { stack_depth_max: 2, uring: way.wishes.uring, ..wishes() };
        backed(Serving { wishes, ..way });
    }
}

fn backed(serving: Serving) {
    let backing: Arc<Mutex<Option<Backing>>> = Arc::default();
    let known = Arc::clone(&backing);
    let hook = move |memory: &crate::files::Memory, request: &segue_fuse::Request<'_>, reply| {
        let known = known.lock().unwrap();
        let (Some(backing), Call::Open { .. }) = (known.as_ref(), &request.call) else {
            return Some(reply);
        };
        memory.state().tree.node(request.node()).unwrap().opens += 1;
        let open = Open { handle: 1 << 40, flags: 0, backing: Some(backing.id()) };
        segue_fuse::Reply::send(reply, Ok(Answer::Open(open)));
        None
    };
    let Some(mounted) = Mounted::hooked(serving, hook) else { return };
    let (path, behind) = (mounted.path("f"), mounted.beside("behind"));
    fs::write(&path, "shadows").unwrap();
    let ino = mounted.ino("f");
    fs::write(&behind, "backing").unwrap();
    // A process that another test starts has our files open until it runs its program, and a
    // file is in one mode at a time.
    let closed = || {
        let opens = || mounted.files.memory.state().tree.node(ino).unwrap().opens;
        until("the last to close", || (opens() == 0).then_some(()));
    };
    closed();
    let file = File::options().read(true).write(true).open(&behind).unwrap();
    *backing.lock().unwrap() = Some(mounted.notifier.open_backing(file.as_fd()).unwrap());
    drop(file);
    let writes = mounted.files.count(opcode::WRITE, ino);

    assert_eq!(fs::read(&path).unwrap(), b"backing");
    let mut opened = File::options().read(true).write(true).open(&path).unwrap();
    assert_eq!(mapped(&opened, 7), b"backing");
    opened.write_all(b"BACK").unwrap();
    assert_eq!(mapped(&opened, 7), b"BACKing");
    assert_eq!(fs::read(&behind).unwrap(), b"BACKing");
    // What is open stays backed.
    drop(backing.lock().unwrap().take());
    assert_eq!(mapped(&opened, 7), b"BACKing");
    drop(opened);
    closed();

    assert_eq!(mounted.files.count(opcode::READ, ino), 0);
    assert_eq!(mounted.files.count(opcode::WRITE, ino), writes);
    assert_eq!(fs::read(&path).unwrap(), b"shadows");
    mounted.end().unwrap();
}

#[allow(unsafe_code, reason = "maps are system calls")]
fn mapped(file: &File, length: usize) -> Vec<u8> {
    let (prot, flags) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: the map is of our own choice of address and is read while it is there; nobody
    // cuts the file off.
    unsafe {
        let map = mmap(std::ptr::null_mut(), length, prot, flags, file, 0).unwrap();
        let bytes = std::slice::from_raw_parts(map.cast::<u8>(), length).to_vec();
        munmap(map, length).unwrap();
        bytes
    }
}
