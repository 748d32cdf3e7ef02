//! What the file system tells the kernel, seen by those who use the files.
//!
//! Each test changes something behind the kernel's back and shows that the kernel still knows
//! the old before it is told.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use rustix::mount::UnmountFlags;
use segue_fuse::abi::{ROOT, flag, opcode};

use crate::data::Data;
use crate::mounted::{Mounted, Serving, until};
use crate::node::{Kind, READY};
use crate::tree::Caller;

const PAGE: usize = 4096;
const ME: Caller = Caller { uid: 0, gid: 0 };

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// Changes what `ino` holds, as somebody else would.
fn overwrite(mounted: &Mounted, ino: u64, bytes: &[u8]) {
    let mut state = mounted.files.memory.state();
    state.tree.edit(ino, |_| 0, |data| data.write(0, bytes)).unwrap();
}

/// Puts another file, which holds `bytes`, in the place of `name`.
fn replace(mounted: &Mounted, name: &str, bytes: &[u8]) {
    let tree = &mut mounted.files.memory.state().tree;
    tree.unlink(ROOT, name.as_bytes()).unwrap();
    let kind = Kind::File(Data::default());
    let made = tree.create(ROOT, name.as_bytes(), kind, libc::S_IFREG | 0o644, ME).unwrap();
    tree.edit(made, |_| 1, |data| data.write(0, bytes)).unwrap();
}

#[test]
fn invalid_pages_are_read_again() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    let path = mounted.path("f");
    fs::write(&path, [b'a'; 2 * PAGE]).unwrap();
    let ino = mounted.ino("f");
    overwrite(&mounted, ino, &[b'b'; 2 * PAGE]);
    assert_eq!(fs::read(&path).unwrap(), [b'a'; 2 * PAGE]);
    mounted.notifier.invalidate(ino, PAGE as u64..2 * PAGE as u64).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [[b'a'; PAGE], [b'b'; PAGE]].concat());
    mounted.notifier.invalidate(ino, 0..0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [[b'a'; PAGE], [b'b'; PAGE]].concat());
    mounted.notifier.invalidate(ino, 0..u64::MAX).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [b'b'; 2 * PAGE]);
    mounted.end().unwrap();
}

#[test]
fn invalid_attributes_are_asked_for_again() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    let path = mounted.path("f");
    // Of a part of a page the kernel would have to read the rest.
    fs::write(&path, [b'a'; PAGE]).unwrap();
    let ino = mounted.ino("f");
    mounted.files.memory.state().tree.node(ino).unwrap().mode = libc::S_IFREG | 0o600;
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o644);
    mounted.notifier.invalidate_attributes(ino).unwrap();
    assert_eq!(mode(), 0o600);
    assert_eq!(fs::read(&path).unwrap(), [b'a'; PAGE]);
    assert_eq!(mounted.files.count(opcode::READ, ino), 0);
    mounted.end().unwrap();
}

#[test]
fn a_forgotten_name_is_looked_up_again() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    fs::write(mounted.path("f"), "old").unwrap();
    replace(&mounted, "f", b"new");
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"old");
    mounted.notifier.forget_name(ROOT, name("f")).unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"new");
    let unknown = mounted.notifier.forget_name(ROOT, name("nobody asked")).unwrap_err();
    assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
    mounted.end().unwrap();
}

/// Something mounted on a directory of the mount.
struct OnTop(PathBuf);

impl Drop for OnTop {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).ok();
    }
}

/// "What it names stays usable until then, mounts on it too."
#[test]
fn an_expired_name_is_looked_up_again_and_stays_usable() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    let dir = mounted.path("d");
    fs::create_dir(&dir).unwrap();
    let (beside, inside) = (mounted.beside("beside"), dir.join("inside"));
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("inside"), "on top").unwrap();
    rustix::mount::mount_bind(&beside, &dir).unwrap();
    let on_top = OnTop(dir.clone());
    let lookups = || mounted.files.count(opcode::LOOKUP, ROOT);
    let before = lookups();
    assert_eq!(fs::read(&inside).unwrap(), b"on top");
    assert_eq!(lookups(), before);
    mounted.notifier.expire_name(ROOT, name("d")).unwrap();
    assert_eq!(fs::read(&inside).unwrap(), b"on top");
    assert_eq!(lookups(), before + 1);
    mounted.notifier.forget_name(ROOT, name("d")).unwrap();
    assert_eq!(fs::read(&inside).unwrap_err().kind(), io::ErrorKind::NotFound);
    drop(on_top);
    mounted.end().unwrap();
}

#[test]
fn a_removed_name_is_gone_and_its_file_has_one_link_less() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    let file = fs::File::create(mounted.path("f")).unwrap();
    let ino = mounted.ino("f");
    let links = || file.metadata().unwrap().nlink();
    mounted.files.memory.state().tree.unlink(ROOT, b"f").unwrap();
    assert_eq!((mounted.path("f").exists(), links()), (true, 1));
    mounted.notifier.deleted(ROOT, ino, name("f")).unwrap();
    assert_eq!((mounted.path("f").exists(), links()), (false, 0));
    drop(file);
    mounted.end().unwrap();
}

#[test]
fn a_name_that_means_something_else_is_not_removed_with_its_file() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    fs::write(mounted.path("f"), "").unwrap();
    let ino = mounted.ino("f");
    let told = mounted.notifier.deleted(ROOT, ino + 1, name("f")).unwrap_err();
    assert_eq!(told.kind(), io::ErrorKind::NotFound);
    assert!(mounted.path("f").exists());
    mounted.end().unwrap();
}

