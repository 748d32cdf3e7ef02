//! Requests that have to wait, and callers that do not want to.
//!
//! The kernel tells when a signal reaches a waiting caller, whatever the signal. Most are none
//! of our business: a program that counts seconds with SIGALRM does not expect stat(2) to fail
//! with EINTR. So a call ends early only when its caller is dying, or when the link is down
//! anyway and the call is one that POSIX lets fail with EINTR. The change that it asked for,
//! if it is logged already, takes its course.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use segue_fuse::{Answer, Errno, Outcome, Reply, Request};
use tokio::sync::oneshot;

use super::Front;
use super::operation::operation_of;
use super::signals::{self, Fate};
use crate::mount::Shared;
use crate::waits::{Operation, Steps};

/// How often a caller is looked at of whose signals, or of whose further signals, the kernel
/// does not tell.
const GLANCE: Duration = Duration::from_millis(200);

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    unique: u64,
    pid: u32,
    kind: Kind,
    operation: Operation,
}

/// What a signal does to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// It ends with its caller only.
    Whole,
    /// POSIX lets it fail with EINTR.
    Interruptible,
    /// The same, of what is logged before it waits: fsync(2), a write with O_SYNC.
    Sync,
    /// The same, but it may be the kernel that reads ahead: nobody waits for the answer, only
    /// for the pages.
    Read,
    /// close(2): a caller that ends makes it too.
    Close,
}

impl Asked {
    pub(super) fn new(request: &Request<'_>, kind: Kind) -> Asked {
        let (unique, pid) = (request.unique(), request.header.pid);
        Asked { unique, pid, kind, operation: operation_of(request) }
    }
}

/// Gives an answer. The kernel knows an inode once it has taken in the answer that tells of it.
fn give(mount: &Shared, reply: Reply, outcome: Outcome) {
    if let Ok(Answer::Entry(entry) | Answer::Created(entry, _)) = &outcome {
        mount.kernel.tell_of(entry.node);
    }
    reply.send(outcome);
}

type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Front {
    /// Runs `work` here as far as it gets without waiting, and the rest as a task.
    pub(super) fn answer(
        &self,
        asked: Asked,
        reply: Reply,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) {
        let mut work: Work = Box::pin(work);
        let _entered = self.runtime.enter();
        let answering = self.mount.kernel.hears();
        // A task is polled again when it is spawned, so this waker need not wake anybody.
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => give(&self.mount, reply, outcome),
            Poll::Pending => {
                drop(answering);
                self.wait(asked, reply, work);
            }
        }
    }

    fn wait(&self, asked: Asked, reply: Reply, mut work: Work) {
        let (tell, told) = oneshot::channel();
        let tell = move || {
            // The call has just been answered.
            let _ = tell.send(());
        };
        let waiting = self.interrupts.wait(asked.unique, tell);
        let mount = Shared::clone(&self.mount);
        let (began, steps) = (Instant::now(), Steps::default());
        let under_way =
            mount.slows.begin(asked.unique, asked.operation, steps.clone(), mount.host.now());
        self.runtime.spawn(async move {
            let _waiting = waiting;
            let mut reply = Some(reply);
            let answered = poll_fn(|context| {
                let _answering = mount.kernel.hears();
                let outcome = ready!(steps.within(|| work.as_mut().poll(context)));
                if let Some(reply) = reply.take() {
                    give(&mount, reply, outcome);
                }
                Poll::Ready(())
            });
            tokio::select! {
                biased;
                () = answered => {
                    drop(under_way);
                    mount.slows.end(asked.operation, began.elapsed(), &steps, mount.host.now());
                    return;
                }
                () = given_up(&mount, asked, told) => {}
            }
            drop(under_way);
            reply.into_iter().for_each(|reply| reply.send(Err(Errno::INTR)));
            mount.slows.end(asked.operation, began.elapsed(), &steps, mount.host.now());
            if matches!(asked.kind, Kind::Close | Kind::Sync) {
                // It would only hear what becomes of it, and tell nobody.
                return;
            }
            // Nobody will close what is opened now.
            if let Ok(Answer::Open(open) | Answer::Created(_, open)) = work.await {
                mount.shell.close_handle(open.handle);
            }
        });
    }
}

/// Returns when the caller is to be let go.
async fn given_up(mount: &Shared, asked: Asked, told: oneshot::Receiver<()>) {
    // The kernel tells of no signal to a process that is ending, nor to one that waits for
    // pages that are being read ahead.
    let looks_by_itself = match asked.kind {
        Kind::Close => matches!(signals::fate(asked.pid), Fate::Exits | Fate::Dies),
        Kind::Read => true,
        Kind::Whole | Kind::Interruptible | Kind::Sync => false,
    };
    let told = async {
        if told.await.is_err() {
            // No signal will ever be told of.
            std::future::pending::<()>().await;
        }
    };
    let mut told = pin!(told);
    let mut is_told = false;
    loop {
        tokio::select! {
            () = &mut told, if !is_told => is_told = true,
            () = tokio::time::sleep(GLANCE), if is_told || looks_by_itself => {}
        }
        let offline = mount.remote.is_offline();
        // To look costs a read of /proc; online, only a signal is worth it.
        let worth_a_look = is_told || offline || asked.kind == Kind::Close;
        if worth_a_look && lets_go(asked.kind, signals::fate(asked.pid), offline) {
            return;
        }
    }
}

fn lets_go(kind: Kind, fate: Fate, offline: bool) -> bool {
    match fate {
        Fate::Dies => true,
        Fate::Exits => offline && kind == Kind::Close,
        Fate::Signalled => offline && kind != Kind::Whole,
        // The signal may have been taken by another thread of the process meanwhile.
        Fate::Lives => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 5] = [Kind::Whole, Kind::Interruptible, Kind::Sync, Kind::Read, Kind::Close];

    #[test]
    fn who_dies_is_let_go_and_who_lives_is_not() {
        for kind in ALL {
            for offline in [false, true] {
                assert!(lets_go(kind, Fate::Dies, offline), "{kind:?}");
                assert!(!lets_go(kind, Fate::Lives, offline), "{kind:?}");
            }
        }
    }

    /// Proves S16.2, S16.3.
    #[test]
    fn a_caught_signal_ends_only_what_may_fail_and_only_offline() {
        assert_eq!(ALL.map(|kind| lets_go(kind, Fate::Signalled, false)), [false; 5]);
        let offline = ALL.map(|kind| lets_go(kind, Fate::Signalled, true));
        assert_eq!(offline, [false, true, true, true, true]);
    }

    #[test]
    fn a_process_that_ends_by_itself_waits_for_its_files_while_the_server_answers() {
        assert_eq!(ALL.map(|kind| lets_go(kind, Fate::Exits, false)), [false; 5]);
        let offline = ALL.map(|kind| lets_go(kind, Fate::Exits, true));
        assert_eq!(offline, [false, false, false, false, true]);
    }
}
