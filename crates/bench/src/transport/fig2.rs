//! The experiment `mfs-fig2`: modeless against modal adaptation on a link that changes
//! [MFS figure 2].
//!
//! Four classes of messages go up, without end:
//!
//! ```text
//!   modeless   each class always has a message of 64 KB under way; the scheduler has the choice
//!   modal      each class is produced at a rate of its own while the mode has it (`modal`)
//! ```
//!
//! Both are sent by the same transport. The modal application has the best of many rules, found by
//! a forecast which knows the link; beside it one with evenly spaced modes, as somebody would
//! choose them who does not.

mod report;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use segue_core::nouns::Class;
use segue_core::wire::{Put, Request};
use segue_rpc::{Body, BodySender, CallError, Peer};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep_until};

use super::dial::PATIENCE;
use super::drive::count;
use super::modal::{self, BEHIND_MAX, LOOK, LOOKS, MODES, Modal, Rule, Seen};
use super::pair::{self, Door};
use super::ride::{Second, ride};
use super::serve::pour;
use super::trace::{Trace, utilization};
use super::variant::Variant;
use super::wrong;
use crate::measurement::{Effort, Run};
use crate::plot::lines::Chart;
use crate::record::Context;
use segue_bed::{Bed, Host, Result};

const TRACE: &str = include_str!("../../traces/mfs-fig2.txt");
/// What may wait before the link.
const QUEUE_BYTES: u64 = 128 << 10;
/// The classes, the most urgent first.
const CLASSES: [Class; MODES] = [Class::Fetch, Class::StoreAttr, Class::StoreData, Class::Prefetch];
const MESSAGE_BYTES: u64 = 64 << 10;
/// What a class produces at once in a mode: three packets.
const PIECE_BYTES: usize = 4 << 10;
/// Modes as somebody would choose them who knows no more than that the link has 100 to 700 KB/s.
const EVEN: Rule = Rule { rates_kb: [90, 240, 390, 540], margin: 1.1, patience_s: 3 };

/// Who sends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Application {
    Modeless,
    /// By the best rule that was found.
    Modal(Rule),
    /// By [`EVEN`].
    Even,
}

