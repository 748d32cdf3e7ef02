//! Changes in a second: one in flight, several clients, many at a time.

use std::time::Instant;

use super::client::{Client, wrong};
use super::floor::FILE_BYTES;
use super::{Course, SEGUE, SQLITE};
use crate::samples::Unit;
use segue_bed::Result;

/// How changes come.
struct Way {
    test: &'static str,
    clients: u32,
    /// APPLYs of each client.
    requests: u32,
    /// Changes of an APPLY.
    changes: u32,
    /// Changes that are in flight together, which the floor makes one transaction of.
    together: u32,
}

const WAYS: [Way; 3] = [
    Way { test: "changes, one in flight", clients: 1, requests: 3_000, changes: 1, together: 1 },
    Way {
        test: "changes, 16 clients, one in flight each",
        clients: 16,
        requests: 800,
        changes: 1,
        together: 16,
    },
    Way {
        test: "changes, 4 clients, 256 in flight each",
        clients: 4,
        requests: 80,
        changes: 256,
        together: 256,
    },
];

pub(super) fn run(course: &mut Course<'_>) -> Result<()> {
    course.remember_peak("changes", |course| WAYS.iter().try_for_each(|way| measure(course, way)))
}

fn measure(course: &mut Course<'_>, way: &Way) -> Result<()> {
    let requests = course.scaled(way.requests);
    let changes = f64::from(way.clients * requests * way.changes);
    let data = [b'x'; FILE_BYTES];
    let clients = course.served.clients(way.clients, &data);
    let clients = course.runtime.block_on(clients)?;
    let (seconds, _) = course.runtime.block_on(apply(clients, requests, way.changes))?;
    course.add(SEGUE, way.test, Unit::Operations, changes / seconds)?;
    let transactions = way.clients * requests * way.changes / way.together;
    let seconds = course.floor.apply(transactions, way.together)?;
    course.add(SQLITE, way.test, Unit::Operations, changes / seconds)
}

/// Seconds that `clients` take for `requests` APPLYs of `changes` each, one after the other;
/// and the clients.
pub(super) async fn apply(
    clients: Vec<Client>,
    requests: u32,
    changes: u32,
) -> Result<(f64, Vec<Client>)> {
    let start = Instant::now();
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            tokio::spawn(async move {
                for _ in 0..requests {
                    client.apply_next(changes).await?;
                }
                Ok(client)
            })
        })
        .collect();
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.map_err(wrong)??);
    }
    Ok((start.elapsed().as_secs_f64(), done))
}
