//! Why operations took as long as they did: those that had to wait, with what they waited for.
//!
//! What is answered at once costs nothing here. What had to wait went on as a task, and whatever in
//! it takes time says so to that task.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use segue_core::nouns::{Ino, Time};

use crate::rank::{Rank, Ranked};
use crate::replies::WaitedFor;

/// Operations that are remembered.
const REMEMBERED: usize = 4096;
/// Steps of one: a long read may have more.
const STEPS_MAX: usize = 64;
/// Shorter waits are nobody's question.
const SHORT: Duration = Duration::from_millis(1);

tokio::task_local! {
    static STEPS: Steps;
}

/// What one operation waits for, and waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Arc<Ranked<StepsSoFar>>);

#[derive(Debug, Default)]
struct StepsSoFar {
    /// In the order in which they ended.
    ended: Vec<WaitedFor>,
    under_way: BTreeMap<u64, (String, Instant)>,
    last: u64,
}

/// A step that is under way until this is dropped.
struct Step {
    of: Steps,
    number: u64,
}

impl Drop for Step {
    fn drop(&mut self) {
        let mut steps = self.of.0.lock();
        let Some((what, began)) = steps.under_way.remove(&self.number) else { return };
        let took = began.elapsed();
        if took >= SHORT && steps.ended.len() < STEPS_MAX {
            steps.ended.push(WaitedFor { what, seconds: took.as_secs_f64() });
        }
    }
}

impl Steps {
    /// All of them, those that are under way last.
    pub(crate) fn so_far(&self) -> Vec<WaitedFor> {
        let steps = self.0.lock();
        let under_way = steps.under_way.values().map(|(what, began)| WaitedFor {
            what: what.clone(),
            seconds: began.elapsed().as_secs_f64(),
        });
        steps.ended.iter().cloned().chain(under_way).collect()
    }

    fn begin(&self, what: String, began: Instant) -> Step {
        let mut steps = self.0.lock();
        steps.last += 1;
        let number = steps.last;
        steps.under_way.insert(number, (what, began));
        Step { of: self.clone(), number }
    }

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
pub(crate) struct Slow {
    pub(crate) operation: Operation,
    pub(crate) ended: Time,
    pub(crate) took: Duration,
    pub(crate) steps: Vec<WaitedFor>,
}

/// The last of them, and those that wait now, by the kernel's numbers.
#[derive(Debug)]
pub(crate) struct Slows {
    pub(crate) ended: Ranked<VecDeque<Slow>>,
    pub(crate) waiting: Ranked<BTreeMap<u64, WaitingNow>>,
}

impl Default for Slows {
    fn default() -> Slows {
        let ended = Ranked::new(Rank::Waits, VecDeque::new());
        let waiting = Ranked::new(Rank::Waits, BTreeMap::new());
        Slows { ended, waiting }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct WaitingNow {
    pub(crate) operation: Operation,
    pub(crate) began: Time,
    pub(crate) steps: Steps,
}

/// An operation that waits until this is dropped.
pub(crate) struct UnderWay {
    slows: Arc<Slows>,
    unique: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.slows.waiting.lock().remove(&self.unique);
    }
}

/// Waits for `work`, and says what for.
pub(crate) async fn waits<T>(
    for_what: impl FnOnce() -> String,
    work: impl Future<Output = T>,
) -> T {
    let began = Instant::now();
    let (mut work, mut for_what, mut step) = (pin!(work), Some(for_what), None);
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        // An operation that has to wait goes on as a task, and nobody waits for a chore.
        if step.is_none()
            && let Ok(steps) = STEPS.try_with(Steps::clone)
            && let Some(for_what) = for_what.take()
        {
            step = Some(steps.begin(for_what(), began));
        }
        polled
    })
    .await
}

/// Of a name: an operation is known by it.
pub(crate) fn hash(name: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

impl Slows {
    /// The operation that the kernel calls `unique` has to wait from `now` on.
    pub(crate) fn begin(
        self: &Arc<Slows>,
        unique: u64,
        operation: Operation,
        steps: Steps,
        now: Time,
    ) -> UnderWay {
        let waiting = WaitingNow { operation, began: now, steps };
        self.waiting.lock().insert(unique, waiting);
        UnderWay { slows: Arc::clone(self), unique }
    }

    /// An operation that had to wait has ended.
    pub(crate) fn end(&self, operation: Operation, took: Duration, steps: &Steps, now: Time) {
        if took < SHORT {
            return;
        }
        let mut slows = self.ended.lock();
        if slows.len() >= REMEMBERED {
            slows.pop_front();
        }
        slows.push_back(Slow { operation, ended: now, took, steps: steps.so_far() });
    }
}

#[cfg(test)]
mod tests {
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
        let told = |steps: &Steps| -> Vec<String> {
            steps.so_far().into_iter().map(|step| step.what).collect()
        };
        assert_eq!(told(&steps), ["one", "two"]);
        assert!(steps.so_far().iter().all(|step| step.seconds >= SHORT.as_secs_f64()));
        let mut longer = Box::pin(waits(|| "three".to_owned(), std::future::pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        let poll = steps.within(|| longer.as_mut().poll(&mut context));
        assert_eq!(
            (poll, told(&steps)),
            (Poll::Pending, ["one", "two", "three"].map(String::from).into())
        );
        drop(longer);
        assert_eq!(told(&steps), ["one", "two"], "it was given up at once");
        let mut nothing = pin!(waits(String::new, async {}));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(nothing.as_mut().poll(&mut context), Poll::Ready(()));
    }
}
