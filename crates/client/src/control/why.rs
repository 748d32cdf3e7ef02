//! Operations that had to wait, and the causes.

use std::collections::BTreeSet;

use segue_core::refusal::Refusal;

use super::status::find;
use crate::mount::Mount;
use crate::replies::{AwaitedFile, WhyOperation, WhyReply};
use crate::waits::{Operation, WaitingNow, hash};

/// Files in a report of what is waited for.
const AWAITED_MAX: usize = 100;

/// Files whose data a program waits for now, the longest wait first.
pub(super) fn awaited_files(mount: &Mount) -> Vec<AwaitedFile> {
    let mut waiting: Vec<WaitingNow> = mount.slows.waiting.lock().values().cloned().collect();
    waiting.retain(|waiting| matches!(waiting.operation.name, "read" | "open"));
    waiting.sort_by_key(|waiting| waiting.began);
    let (now, mut seen) = (mount.host.now(), BTreeSet::new());
    waiting.retain(|waiting| seen.insert((waiting.operation.ino, waiting.operation.pid)));
    let mut files = Vec::new();
    {
        let core = mount.host.lock();
        for WaitingNow { operation: Operation { ino, pid, .. }, began, .. } in waiting {
            let file = core.data_of(ino).filter(|file| file.is_fetching());
            let (Some(file), Some(attr)) = (file, core.tree().peek(ino)) else { continue };
            files.push(AwaitedFile {
                path: core.tree().path(ino),
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

/// The last operations on `path` that had to wait, newest first.
pub(crate) async fn why(mount: &Mount, path: &[u8]) -> WhyReply {
    match why_inner(mount, path).await {
        Ok(operations) => WhyReply { operations, error: String::new() },
        Err(refusal) => WhyReply { error: refusal.to_string(), ..WhyReply::default() },
    }
}

async fn why_inner(mount: &Mount, path: &[u8]) -> Result<Vec<WhyOperation>, Refusal> {
    let ino = find(mount, path).await?.ino;
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let directory = path.strip_suffix(last).unwrap_or_default();
    let parent = find(mount, directory).await?.ino;
    let child = (parent, Some(hash(last)));
    let now = mount.host.now();
    let is_about = |operation: &Operation| {
        let Operation { ino: of, child: name, .. } = *operation;
        (of, name) == child || (of == ino && (name.is_none() || path.is_empty()))
    };
    let waiting: Vec<WaitingNow> = mount.slows.waiting.lock().values().cloned().collect();
    let waiting = waiting.iter().filter(|waiting| is_about(&waiting.operation));
    let mut shown: Vec<WhyOperation> = waiting
        .map(|WaitingNow { operation, began, steps }| WhyOperation {
            operation: operation.name.into(),
            pid: operation.pid,
            under_way: true,
            age_seconds: 0.0,
            seconds: now.since(*began).as_secs_f64(),
            waited_for: steps.so_far(),
        })
        .collect();
    let slows = mount.slows.ended.lock();
    let ended = slows.iter().rev().filter(|slow| is_about(&slow.operation));
    shown.extend(ended.map(|slow| WhyOperation {
        operation: slow.operation.name.into(),
        pid: slow.operation.pid,
        under_way: false,
        age_seconds: now.since(slow.ended).as_secs_f64(),
        seconds: slow.took.as_secs_f64(),
        waited_for: slow.steps.clone(),
    }));
    Ok(shown)
}