impl Application {
    fn name(self) -> &'static str {
        match self {
            Application::Modeless => "modeless",
            Application::Modal(_) => "modal",
            Application::Even => "modal, even",
        }
    }

    fn rule(self) -> Option<Rule> {
        match self {
            Application::Modeless => None,
            Application::Modal(rule) => Some(rule),
            Application::Even => Some(EVEN),
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figures {
    /// What the link can carry.
    capacity_bytes: u64,
    /// What it carried up, with all headers.
    link_bytes: u64,
    /// Bytes of messages that came to the server.
    message_bytes: u64,
    utilization: f64,
    /// For each second: the link's rate and what was used of it, in KB/s.
    rate_kb: Vec<f64>,
    used_kb: Vec<f64>,
    /// The mode at its end; without modes, the most urgent class that was sent.
    mode: Vec<Option<usize>>,
    /// KB of each class that were sent in it.
    class_kb: Vec<[f64; MODES]>,
}

/// The sender at one moment.
#[derive(Debug, Clone, Copy)]
struct Sender {
    /// Bytes of each class handed over so far.
    sent: [u64; MODES],
    mode: usize,
}

/// Measures and writes the results; the table.
pub(super) fn run(effort: &Effort, out: &Path, context: Context) -> Result<String> {
    let trace = Trace::parse(TRACE)?;
    let swept = modal::sweep(&trace);
    let (best, _) = *swept.first().ok_or_else(|| wrong("no rule was tried"))?;
    let trace = trace.scaled(effort.scale);
    let mut run = Run::create(out, "mfs-fig2", context, effort.scale)?;
    for repeat in 1..=effort.repeats {
        for application in [Application::Modeless, Application::Modal(best), Application::Even] {
            let figures = measure(application, &trace, effort.limit);
            run.add(application.into(), repeat, figures)?;
        }
    }
    let Run { results, measured, .. } = run;
    let text = report::markdown(results.context(), &measured, &swept);
    results.finish(&text, &Chart::parts(report::charts(&measured)))?;
    Ok(text)
}

fn measure(application: Application, trace: &Trace, limit: Duration) -> Result<Figures> {
    let link = trace.first()?.link(QUEUE_BYTES);
    let trace = trace.clone();
    pair::visit(&Bed::new()?, Variant::Segue, link, limit, async move |door, host| {
        send(door, host, application, trace).await
    })
}

async fn send(door: &Door, host: Host, application: Application, trace: Trace) -> Result<Figures> {
    let peer =
        segue_rpc::dial(&door.target, Some(&door.identity), PATIENCE).await.map_err(wrong)?;
    let (choose, chosen) = watch::channel(0);
    let mode = Arc::new(AtomicUsize::new(0));
    let mut work = JoinSet::new();
    for (class, number) in CLASSES.into_iter().zip(0..) {
        match application.rule() {
            None => work.spawn(send_always(peer.clone(), class)),
            Some(rule) => {
                let below = if number == 0 { 0.0 } else { rule.rate(number - 1) };
                let layer = Layer { class, number, rate: rule.rate(number) - below };
                work.spawn(send_layer(peer.clone(), layer, chosen.clone()))
            }
        };
    }
    if let Some(rule) = application.rule() {
        work.spawn(choose_modes(peer.clone(), rule, choose, mode.clone()));
    }
    let (before, capacity, looked) = (count(&peer).await?, trace.capacity(), peer.clone());
    let look = move || Sender { sent: sent(&looked), mode: mode.load(Relaxed) };
    let start = Instant::now();
    let riding = tokio::task::spawn_blocking(move || ride(&host, &trace, QUEUE_BYTES, start, look));
    let seconds = riding.await.map_err(wrong)??;
    if let Some(ended) = work.try_join_next() {
        return Err(wrong(format!("a sender has ended: {ended:?}")));
    }
    let message_bytes = count(&peer).await?.start - before.start;
    Ok(figures(application, &seconds, &capacity, message_bytes))
}

fn figures(
    application: Application,
    seconds: &[Second<Sender>],
    capacity: &[u64],
    message_bytes: u64,
) -> Figures {
    let kb = |bytes: u64| bytes as f64 / 1024.0;
    let carried: Vec<u64> = seconds.iter().map(|second| second.carried[0]).collect();
    let classes = |second: &Second<Sender>| {
        let [before, after] = &second.seen;
        std::array::from_fn(|class| kb(after.sent[class] - before.sent[class]))
    };
    let class_kb: Vec<[f64; MODES]> = seconds.iter().map(classes).collect();
    let most_urgent = class_kb.iter().map(|second| second.iter().position(|kb| *kb > 0.0));
    let mode = match application {
        Application::Modeless => most_urgent.collect(),
        _ => seconds.iter().map(|second| Some(second.seen[1].mode)).collect(),
    };
    Figures {
        capacity_bytes: capacity.iter().sum(),
        link_bytes: carried.iter().sum(),
        message_bytes,
        utilization: utilization(&carried, capacity).1,
        rate_kb: capacity.iter().map(|bytes| kb(*bytes)).collect(),
        used_kb: carried.iter().map(|bytes| kb(*bytes)).collect(),
        mode,
        class_kb,
    }
}

/// Bytes of each class that QUIC was given.
fn sent(peer: &Peer) -> [u64; MODES] {
    let sent = peer.stats().sent;
    CLASSES.map(|class| sent.get(class as usize).copied().unwrap_or(0))
}

fn put() -> Request {
    Request::Put(Put::default())
}

/// Has a message of this class under way at any time.
async fn send_always(peer: Peer, class: Class) -> std::result::Result<(), CallError> {
    loop {
        let (sender, body) = Body::channel();
        tokio::spawn(pour(sender, MESSAGE_BYTES));
        peer.call_at(class, &put(), body).await?;
    }
}

/// What one class adds to a mode.
#[derive(Debug, Clone, Copy)]
struct Layer {
    class: Class,
    /// It is part of this mode, and of those above.
    number: usize,
    /// Bytes a second.
    rate: f64,
}

/// Produces messages at the layer's rate for as long as the mode has it.
async fn send_layer(
    peer: Peer,
    layer: Layer,
    mut mode: watch::Receiver<usize>,
) -> std::result::Result<(), CallError> {
    let mut next = tokio::time::Instant::now();
    loop {
        let (sender, body) = Body::channel();
        let request = put();
        let call = peer.call_at(layer.class, &request, body);
        let (called, ()) = tokio::join!(call, produce(&peer, sender, layer, &mut mode, &mut next));
        called?;
    }
}

/// Produces one message.
async fn produce(
    peer: &Peer,
    body: BodySender,
    layer: Layer,
    mode: &mut watch::Receiver<usize>,
    next: &mut tokio::time::Instant,
) {
    let piece = Bytes::from(vec![0; PIECE_BYTES]);
    let queue_max = (layer.rate * BEHIND_MAX.as_secs_f64()).max(PIECE_BYTES as f64);
    let mut left = MESSAGE_BYTES;
    while left > 0 {
        // It ends with the application.
        if mode.wait_for(|mode| *mode >= layer.number).await.is_err() {
            return;
        }
        // What could not be produced in time is not made up for.
        *next = (*next).max(tokio::time::Instant::now() - LOOK);
        *next += Duration::from_secs_f64(PIECE_BYTES as f64 / layer.rate);
        sleep_until(*next).await;
        let queued = peer.stats().queued.get(layer.class as usize).copied().unwrap_or(0);
        if queued as f64 > queue_max {
            continue;
        }
        if body.send(piece.clone()).await.is_err() {
            return;
        }
        left -= PIECE_BYTES as u64;
    }
    // It fails when the call has failed, which tells.
    let _ = body.finish().await;
}

/// Looks at the bandwidth and chooses modes.
async fn choose_modes(
    peer: Peer,
    rule: Rule,
    choose: watch::Sender<usize>,
    shown: Arc<AtomicUsize>,
) -> std::result::Result<(), CallError> {
    let start = Instant::now();
    let mut modal = Modal::new(rule, Duration::ZERO);
    let mut totals = VecDeque::from([(Duration::ZERO, 0)]);
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        let (now, total) = (start.elapsed(), sent(&peer).iter().sum::<u64>());
        totals.push_back((now, total));
        if totals.len() > LOOKS + 1 {
            totals.pop_front();
        }
        let (then, before) = totals.front().copied().unwrap_or_default();
        let rate = (total - before) as f64 / (now - then).as_secs_f64().max(1e-3);
        let queued = peer.stats().queued.iter().sum::<u64>() as f64;
        let mode = modal.handle(now, Seen { rate, queued });
        shown.store(mode, Relaxed);
        choose.send_replace(mode);
    }
}
