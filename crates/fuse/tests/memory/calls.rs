//! Which request each system call leads to, and what of it the caller sees.
//!
//! SYNCFS is not among them: the kernel sends it to file systems of a block device and to
//! virtio-fs only. `golden` has its bytes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags};
use segue_fuse::abi::{ROOT, init, opcode};
use segue_fuse::{Answer, Call, Errno, Wishes};

use crate::mounted::{Mounted, Serving, wishes};

const NOBODY: u32 = 65_534;

/// Runs `script` in the mount as a user who is nobody.
fn as_nobody(mounted: &Mounted, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(mounted.root()).uid(NOBODY).gid(NOBODY);
    assert!(shell.status().unwrap().success(), "{script}");
}

#[test]
fn each_call_has_its_request() {
    for serving in Serving::ways() {
        let Some(mounted) = Mounted::new(serving) else { continue };
        let (path, root) = (mounted.path("f"), File::open(mounted.root()).unwrap());
        fs::write(&path, [b'a'; 8192]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let ino = mounted.ino("f");
        let leads_to = |kind, node, call: &dyn Fn()| {
            let before = mounted.files.count(kind, node);
            call();
            assert_eq!(mounted.files.count(kind, node), before + 1, "{}", opcode::name(kind));
        };
        leads_to(opcode::TMPFILE, ROOT, &|| {
            let flags = OFlags::TMPFILE | OFlags::WRONLY;
            let nameless = rustix::fs::openat(&root, ".", flags, Mode::RUSR).unwrap();
            assert_eq!(rustix::fs::fstat(&nameless).unwrap().st_nlink, 0);
        });
        leads_to(opcode::STATX, ino, &|| {
            mounted.notifier.invalidate_attributes(ino).unwrap();
            let wanted = StatxFlags::SIZE | StatxFlags::BTIME;
            let found = rustix::fs::statx(&root, "f", AtFlags::empty(), wanted).unwrap();
            assert!(StatxFlags::from_bits_retain(found.stx_mask).contains(wanted));
        });
        leads_to(opcode::FALLOCATE, ino, &|| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, 0, 4096).unwrap();
        });
        leads_to(opcode::LSEEK, ino, &|| {
            assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap(), 4096);
        });
        let copies = [opcode::COPY_FILE_RANGE, opcode::COPY_FILE_RANGE_64];
        let asked = || copies.map(|kind| mounted.files.count(kind, ino)).iter().sum::<usize>();
        let (mut from, mut to) = (4096, 0);
        let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &file, Some(&mut to), 100);
        assert_eq!((copied.unwrap(), asked()), (100, 1));
        leads_to(opcode::RENAME2, ROOT, &|| {
            fs::write(mounted.path("other"), "").unwrap();
            let exchange = RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(&root, "f", &root, "other", exchange).unwrap();
            assert_eq!(mounted.ino("other"), ino);
        });
        leads_to(opcode::GETLK, ino, &|| {
            let found = fcntl(&file, libc::F_GETLK, write_lock()).unwrap();
            assert_eq!(i32::from(found.l_type), libc::F_UNLCK);
        });
        rustix::fs::syncfs(&file).unwrap();
        drop((file, root));
        mounted.end().unwrap();
    }
}

/// Of the whole file.
pub(crate) fn write_lock() -> libc::flock {
    let l_type = libc::F_WRLCK.try_into().unwrap();
    libc::flock { l_type, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 }
}

