//! The experiment `storm`: hosts that have a directory cached while another fills it.
//!
//! No mounts take part (`core::host::call::promises`): each host has listed the directory, is
//! promised to hear of its changes, and answers that it has heard.

use std::path::Path;
use std::time::Instant;

use segue_core::nouns::{Ino, Name, NewNode};
use segue_core::wire::{PAGE_MAX, Readdir, Reply, Request};
use segue_rpc::{Body, CloseCode, Peer};
use tokio::task::JoinHandle;

use super::Course;
use super::client::{Client, wrong};
use crate::record::Context;
use crate::samples::{Section, Style, Unit};
use segue_bed::Result;

/// Files that are made, of which as many are in a message as are small enough to be sent at once.
const FILES: u32 = 10_000;
const TOGETHER: u32 = 64;

/// Who has the directory cached meanwhile.
struct Way {
    name: &'static str,
    hosts: u32,
    /// They list it again each time that they hear.
    lists: bool,
}

const ALONE: &str = "nobody else";

const WAYS: [Way; 4] = [
    Way { name: ALONE, hosts: 0, lists: false },
    Way { name: "1 host lists again", hosts: 1, lists: true },
    Way { name: "50 hosts hear", hosts: 50, lists: false },
    Way { name: "50 hosts list again", hosts: 50, lists: true },
];

const STYLE: Style = Style {
    title: "storm",
    base: ALONE,
    preface: "One writer makes 10,000 files (at scale 1) in a directory, 64 in an APPLY and the \
              next when it is answered, while other hosts have that directory cached. They hear \
              of each change that they were promised to hear of: once, until they look again. \
              Those that only hear do not; those that list again read all of it each time that \
              they hear. `segue serve` is asked over QUIC by all of them on its host, whose two \
              processors they share.",
    sections: &[
        Section { heading: "Files made", text: "", units: &[Unit::Files] },
        Section {
            heading: "Until it is visible",
            text: "From the last answer to the writer until all have heard of everything.",
            units: &[Unit::Milliseconds],
        },
        Section {
            heading: "Bytes to a host",
            text: "UDP payload that one of them received, with all that it asked for; of the \
                   writer, where it is alone.",
            units: &[Unit::MegabytesHeld],
        },
    ],
    targets: &[],
};

/// Measures all, writes the results into `out` and returns the tables.
pub fn run(out: &Path, context: Context, repeats: u32, scale: f64) -> Result<String> {
    super::on_a_host(out, STYLE, context, scale, |course| {
        for repeat in 1..=repeats {
            course.repeat = repeat;
            WAYS.iter().try_for_each(|way| measure(course, way))?;
        }
        Ok(())
    })
}

/// What one way came to.
struct Figures {
    files_per_second: f64,
    visible_milliseconds: f64,
    megabytes: f64,
}

fn measure(course: &mut Course<'_>, way: &Way) -> Result<()> {
    let files = course.scaled(FILES);
    let clients = course.served.clients(way.hosts + 1, &[]);
    let clients = course.runtime.block_on(clients)?;
    let figures = course.runtime.block_on(storm(clients, way, files))?;
    course.add(way.name, "files made", Unit::Files, figures.files_per_second)?;
    course.add(way.name, "visible after", Unit::Milliseconds, figures.visible_milliseconds)?;
    course.add(way.name, "bytes to a host", Unit::MegabytesHeld, figures.megabytes)
}

async fn storm(mut clients: Vec<Client>, way: &Way, files: u32) -> Result<Figures> {
    let mut writer = clients.pop().ok_or_else(|| wrong("nobody writes"))?;
    let (place, made) = writer.changes.create(Ino::ROOT, NewNode::Directory)?;
    writer.apply(vec![made], 0).await?;
    let mut hosts: Vec<(Peer, JoinHandle<Result<()>>)> = Vec::new();
    for client in clients {
        list(&client.peer, place.ino).await?;
        let peer = client.peer.clone();
        hosts.push((peer.clone(), tokio::spawn(hear(peer, place.ino, way.lists))));
    }
    let received = |peer: &Peer| peer.stats().received_bytes;
    let before: Vec<u64> = hosts.iter().map(|(peer, _)| received(peer)).collect();
    let (own, start) = (received(&writer.peer), Instant::now());
    let mut made = 0;
    while made < files {
        let count = TOGETHER.min(files - made);
        let acked_below = writer.changes.next_seq();
        let create = |_| Ok(writer.changes.create(place.ino, NewNode::File)?.1);
        let records = (0..count).map(create).collect::<Result<Vec<_>>>()?;
        writer.apply(records, acked_below).await?;
        made += count;
    }
    let (seconds, end) = (start.elapsed().as_secs_f64(), Instant::now());
    writer.ask(&Request::Visible(())).await?;
    let visible_milliseconds = end.elapsed().as_secs_f64() * 1e3;
    let bytes = match hosts.first().zip(before.first()) {
        Some(((peer, _), before)) => received(peer) - before,
        None => received(&writer.peer) - own,
    };
    for (peer, hearing) in hosts {
        peer.close(CloseCode::Done, "");
        hearing.await.map_err(wrong)??;
    }
    writer.peer.close(CloseCode::Done, "");
    Ok(Figures {
        files_per_second: f64::from(files) / seconds,
        visible_milliseconds,
        #[allow(clippy::cast_precision_loss)]
        megabytes: bytes as f64 / f64::from(1 << 20),
    })
}

/// Answers that it has heard, and lists `directory` again if it `lists`, until the connection is
/// closed.
async fn hear(peer: Peer, directory: Ino, lists: bool) -> Result<()> {
    let calls = peer.calls();
    while let Some(incoming) = calls.accept().await {
        incoming.reply(Reply::Broken(()), Body::Empty).await.map_err(wrong)?;
        if lists && list(&peer, directory).await.is_err() {
            // In the middle of it everything was over.
            return Ok(());
        }
    }
    Ok(())
}

/// Lists `directory`; a promise comes with each page.
async fn list(peer: &Peer, directory: Ino) -> Result<()> {
    let mut after: Option<Name> = None;
    loop {
        let request =
            Request::Readdir(Readdir { ino: directory, after, since: None, limit: PAGE_MAX });
        let answer = peer.call(&request, Body::Empty).await.map_err(wrong)?;
        let Reply::Page(page) = answer.reply else { return Err(wrong("READDIR was not answered")) };
        after = page.entries.last().map(|(name, _)| name.clone());
        if !page.more {
            return Ok(());
        }
    }
}
