//! Why operations took as long as they did: those that had to wait, with what they waited for.
//!
//! What is answered at once costs nothing here. What had to wait went on as a task, and whatever in
//! it takes time says so to that task.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use segue_core::nouns::{Ino, Time};
use segue_core::refusal::Refusal;

use super::{Mount, Shared, lock};
use crate::control::types::{AwaitedFile, WaitedFor, WhyOperation, WhyReply};

/// Operations that are remembered.
const REMEMBERED: usize = 4096;
/// Files in a report of what is waited for.
const AWAITED_MAX: usize = 100;
/// Steps of one: a long read may have more.
const STEPS_MAX: usize = 64;
/// Shorter waits are nobody's question.
const SHORT: Duration = Duration::from_millis(1);

tokio::task_local! {
    static STEPS: Steps;
}

/// What one operation waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Arc<Mutex<Vec<WaitedFor>>>);

impl Steps {
    /// Does `poll`, whose waits are this operation's.
    pub(crate) fn within<R>(&self, poll: impl FnOnce() -> R) -> R {
        STEPS.sync_scope(self.clone(), poll)
    }
}

/// What an operation is, as the kernel asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// What it is about, or the directory of the name that it is about.
    pub(crate) ino: Ino,
    /// Hash of that name.
    pub(crate) child: Option<u64>,
    /// Who asked, 0 for the kernel.
    pub(crate) pid: u32,
}

#[derive(Debug)]
struct Slow {
    operation: Operation,
    ended: Time,
    took: Duration,
    steps: Steps,
}

/// The last of them, and those that wait now, by the kernel's numbers.
#[derive(Debug, Default)]
pub(super) struct Slows {
    ended: Mutex<VecDeque<Slow>>,
    waiting: Mutex<BTreeMap<u64, WaitingNow>>,
}

#[derive(Clone, Debug)]
struct WaitingNow {
    operation: Operation,
    began: Time,
    steps: Steps,
}

/// An operation that waits until this is dropped.
pub(crate) struct UnderWay {
    mount: Shared,
    unique: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&self.mount.slows.waiting).remove(&self.unique);
    }
}

/// Waits for `work`, and says what for.
pub(crate) async fn waits<T>(
    for_what: impl FnOnce() -> String,
    work: impl Future<Output = T>,
) -> T {
    let began = Instant::now();
    let done = work.await;
    let took = began.elapsed();
    if took >= SHORT {
        STEPS
            .try_with(|Steps(steps)| {
                let mut steps = lock(steps);
                if steps.len() < STEPS_MAX {
                    let (what, seconds) = (for_what(), took.as_secs_f64());
                    steps.push(WaitedFor { what, seconds });
                }
            })
            // Nobody waits for a chore.
            .ok();
    }
    done
}

impl Mount {
    /// The operation that the kernel calls `unique` has to wait.
    pub(crate) fn begin_wait(
        self: &Shared,
        unique: u64,
        operation: Operation,
        steps: Steps,
    ) -> UnderWay {
        let waiting = WaitingNow { operation, began: self.now(), steps };
        lock(&self.slows.waiting).insert(unique, waiting);
        UnderWay { mount: Arc::clone(self), unique }
    }

    /// Files whose data a program waits for now, the longest wait first.
    pub(super) fn awaited_files(&self) -> Vec<AwaitedFile> {
        let mut waiting: Vec<WaitingNow> = lock(&self.slows.waiting).values().cloned().collect();
        waiting.retain(|waiting| matches!(waiting.operation.name, "read" | "open"));
        waiting.sort_by_key(|waiting| waiting.began);
        let (now, mut seen) = (self.now(), BTreeSet::new());
        waiting.retain(|waiting| seen.insert((waiting.operation.ino, waiting.operation.pid)));
        let mut files = Vec::new();
        {
            let core = self.core();
            for WaitingNow { operation: Operation { ino, pid, .. }, began, .. } in waiting {
                let file = core.files.get(&ino).filter(|file| file.is_fetching());
                let (Some(file), Some(attr)) = (file, core.tree.peek(ino)) else { continue };
                files.push(AwaitedFile {
                    path: core.tree.path(ino),
                    pid,
                    program: String::new(),
                    seconds: now.since(began).as_secs_f64(),
                    here_bytes: file.valid().bytes(),
                    size: attr.size,
                });
            }
        }
        files.truncate(AWAITED_MAX);
        for file in &mut files {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", file.pid));
            file.program = name.unwrap_or_default().trim_end().to_owned();
        }
        files
    }