/// A record lock's system call.
#[allow(unsafe_code, reason = "record locks are system calls")]
pub(crate) fn fcntl(file: &File, command: i32, mut lock: libc::flock) -> io::Result<libc::flock> {
    // SAFETY: the call reads and writes a lock that outlives it.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

/// _IOWR('s', 1, u64)
const PLUS_ONE: u32 = 0xc008_7301;

#[test]
fn an_ioctl_takes_and_gives() {
    for serving in Serving::ways() {
        let mounted = Mounted::hooked(serving, |_, request, reply| match request.call {
            Call::IoCtl { command: PLUS_ONE, input, output_max: 8, .. } => {
                let number = u64::from_ne_bytes(input.try_into().unwrap());
                reply.send(Ok(Answer::IoCtl(7, (number + 1).to_ne_bytes().to_vec())));
                None
            }
            _ => Some(reply),
        });
        let Some(mounted) = mounted else { continue };
        let file = File::create(mounted.path("f")).unwrap();
        assert_eq!(ioctl(&file, PLUS_ONE, 41).unwrap(), (7, 42));
        let unknown = ioctl(&file, PLUS_ONE + 1, 41).unwrap_err();
        assert_eq!(unknown.raw_os_error(), Some(libc::ENOTTY));
        drop(file);
        mounted.end().unwrap();
    }
}

#[allow(unsafe_code, reason = "an ioctl is a system call")]
fn ioctl(file: &File, command: u32, mut number: u64) -> io::Result<(i32, u64)> {
    // SAFETY: the command says that it reads and writes a u64, which outlives the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), command.into(), &raw mut number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok((done, number)) }
}

/// ENOSYS says "not now and never", and files work without being opened or closed.
#[test]
fn what_need_not_be_opened_is_asked_for_once() {
    for serving in Serving::ways() {
        let flags = wishes().flags | init::NO_OPEN_SUPPORT | init::NO_OPENDIR_SUPPORT;
        let flags = flags & !init::ATOMIC_O_TRUNC;
        let wishes = Wishes { flags, ..serving.wishes };
        let hook = |_: &_, request: &segue_fuse::Request<'_>, reply| match request.call {
            Call::Open { .. } | Call::OpenDir { .. } => {
                segue_fuse::Reply::send(reply, Err(Errno::NOSYS));
                None
            }
            _ => Some(reply),
        };
        let Some(mounted) = Mounted::hooked(Serving { wishes, ..serving }, hook) else { continue };
        fs::create_dir(mounted.path("d")).unwrap();
        // Made with MKNOD: whoever creates a file opens it.
        for name in ["d/one", "d/two"] {
            let (kind, mode) = (rustix::fs::FileType::RegularFile, Mode::from_raw_mode(0o600));
            rustix::fs::mknodat(rustix::fs::CWD, mounted.path(name), kind, mode, 0).unwrap();
            fs::write(mounted.path(name), name).unwrap();
            assert_eq!(fs::read_to_string(mounted.path(name)).unwrap(), name);
        }
        for _ in 0..2 {
            assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), 2);
            assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 1);
        }
        let all = |kind| mounted.files.all(kind);
        assert_eq!((all(opcode::OPEN), all(opcode::OPENDIR)), (1, 1));
        assert_eq!((all(opcode::RELEASE), all(opcode::RELEASEDIR)), (0, 0));
        mounted.end().unwrap();
    }
}

#[test]
fn a_listing_brings_what_its_names_mean() {
    for serving in Serving::ways() {
        let Some(mounted) = Mounted::new(serving) else { continue };
        let names: Vec<String> = (0..200).map(|number| format!("name-{number:03}")).collect();
        for name in &names {
            fs::write(mounted.path(name), name).unwrap();
            mounted.notifier.forget_name(ROOT, name.as_ref()).unwrap();
        }
        let lookups = mounted.files.count(opcode::LOOKUP, ROOT);
        let listed = fs::read_dir(mounted.root()).unwrap().map(|entry| entry.unwrap());
        let mut listed: Vec<_> = listed.map(|entry| entry.file_name()).collect();
        listed.sort();
        assert_eq!(listed, names.iter().map(std::ffi::OsString::from).collect::<Vec<_>>());
        assert!(names.iter().all(|name| fs::metadata(mounted.path(name)).unwrap().len() == 8));
        assert!(mounted.files.count(opcode::READDIRPLUS, ROOT) > 1);
        assert_eq!(mounted.files.count(opcode::LOOKUP, ROOT), lookups);
        mounted.end().unwrap();
    }
}

/// Under HANDLE_KILLPRIV_V2 requests say whether set-id bits go, and the file system obeys.
#[test]
fn set_id_bits_go_with_whoever_may_not_keep_them() {
    for serving in Serving::ways() {
        let told: Arc<Mutex<Vec<(u32, bool)>>> = Arc::default();
        let heard = Arc::clone(&told);
        let mounted = Mounted::hooked(serving, move |_, request, reply| {
            let kills = match request.call {
                Call::Write { kill_suidgid, .. } | Call::Open { kill_suidgid, .. } => kill_suidgid,
                Call::SetAttr(set) if set.size.is_some() => set.kill_suidgid,
                _ => return Some(reply),
            };
            heard.lock().unwrap().push((request.header.opcode, kills));
            Some(reply)
        });
        let Some(mounted) = mounted else { continue };
        assert!(mounted.agreement.has(init::HANDLE_KILLPRIV_V2));
        let path = mounted.path("f");
        fs::write(&path, "program").unwrap();
        let with_bits = || {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            told.lock().unwrap().clear();
        };
        let left = || fs::metadata(&path).unwrap().mode() & 0o7777;
        let uses = [
            (opcode::WRITE, "printf more >>f"),
            (opcode::OPEN, ": >f"),
            (opcode::SETATTR, "truncate -s 100 f"),
        ];
        for (kind, script) in uses {
            with_bits();
            as_nobody(&mounted, script);
            assert!(told.lock().unwrap().contains(&(kind, true)), "{script}: {told:?}");
            assert_eq!(left(), 0o777, "{script}");
        }
        // Root may keep them.
        with_bits();
        fs::write(&path, "by root").unwrap();
        assert!(told.lock().unwrap().iter().all(|(_, kills)| !kills), "{told:?}");
        assert_eq!(left(), 0o6777);
        mounted.end().unwrap();
    }
}
