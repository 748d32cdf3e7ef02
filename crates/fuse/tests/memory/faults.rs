//! What comes of a file system that answers wrongly, or not at all.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::XattrFlags;
use segue_fuse::abi::{Attr, ROOT, opcode};
use segue_fuse::{Answer, Entry, Listing};

use crate::mounted::{Mounted, Serving};

/// What happens to requests of a kind.
#[derive(Clone, Debug)]
enum Fault {
    Answer(Box<Answer>),
    /// An answer of more bytes than a system call takes.
    Endless,
    /// The reply is dropped.
    Silence,
    Panic,
}

/// What happens to requests of which kind, and how often it has happened.
type Faults = Arc<Mutex<(Option<(u32, Fault)>, usize)>>;

fn faulty(serving: Serving) -> Option<(Mounted, Faults)> {
    let faults: Faults = Arc::default();
    let armed = Arc::clone(&faults);
    let mounted = Mounted::hooked(serving, move |_, request, reply| {
        let mut armed = armed.lock().unwrap();
        let fault = match &armed.0 {
            Some((kind, fault)) if *kind == request.header.opcode => fault.clone(),
            _ => return Some(reply),
        };
        armed.1 += 1;
        drop(armed);
        match fault {
            Fault::Answer(answer) => reply.send(Ok(*answer)),
            Fault::Endless => reply.send(Ok(Answer::Data(vec![0; 1 << 31]))),
            Fault::Silence => drop(reply),
            Fault::Panic => panic!("as a test wants it"),
        }
        None
    })?;
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/name"), "").unwrap();
    std::os::unix::fs::symlink("target", mounted.path("link")).unwrap();
    fs::write(mounted.path("f"), [b'a'; 5000]).unwrap();
    let flags = XattrFlags::empty();
    rustix::fs::setxattr(mounted.path("f"), "user.x", b"value", flags).unwrap();
    Some((mounted, faults))
}

type Use = fn(&Mounted) -> io::Result<()>;

/// Uses of a mount, each with the request that it leads to.
const USES: &[(u32, Use)] = &[
    (opcode::LOOKUP, |mounted| {
        mounted.notifier.forget_name(ROOT, "f".as_ref()).ok();
        fs::metadata(mounted.path("f")).map(drop)
    }),
    (opcode::STATX, |mounted| {
        mounted.notifier.invalidate_attributes(mounted.ino("f"))?;
        fs::metadata(mounted.path("f")).map(drop)
    }),
    (opcode::GETATTR, |mounted| {
        mounted.notifier.invalidate_attributes(mounted.ino("f"))?;
        Ok(rustix::fs::stat(mounted.path("f")).map(drop)?)
    }),
    (opcode::SETATTR, |mounted| File::options().write(true).open(mounted.path("f"))?.set_len(5000)),
    (opcode::READLINK, |mounted| {
        mounted.notifier.invalidate(mounted.ino("link"), 0..u64::MAX)?;
        fs::read_link(mounted.path("link")).map(drop)
    }),
    (opcode::MKDIR, |mounted| fs::create_dir(mounted.path("made"))),
    (opcode::SYMLINK, |mounted| std::os::unix::fs::symlink("to", mounted.path("made"))),
    (opcode::LINK, |mounted| fs::hard_link(mounted.path("f"), mounted.path("made"))),
    (opcode::CREATE, |mounted| File::create(mounted.path("made")).map(drop)),
    (opcode::OPEN, |mounted| File::open(mounted.path("f")).map(drop)),
    (opcode::READ, |mounted| {
        mounted.notifier.invalidate(mounted.ino("f"), 0..u64::MAX)?;
        File::open(mounted.path("f"))?.read(&mut [0; 100]).map(drop)
    }),
    (opcode::WRITE, |mounted| {
        File::options().write(true).open(mounted.path("f"))?.write_all(b"aaaa")
    }),
    (opcode::STATFS, |mounted| Ok(rustix::fs::statvfs(mounted.root()).map(drop)?)),
    (opcode::GETXATTR, |mounted| {
        Ok(rustix::fs::getxattr(mounted.path("f"), "user.x", &mut [0_u8; 8]).map(drop)?)
    }),
    (opcode::LISTXATTR, |mounted| {
        Ok(rustix::fs::listxattr(mounted.path("f"), &mut [0_u8; 20]).map(drop)?)
    }),
    (opcode::OPENDIR, |mounted| fs::read_dir(mounted.path("d")).map(drop)),
    (opcode::READDIRPLUS, |mounted| list(&mounted.path("d"))),
    (opcode::LSEEK, |mounted| {
        let file = File::open(mounted.path("f"))?;
        Ok(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).map(drop)?)
    }),
];

