//! Those who wait for an answer: they can be interrupted and killed, and are in nobody's way.

#![allow(unsafe_code, reason = "signals are sent and caught by system calls")]

use std::fs::{self, File};
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use segue_fuse::abi::fopen;
use segue_fuse::{Answer, Call, Open, Reply, Request};

use crate::calls::{fcntl, write_lock};
use crate::files::Memory;
use crate::mounted::{Mounted, Serving, until};

/// Reads of files of this mode are never answered. Past the page cache, where the kernel lets
/// a signal interrupt them.
pub(crate) const HELD: u32 = 0o604;

pub(crate) fn hold_reads(memory: &Memory, request: &Request<'_>, reply: Reply) -> Option<Reply> {
    let mode = memory.state().tree.node(request.node()).map_or(0, |node| node.mode);
    match request.call {
        _ if mode & 0o777 != HELD => Some(reply),
        Call::Open { .. } => {
            memory.state().tree.node(request.node()).unwrap().opens += 1;
            let open = Open { handle: 1 << 40, flags: fopen::DIRECT_IO, backing: None };
            reply.send(Ok(Answer::Open(open)));
            None
        }
        Call::Read { .. } => {
            memory.hold(request.unique(), reply);
            None
        }
        _ => Some(reply),
    }
}

/// A mount with a file `held`, whose reads are never answered, and a file `locked`.
pub(crate) fn holding(serving: Serving) -> Option<(Mounted, File)> {
    use std::os::unix::fs::PermissionsExt;
    let mounted = Mounted::hooked(serving, hold_reads)?;
    fs::write(mounted.path("held"), "never read").unwrap();
    fs::set_permissions(mounted.path("held"), fs::Permissions::from_mode(HELD)).unwrap();
    let locked = File::create(mounted.path("locked")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    Some((mounted, locked))
}

/// How many requests wait: reads and locks.
pub(crate) fn waiting(mounted: &Mounted) -> (usize, usize) {
    let state = mounted.files.memory.state();
    (state.held.len(), state.waiters.count())
}

extern "C" fn catch(_: libc::c_int) {}

/// Has SIGUSR1 interrupt system calls and do nothing else.
fn catch_signals() {
    // SAFETY: the handler does nothing, and an action of zeros has no flags and an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = catch as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// What `call` returns when a signal reaches it once `is_waiting`.
fn interrupted<T: Send>(
    call: impl FnOnce() -> io::Result<T> + Send,
    is_waiting: impl Fn() -> bool,
) -> io::Result<T> {
    catch_signals();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let caller = scope.spawn(move || {
            // SAFETY: it always succeeds.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            call()
        });
        let thread = told.recv().unwrap();
        until("the request", || is_waiting().then_some(()));
        // SAFETY: the thread runs, or at least has not been joined.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        caller.join().unwrap()
    })
}

#[test]
fn a_signal_interrupts_a_read() {
    for serving in Serving::ways() {
        let Some((mounted, _locked)) = holding(serving) else { continue };
        let mut file = File::open(mounted.path("held")).unwrap();
        let result = interrupted(|| file.read(&mut [0; 10]), || waiting(&mounted) == (1, 0));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}

#[test]
fn a_signal_interrupts_waiting_for_a_lock() {
    for serving in Serving::ways() {
        let Some((mounted, _locked)) = holding(serving) else { continue };
        let file = File::open(mounted.path("locked")).unwrap();
        let lock = || Ok(flock(&file, FlockOperation::LockExclusive)?);
        let result = interrupted(lock, || waiting(&mounted) == (0, 1));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(waiting(&mounted), (0, 0));
    }
}

/// SETLKW comes for both; a flag tells them apart.
#[test]
fn record_locks_and_those_of_flock_are_not_in_each_others_way() {
    for serving in Serving::ways() {
        let Some((mounted, _locked)) = holding(serving) else { continue };
        let open = || File::options().write(true).open(mounted.path("locked")).unwrap();
        let (holder, other) = (open(), open());
        // Of an open file, so that one process can wait for itself.
        let lock = |file: &File, command| fcntl(file, command, write_lock());
        lock(&holder, libc::F_OFD_SETLKW).unwrap();
        let refused = lock(&other, libc::F_OFD_SETLK).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        let result =
            interrupted(|| lock(&other, libc::F_OFD_SETLKW), || waiting(&mounted) == (0, 1));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!(waiting(&mounted), (0, 0));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock(&other, libc::F_OFD_SETLKW).map(drop));
            until("the request", || (waiting(&mounted) == (0, 1)).then_some(()));
            drop(holder);
            waiter.join().unwrap().unwrap();
        });
    }
}

/// Processes that wait; killed when dropped.
pub(crate) struct Processes(pub(crate) Vec<Child>);

impl Processes {
    pub(crate) fn start(program: &mut Command, count: usize) -> Processes {
        let program = program.stdin(Stdio::null()).stdout(Stdio::null());
        Processes((0..count).map(|_| program.spawn().unwrap()).collect())
    }

    /// Waits until all have ended.
    pub(crate) fn wait(&mut self) {
        self.0.drain(..).for_each(|mut process| assert!(process.wait().is_ok()));
    }

    /// Ends them all; returns how many were killed by that.
    pub(crate) fn kill(&mut self) -> usize {
        use std::os::unix::process::ExitStatusExt;
        self.0.iter_mut().for_each(|process| process.kill().unwrap());
        let ends = self.0.drain(..).map(|mut process| process.wait().unwrap());
        ends.filter(|end| end.signal() == Some(libc::SIGKILL)).count()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill();
    }
}

/// "Processes blocked in the mount can be killed", all of them within 2 s. Asserted at three
/// times that.
/// Proves S16.1.
#[test]
fn two_hundred_who_wait_can_be_killed() {
    for serving in Serving::ways() {
        let Some((mounted, locked)) = holding(serving) else { continue };
        let mut readers = Processes::start(Command::new("cat").arg(mounted.path("held")), 100);
        let mut lockers = Command::new("flock");
        let mut lockers = Processes::start(lockers.arg(mounted.path("locked")).arg("true"), 100);
        until("the requests", || (waiting(&mounted) == (100, 100)).then_some(()));
        fs::write(mounted.path("other"), "is served").unwrap();
        assert_eq!(fs::read(mounted.path("other")).unwrap(), b"is served");
        let start = Instant::now();
        assert_eq!((readers.kill(), lockers.kill()), (100, 100));
        assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
        assert_eq!(waiting(&mounted).1, 0);
        drop(locked);
        mounted.end().unwrap();
    }
}

/// More than fit into the rings as they are at first.
#[test]
fn those_who_wait_are_not_in_the_way_of_the_one_they_wait_for() {
    const COUNT: usize = 700;
    for serving in Serving::ways() {
        let Some((mounted, locked)) = holding(serving) else { continue };
        let mut lockers = Command::new("flock");
        lockers.arg(mounted.path("locked")).arg("true");
        let mut lockers = Processes::start(&mut lockers, COUNT);
        until("the requests", || (waiting(&mounted) == (0, COUNT)).then_some(()));
        fs::write(mounted.path("other"), "is served").unwrap();
        flock(&locked, FlockOperation::Unlock).unwrap();
        let ends = lockers.0.drain(..).map(|mut process| process.wait().unwrap());
        assert_eq!(ends.filter(|end| end.success()).count(), COUNT);
        drop(locked);
        mounted.end().unwrap();
    }
}