#[test]
fn stored_data_are_read_without_a_request() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    fs::write(mounted.path("f"), [b'a'; 2 * PAGE]).unwrap();
    let ino = mounted.ino("f");
    mounted.notifier.store(ino, PAGE as u64, &[b'b'; PAGE]).unwrap();
    let read = fs::read(mounted.path("f")).unwrap();
    assert_eq!(read, [[b'a'; PAGE], [b'b'; PAGE]].concat());
    assert_eq!(mounted.files.count(opcode::READ, ino), 0);
    mounted.end().unwrap();
}

/// Often enough that each would be missed if it kept something.
#[test]
fn cached_data_are_retrieved() {
    for serving in Serving::ways() {
        let Some(mounted) = Mounted::new(serving) else { continue };
        fs::write(mounted.path("f"), "cached").unwrap();
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"cached");
        let ino = mounted.ino("f");
        overwrite(&mounted, ino, b"behind");
        for number in 1..=600 {
            mounted.notifier.retrieve(number, ino, 2, 4).unwrap();
            let retrieved =
                until("what was asked for", || mounted.files.retrieved.lock().unwrap().pop());
            assert_eq!(retrieved, (number, ino, 2, b"ched".to_vec()));
        }
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"cached");
        mounted.end().unwrap();
    }
}

#[test]
fn one_who_polls_is_woken() {
    for serving in Serving::ways() {
        let Some(mounted) = Mounted::new(serving) else { continue };
        fs::write(mounted.path("f"), "").unwrap();
        let ino = mounted.ino("f");
        let ready = |ready| mounted.files.memory.state().tree.node(ino).unwrap().ready = ready;
        ready(0);
        let file = fs::File::open(mounted.path("f")).unwrap();
        std::thread::scope(|scope| {
            let polling = scope.spawn(|| {
                use rustix::event::{PollFd, PollFlags, poll};
                let mut polled = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
                poll(&mut polled, None).unwrap();
                polled[0].revents()
            });
            let kernel_handle = until("a poll", || {
                mounted.files.memory.state().tree.node(ino).unwrap().polls.pop()
            });
            ready(READY);
            mounted.notifier.poll_wakeup(kernel_handle).unwrap();
            assert_eq!(polling.join().unwrap(), rustix::event::PollFlags::IN);
        });
        drop(file);
        mounted.end().unwrap();
    }
}

/// Whether the kernel knew it. A notification is of use where the agreed minor version has it;
/// what an older kernel says to it is no news.
fn known(mounted: &Mounted, since: u32, told: io::Result<()>) -> bool {
    let known = mounted.agreement.minor >= since;
    match told {
        Ok(()) => true,
        Err(error) => {
            assert!(!known, "7.{}: {error}", mounted.agreement.minor);
            eprintln!("SKIPPED: the kernel's FUSE is older than 7.{since}");
            false
        }
    }
}

#[test]
fn a_new_epoch_has_all_names_looked_up_again() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    fs::write(mounted.path("one"), "old").unwrap();
    fs::write(mounted.path("two"), "old").unwrap();
    replace(&mounted, "one", b"new");
    replace(&mounted, "two", b"new");
    assert_eq!(fs::read(mounted.path("one")).unwrap(), b"old");
    if known(&mounted, 44, mounted.notifier.increment_epoch()) {
        assert_eq!(fs::read(mounted.path("one")).unwrap(), b"new");
        assert_eq!(fs::read(mounted.path("two")).unwrap(), b"new");
    }
    mounted.end().unwrap();
}

#[test]
fn the_kernel_lets_go_of_unused_nodes() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    fs::write(mounted.path("one"), "").unwrap();
    fs::write(mounted.path("two"), "").unwrap();
    let inos = [mounted.ino("one"), mounted.ino("two")];
    let lookups = |ino| mounted.files.memory.state().tree.node(ino).unwrap().lookups;
    assert!(inos.iter().all(|ino| lookups(*ino) > 0));
    if known(&mounted, 45, mounted.notifier.prune(&inos)) {
        until("the forgetting", || inos.iter().all(|ino| lookups(*ino) == 0).then_some(()));
    }
    mounted.end().unwrap();
}

/// "For a process that took over": it does not have what was asked before.
#[test]
fn unanswered_requests_are_sent_again() {
    let lost = std::sync::Mutex::new(Vec::new());
    let hook = move |_: &_, request: &segue_fuse::Request<'_>, reply| {
        let is_first = request.unique() & flag::UNIQUE_RESEND == 0;
        if request.header.opcode == opcode::READ && is_first {
            lost.lock().unwrap().push(reply);
            return None;
        }
        Some(reply)
    };
    let Some(mounted) = Mounted::hooked(Serving::default(), hook) else { return };
    fs::write(mounted.path("f"), "held").unwrap();
    let ino = mounted.ino("f");
    mounted.notifier.invalidate(ino, 0..u64::MAX).unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| fs::read(mounted.path("f")).unwrap());
        until("the read", || (mounted.files.count(opcode::READ, ino) == 1).then_some(()));
        mounted.notifier.resend().unwrap();
        assert_eq!(reading.join().unwrap(), b"held");
    });
    mounted.end().unwrap();
}
