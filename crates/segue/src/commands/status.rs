//! `segue status`: the mounts at a glance.

use std::path::PathBuf;
use std::time::Duration;

use segue_client::control::types::{State, Status};
use serde_json::json;

use super::{Context, block_on};
use crate::exit::{Exit, Failure, Outcome};
use crate::http::HttpError;
use crate::{control, output, quantity};

const WATCH_PERIOD: Duration = Duration::from_secs(1);
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Show the mounts, their links, and what is not on the server yet
///
/// The exit code is 7 if the server has refused changes, which are then kept here only.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it [default: all mounts]
    mountpoint: Option<PathBuf>,
    /// Answer in JSON; with --watch one line each second
    #[arg(long)]
    json: bool,
    /// Again every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue status
  segue status ~/home --watch
  segue status --json | jq '.mounts[].unsafe_bytes'";

/// Shows the mounts once, or until Ctrl-C.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    loop {
        let exit = show(arguments, context)?;
        if !arguments.watch {
            return Ok(exit);
        }
        std::thread::sleep(WATCH_PERIOD);
    }
}

fn show(arguments: &Arguments, context: &Context) -> Outcome {
    let mut statuses = Vec::new();
    let mut exit = Exit::Done;
    let mounts = control::chosen(arguments.mountpoint.as_deref())?;
    for mount in &mounts {
        let answer: Result<Status, HttpError> = block_on(async {
            Ok(match control::connect(&context.places, mount).await {
                Ok(connection) => connection.get("/v1/status").await,
                Err(error) => Err(error),
            })
        })?;
        match answer {
            Ok(status) => statuses.push(status),
            Err(error) => {
                let failure: Failure = control::unanswered(mount, &error);
                output::note(&failure.to_string());
                exit = failure.exit;
            }
        }
    }
    if statuses.iter().any(|status| status.refused > 0) {
        exit = Exit::DataAtRisk;
    }
    if arguments.json {
        output::print_json(&json!({ "mounts": statuses }))?;
        return Ok(exit);
    }
    let mut text = String::new();
    if arguments.watch {
        text.push_str(CLEAR_SCREEN);
    }
    if mounts.is_empty() {
        text.push_str("no volume is mounted here ('segue help mount' tells how)\n");
    }
    statuses.iter().for_each(|status| text.push_str(&describe(status)));
    output::print(&text)?;
    Ok(exit)
}

fn describe(status: &Status) -> String {
    let mut text = format!("{}\n", status.mountpoint);
    let mut line = |name: &str, words: String| {
        text.push_str(&format!("  {name:<9}  {words}\n"));
    };
    line("volume", status.url.clone());
    line("link", link(status));
    line("to send", to_send(status));
    if status.refused > 0 {
        let refused = quantity::count(status.refused, "change");
        line("refused", format!("{refused} that the server did not take, kept on this host only"));
    }
    if status.conflicts > 0 {
        line("conflicts", quantity::count(status.conflicts, "conflict copy").replace("ys", "ies"));
    }
    line("cache", cache(status));
    text
}

fn link(status: &Status) -> String {
    let state = match status.state {
        State::Online => "online",
        State::Offline if status.reason.is_empty() => return "offline".to_owned(),
        State::Offline => return format!("offline: {}", status.reason),
        State::Readonly => "online, read-only",
    };
    let rate = |bytes: u64, way: &str| match bytes {
        0 => None,
        bytes => Some(format!("{}/s {way}", quantity::bytes(bytes))),
    };
    let round_trip = format!("round trip {:.1} ms", status.rtt_seconds * 1_000.0);
    let up = rate(status.bandwidth_up, "up");
    let down = rate(status.bandwidth_down, "down");
    let parts = [Some(state.to_owned()), up, down, Some(round_trip)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn to_send(status: &Status) -> String {
    if status.log_records == 0 {
        return "nothing, the server has every change".to_owned();
    }
    let oldest = Duration::try_from_secs_f64(status.unsafe_oldest_seconds).unwrap_or_default();
    let queued: Vec<String> = status
        .queued
        .iter()
        .filter(|class| class.queued_bytes > 0)
        .map(|class| format!("{} {}", class.class, quantity::bytes(class.queued_bytes)))
        .collect();
    let classes =
        if queued.is_empty() { String::new() } else { format!("; queued: {}", queued.join(", ")) };
    format!(
        "{}, {} of data, the oldest {} old{classes}",
        quantity::count(status.log_records, "change"),
        quantity::bytes(status.unsafe_bytes),
        quantity::age(oldest),
    )
}

fn cache(status: &Status) -> String {
    let used = quantity::bytes(status.cache_bytes);
    match status.cache_limit_bytes {
        0 => format!("{used} on this host"),
        limit => format!("{used} of {} on this host", quantity::bytes(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_described_in_words() {
        let status = Status {
            mountpoint: "/home/a/m".to_owned(),
            url: "segue://h/home".to_owned(),
            state: State::Online,
            bandwidth_up: 1 << 20,
            rtt_seconds: 0.02,
            log_records: 2,
            unsafe_bytes: 2_048,
            unsafe_oldest_seconds: 61.0,
            conflicts: 2,
            refused: 1,
            ..Status::default()
        };
        let text = describe(&status);
        for expected in [
            "/home/a/m\n",
            "online, 1.0 MB/s up, round trip 20.0 ms\n",
            "2 changes, 2.0 KB of data, the oldest 1 min old\n",
            "1 change that the server did not take",
            "2 conflict copies\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in {text}");
        }
    }
}