fn list(path: &Path) -> io::Result<()> {
    fs::read_dir(path)?.try_for_each(|entry| entry.map(drop))
}

/// Answers that do not fit a request of this kind: too short, too long, or nonsense.
fn misfits(kind: u32) -> Vec<Answer> {
    let long = [Answer::Data(vec![0xff; 70_000]), Answer::Data(vec![0xff; 2 << 20])];
    let mut slash = Listing::new(4096);
    let attr = Attr { ino: 7, mode: libc::S_IFREG, ..Attr::default() };
    slash.add_plus(&Entry { node: 7, attr, ..Entry::default() }, 1, b"with/slash");
    let more = match kind {
        // Few bytes of data are as good as any.
        opcode::READ | opcode::READLINK | opcode::GETXATTR => Vec::new(),
        opcode::READDIRPLUS => vec![slash.finish()],
        opcode::LISTXATTR => vec![Answer::Data(b"no end".to_vec())],
        opcode::WRITE => vec![Answer::Empty, Answer::Written(5)],
        opcode::MKDIR | opcode::SYMLINK | opcode::LINK => {
            // A node that is of no kind.
            vec![Answer::Empty, Answer::Entry(Entry { node: 7, ..Entry::default() })]
        }
        _ => vec![Answer::Empty, Answer::Data(vec![0xff; 7])],
    };
    long.into_iter().chain(more).collect()
}

/// The use fails while there is the fault, and works when it is gone.
fn fails(mounted: &Mounted, (kind, use_it): (u32, Use), faults: &Faults, fault: Fault) {
    let what = match &fault {
        Fault::Answer(answer) => match &**answer {
            Answer::Data(data) => format!("{} bytes", data.len()),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    };
    let what = &format!("{} and {what}", opcode::name(kind));
    *faults.lock().unwrap() = (Some((kind, fault)), 0);
    let failed = use_it(mounted).expect_err(what);
    let (_, met) = std::mem::take(&mut *faults.lock().unwrap());
    assert!(met > 0, "{what}: not asked: {failed}");
    // Over io_uring the kernel has another word for an answer that does not fit.
    assert!(matches!(failed.raw_os_error(), Some(libc::EIO | libc::EINVAL)), "{what}: {failed}");
    use_it(mounted).expect(what);
    let made = mounted.path("made");
    fs::remove_file(&made).or_else(|_| fs::remove_dir(&made)).ok();
}

#[test]
fn an_answer_that_does_not_fit_is_an_error() {
    for serving in Serving::ways() {
        let Some((mounted, faults)) = faulty(serving) else { continue };
        for &(kind, use_it) in USES {
            for answer in misfits(kind) {
                fails(&mounted, (kind, use_it), &faults, Fault::Answer(Box::new(answer)));
            }
        }
        mounted.end().unwrap();
    }
}

#[test]
fn a_reply_that_is_dropped_is_an_error() {
    for serving in Serving::ways() {
        let Some((mounted, faults)) = faulty(serving) else { continue };
        for &(kind, use_it) in USES {
            fails(&mounted, (kind, use_it), &faults, Fault::Silence);
        }
        mounted.end().unwrap();
    }
}

/// "A call that panics answers EIO, and the next one is served."
#[test]
fn a_call_that_panics_is_an_error() {
    for serving in Serving::ways() {
        let Some((mounted, faults)) = faulty(serving) else { continue };
        for &(kind, use_it) in USES {
            fails(&mounted, (kind, use_it), &faults, Fault::Panic);
        }
        mounted.end().unwrap();
    }
}

/// Longer than a system call takes, so that the kernel does not even see whose answer it is.
#[test]
fn an_answer_that_is_too_long_to_be_sent_is_an_error() {
    for serving in Serving::ways() {
        let Some((mounted, faults)) = faulty(serving) else { continue };
        let read = USES.iter().find(|(kind, _)| *kind == opcode::READ).unwrap();
        fails(&mounted, *read, &faults, Fault::Endless);
        mounted.end().unwrap();
    }
}
