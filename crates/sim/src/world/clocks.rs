//! Clocks that are wrong, and hosts that sleep.

use std::time::Duration;

use segue_core::host::call::Ended;
use segue_core::nouns::Time;

use super::draws::Who;
use super::{Event, Host, RECONNECT, World};
use crate::Violation;
use crate::plan::{Bug, Plan};
use crate::rng::Rng;

/// Longest that a host sleeps, in milliseconds.
const SLEEP_MAX: u64 = 90_000;
/// What was due while a host slept happens in any order within so many milliseconds.
const WAKING: u64 = 50;
/// A mount notices a sleep so long after it.
const NOTICED: Duration = Duration::from_millis(900);
/// From then on a kernel shows nothing from before a sleep.
const WIDE_AWAKE: Duration = Duration::from_secs(1);
/// Taking back takes so long, of the three seconds that it may take at least.
const TAKING: Duration = Duration::from_millis(2500);
/// Furthest that a wall clock is set, in seconds.
const JUMP_MAX: u64 = 400 * 86_400;

/// The clocks of a host.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// By so many millionths faster than the world's.
    drift: i64,
    /// What its wall clock is ahead, in seconds.
    pub(super) ahead: i64,
    /// How long it slept.
    slept: Duration,
    /// Since when it sleeps.
    asleep: Option<Time>,
    /// When it slept last.
    woke: Option<Time>,
    /// It is looked again at its lease.
    ends_lease: bool,
    /// What was due meanwhile.
    due: Vec<Event>,
}

impl Clock {
    pub(super) fn draw(plan: &Plan, rng: &mut Rng) -> Clock {
        let drift = match plan.more.drift {
            0 => 0,
            most => i64::try_from(rng.below(2 * most + 1)).unwrap_or(0) - most.cast_signed(),
        };
        Clock { drift, ..Clock::default() }
    }

    /// CLOCK_BOOTTIME, or CLOCK_MONOTONIC if it is not to count sleep.
    fn time(&self, now: Time, counts_sleep: bool) -> Time {
        let awake = match counts_sleep {
            true => now.0,
            false => now.0.saturating_sub(self.slept),
        };
        let micros = u64::try_from(awake.as_micros()).unwrap_or(u64::MAX);
        let nanos = (micros / 1000).saturating_mul(self.drift.unsigned_abs());
        let off = Duration::from_nanos(nanos);
        Time(if self.drift < 0 { awake.saturating_sub(off) } else { awake + off })
    }
}

impl World {
    /// True if no wall clock was set.
    pub(super) fn do_clocks_agree(&self) -> bool {
        self.clocks.iter().all(|clock| clock.ahead == 0)
    }

    /// What the clock of `client`'s kernel shows, by which lifetimes end.
    pub(super) fn awake_time_of(&self, client: usize) -> Time {
        self.clocks[client].time(self.now, false)
    }

    /// True if a program of `client` may read what is checked: in the first second after a sleep
    /// the kernel may show what was before.
    pub(super) fn is_wide_awake(&self, client: usize) -> bool {
        let clock = &self.clocks[client];
        clock.asleep.is_none() && clock.woke.is_none_or(|woke| self.now.since(woke) >= WIDE_AWAKE)
    }

    /// A mount notices that its host slept.
    pub(super) fn notice_sleep(&mut self, client: usize) -> Result<(), Violation> {
        self.with(client, |apps| apps.mount.take_told(Ended::Slept))?;
        Ok(())
    }

    /// Takes back what the kernel of `client` was told if its lease is about to end. Otherwise it
    /// is looked again when it would be.
    pub(super) fn end_lease(&mut self, client: usize) -> Result<(), Violation> {
        self.clocks[client].ends_lease = false;
        self.with(client, |apps| apps.mount.lease_ends().map(drop))?;
        Ok(())
    }

    /// Looks at the lease of `client` again at the time when it would be about to end.
    pub(super) fn await_end_of_lease(&mut self, client: usize) {
        let now = self.time_of(client);
        let Host::Up(apps) = &self.hosts[client] else { return };
        let Some(end) = apps.mount.core.tree().end_of_lease() else { return };
        if !std::mem::replace(&mut self.clocks[client].ends_lease, true) {
            self.after(end.since(now) + TAKING, Event::Lease(client));
        }
    }

    /// What `client`'s clock shows.
    pub(super) fn time_of(&self, client: usize) -> Time {
        let counts_sleep = self.options.bug != Some(Bug::ClientSleepsOnLease);
        self.clocks[client].time(self.now, counts_sleep)
    }

    pub(super) fn is_asleep(&self, client: usize) -> bool {
        self.clocks[client].asleep.is_some()
    }

    pub(super) fn sleep(&mut self, client: usize) {
        if self.is_asleep(client) || matches!(self.hosts[client], Host::Down(..)) {
            return self.recurs(Event::Sleep(client));
        }
        self.summary.sleeps += 1;
        self.clocks[client].asleep = Some(self.now);
        let wait = self.draws.millis(Who::Fault(Some(client)), 500..SLEEP_MAX);
        self.after(wait, Event::Wake(client));
    }

    pub(super) fn wake(&mut self, client: usize) {
        let Some(since) = self.clocks[client].asleep.take() else { return };
        self.clocks[client].slept += self.now.since(since);
        self.clocks[client].woke = Some(self.now);
        self.after(NOTICED, Event::Woken(client));
        for event in std::mem::take(&mut self.clocks[client].due) {
            let wait = self.draws.millis(Who::Link(client), 0..WAKING);
            self.after(wait, event);
        }
        self.recurs(Event::Sleep(client));
    }

    /// Sets a host's wall clock.
    pub(super) fn jump(&mut self, client: usize) {
        self.summary.jumps += 1;
        let ahead =
            i64::try_from(self.draws.of(Who::Fault(Some(client))).below(2 * JUMP_MAX)).unwrap_or(0);
        self.clocks[client].ahead = ahead - JUMP_MAX.cast_signed();
        self.recurs(Event::Jump(client));
    }

    /// What happens if a host that is concerned does not sleep. What comes over the network for one
    /// that does is lost; all else waits.
    pub(super) fn unless_asleep(&mut self, event: Event) -> Option<Event> {
        let concerned = match &event {
            Event::Break { to, .. } => to.host,
            Event::Reply { client, .. }
            | Event::Timeout { client, .. }
            | Event::Thread { client, .. }
            | Event::Reconnect(client)
            | Event::Tick(client)
            | Event::Note(client)
            | Event::Lease(client)
            | Event::Woken(client)
            | Event::Crash(client) => *client,
            _ => return Some(event),
        };
        if !self.is_asleep(concerned) {
            return Some(event);
        }
        match event {
            Event::Reply { .. } => self.summary.lost += 1,
            Event::Break { to, inodes } => {
                self.summary.lost += 1;
                self.after(RECONNECT, Event::Tell((to, inodes)));
            }
            event => self.clocks[concerned].due.push(event),
        }
        None
    }
}