    /// An operation that had to wait has ended.
    pub(crate) fn ended(&self, operation: Operation, took: Duration, steps: Steps) {
        if took < SHORT {
            return;
        }
        let mut slows = lock(&self.slows.ended);
        if slows.len() >= REMEMBERED {
            slows.pop_front();
        }
        slows.push_back(Slow { operation, ended: self.now(), took, steps });
    }

    /// The last operations on `path` that had to wait, newest first.
    pub(crate) async fn why(&self, path: &[u8]) -> WhyReply {
        match self.why_inner(path).await {
            Ok(operations) => WhyReply { operations, error: String::new() },
            Err(refusal) => WhyReply { error: refusal.to_string(), ..WhyReply::default() },
        }
    }

    async fn why_inner(&self, path: &[u8]) -> Result<Vec<WhyOperation>, Refusal> {
        let ino = self.find(path).await?.ino;
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let directory = path.strip_suffix(last).unwrap_or_default();
        let parent = self.find(directory).await?.ino;
        let child = (parent, Some(hash(last)));
        let now = self.now();
        let is_about = |operation: &Operation| {
            let Operation { ino: of, child: name, .. } = *operation;
            (of, name) == child || (of == ino && (name.is_none() || path.is_empty()))
        };
        let waiting: Vec<WaitingNow> = lock(&self.slows.waiting).values().cloned().collect();
        let waiting = waiting.iter().filter(|waiting| is_about(&waiting.operation));
        let mut shown: Vec<WhyOperation> = waiting
            .map(|WaitingNow { operation, began, steps }| WhyOperation {
                operation: operation.name.into(),
                pid: operation.pid,
                under_way: true,
                age_seconds: 0.0,
                seconds: now.since(*began).as_secs_f64(),
                waited_for: lock(&steps.0).clone(),
            })
            .collect();
        let slows = lock(&self.slows.ended);
        let ended = slows.iter().rev().filter(|slow| is_about(&slow.operation));
        shown.extend(ended.map(|slow| WhyOperation {
            operation: slow.operation.name.into(),
            pid: slow.operation.pid,
            under_way: false,
            age_seconds: now.since(slow.ended).as_secs_f64(),
            seconds: slow.took.as_secs_f64(),
            waited_for: lock(&slow.steps.0).clone(),
        }));
        Ok(shown)
    }
}

/// Of a name: an operation is known by it.
pub(crate) fn hash(name: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Waits are those of the operation within which they are polled, and of nobody elsewhere.
    #[tokio::test]
    async fn waits_are_told_to_the_operation_that_has_them() {
        let wait =
            |what: &'static str| waits(move || what.to_owned(), tokio::time::sleep(2 * SHORT));
        let steps = Steps::default();
        let mut work = pin!(async {
            wait("one").await;
            waits(|| "none".to_owned(), async {}).await;
            wait("two").await;
        });
        std::future::poll_fn(|context| steps.within(|| work.as_mut().poll(context))).await;
        wait("other").await;
        let told: Vec<String> = lock(&steps.0).iter().map(|step| step.what.clone()).collect();
        assert_eq!(told, ["one", "two"]);
        assert!(lock(&steps.0).iter().all(|step| step.seconds >= SHORT.as_secs_f64()));
        let mut nothing = pin!(waits(String::new, async {}));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(nothing.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
