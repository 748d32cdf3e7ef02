//! Calls that need data, and their waits.

use std::ops::Range;
use std::sync::Arc;

use segue_core::host::action::{Await, Done, Event, Patience, Undone};
use segue_core::host::call::{Call, FetchCall};
use segue_core::nouns::{Class, Ino};
use segue_core::refusal::Refusal;
use segue_rpc::Rpc;
use tokio::time::Instant;

use crate::shell::{Asked, Ran, Running, Shell};
use crate::waits::waits;

impl Shell {
    /// Returns when all of `range` is here. Without room for it that is refused.
    pub(crate) async fn fetch(
        self: &Arc<Self>,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<(), Refusal> {
        self.fetch_at(Class::Fetch, ino, range).await
    }

    /// The same, at the class of whoever waits.
    pub(crate) async fn fetch_at(
        self: &Arc<Self>,
        class: Class,
        ino: Ino,
        range: Range<u64>,
    ) -> Result<(), Refusal> {
        let call = Call::Fetch(FetchCall { ino, range, passes: false });
        self.call_fetching(class, call).await.map(drop)
    }

    /// Bytes of a file of which some are not here and cannot be kept here.
    pub(crate) async fn read_uncached(
        self: &Arc<Self>,
        ino: Ino,
        range: Range<u64>,
        class: Class,
    ) -> Result<Vec<u8>, Refusal> {
        let call = Call::Fetch(FetchCall { ino, range, passes: true });
        self.call_fetching(class, call).await
    }

    /// Carries out a call that fetches at that class. Returns the bytes that pass.
    pub(crate) async fn call_fetching(
        self: &Arc<Self>,
        class: Class,
        call: Call,
    ) -> Result<Vec<u8>, Refusal> {
        match self.start(call) {
            (_, Ran::Answered(answer)) => answer.map(|_| Vec::new()),
            (running, Ran::Asks(asked)) => {
                Box::pin(self.go_on_fetching(class, running, asked)).await
            }
        }
    }

    async fn go_on_fetching(
        self: &Arc<Self>,
        class: Class,
        mut running: Running<'_>,
        mut asked: Asked,
    ) -> Result<Vec<u8>, Refusal> {
        let (rpc, mut passed) = (Rpc::new(Class::Fetch), Vec::new());
        loop {
            if class == Class::Fetch {
                self.want(&asked);
            }
            let done = match asked {
                Asked::Fetch(gap) => {
                    let data = || format!("{} bytes of data", gap.range.end - gap.range.start);
                    waits(data, self.fetcher.fetch_demanded(class, &gap))
                        .await
                        .map(|()| Done::Carried)
                }
                Asked::Pass(sight) => match self.fetcher.read_past(&sight, class).await {
                    Ok(bytes) => {
                        passed = bytes;
                        Ok(Done::Carried)
                    }
                    Err(refusal) => Err(refusal),
                },
                Asked::Await(awaited) => self.progressed(awaited).await,
                Asked::Evict => {
                    self.disk.make_room().await;
                    Ok(Done::Carried)
                }
                asked => self.answer(&rpc, asked).await,
            };
            let event = Event::Done { id: running.id, done: done.map_err(Undone::from) };
            match self.run(&mut running, event, &[]) {
                Ran::Answered(answer) => return answer.map(|_| passed),
                Ran::Asks(next) => asked = next,
            }
        }
    }

    /// Raises fetches of the same bytes that go without hurry.
    fn want(&self, asked: &Asked) {
        match asked {
            Asked::Fetch(gap) => self.fetcher.fetches.want(gap.ino, &gap.range),
            Asked::Await(Await { data: Some((ino, range)), .. }) => {
                self.fetcher.fetches.want(*ino, range)
            }
            _ => {}
        }
    }

    /// Waits until something was settled or fetched.
    pub(super) async fn progressed(&self, awaited: Await) -> Result<Done, Refusal> {
        let mut settled = self.wakes.settled.subscribe();
        let fetched = self.wakes.fetched.notified();
        tokio::pin!(fetched);
        fetched.as_mut().enable();
        if self.host.lock().progress() != awaited.since {
            return Ok(Done::Carried);
        }
        let progress = async {
            tokio::select! {
                () = fetched => {}
                _ = settled.changed() => {}
            }
        };
        let what = match awaited.data {
            Some(_) => "data that were already on their way",
            None => "the server to commit the change",
        };
        let is_late = match awaited.patience {
            Patience::AtMost(time) => tokio::time::timeout(time, progress).await.is_err(),
            Patience::Ever => {
                waits(|| what.to_owned(), progress).await;
                false
            }
            Patience::Grace => waits(|| what.to_owned(), self.loses_patience(progress)).await,
        };
        if is_late { Err(Refusal::Unreachable) } else { Ok(Done::Carried) }
    }

    /// Waits for `progress`; true if the connection was lost for longer than `grace` before.
    async fn loses_patience(&self, progress: impl Future<Output = ()>) -> bool {
        tokio::pin!(progress);
        let mut link = self.remote.link().watch();
        // Counted from the loss of the link: every failed attempt to connect changes its state.
        let mut until = None;
        loop {
            let is_offline = self.remote.is_offline();
            if !is_offline {
                until = None;
            }
            let left = || self.remote.link().patience_left(self.volume.options.grace);
            let deadline = *until.get_or_insert_with(|| Instant::now() + left());
            tokio::select! {
                () = &mut progress => return false,
                _ = link.changed() => {}
                () = tokio::time::sleep_until(deadline), if is_offline => return true,
            }
        }
    }
}
