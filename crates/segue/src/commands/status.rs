//! `segue status`: the state of the mounts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use segue_client::quantity;
use segue_client::replies::{AwaitedFile, State, Status, Writers};
use serde_json::json;

use super::{Context, block_on, bwlimit};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::pace::Pace;
use crate::rates::Rates;
use crate::{control, output, pace, unmounted};

const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// A process that says nothing for so long hangs; the others are still shown.
const PATIENCE: Duration = Duration::from_secs(5);
/// Files that are being fetched, shown one by one.
const FETCHING_SHOWN: usize = 3;
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Show the mounts, their links, and the changes not yet on the server
///
/// Without a path, the command also lists volumes that are not mounted, if changes in their caches
/// are not on the server.
///
/// The exit code is 7 if changes exist on this host only and nothing is sending them: the server
/// refused them, their volume is not mounted, or the pending data have reached log-max and writes
/// fail. Otherwise it is 4 if a server is unreachable. It is 8 if a server refuses this host, for
/// example because its identity was revoked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it [default: all mounts]
    mountpoint: Option<PathBuf>,
    /// As root: also mounts that only other mount namespaces show
    #[arg(long, conflicts_with = "mountpoint")]
    everyone: bool,
    /// Print JSON; with --watch one line each second
    #[arg(long)]
    json: bool,
    /// Repeat every second until Ctrl-C, with the traffic of that second
    #[arg(long)]
    watch: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue status
  segue status ~/home --watch
  segue status --json | jq '.mounts[].unsafe_bytes'
  segue status --json --watch | jq -c '.mounts[0].link | {time_seconds, sent_bytes}'";

/// Shows the mounts once, or until Ctrl-C.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mut seen = Seen::new();
    loop {
        let (exit, is_read) = show(arguments, context, &mut seen)?;
        if !arguments.watch || !is_read {
            return Ok(exit);
        }
        std::thread::sleep(WATCH_PERIOD);
    }
}

/// The rate of each mount's changes and the traffic of its link, by mountpoint.
type Seen = BTreeMap<String, (Pace, Rates)>;

/// Shows the mounts once. Returns the exit code, and false once stdout has no reader.
fn show(
    arguments: &Arguments,
    context: &Context,
    seen: &mut Seen,
) -> Result<(Exit, bool), Failure> {
    let mounts = match arguments.everyone {
        true => control::of_everyone()?,
        false => control::chosen(arguments.mountpoint.as_deref())?,
    };
    let ask = |mount: &Mount| block_on(status_of(mount, context));
    let (statuses, exit): (Vec<Status>, Exit) = control::each(&mounts, ask);
    let mut exit = statuses.iter().map(exit_of).fold(exit, Exit::max);
    let kept = match arguments.mountpoint {
        None => unmounted::caches(context)?,
        Some(_) => Vec::new(),
    };
    if !kept.is_empty() {
        exit = exit.max(Exit::DataAtRisk);
    }
    if arguments.json {
        let line = output::json_line(&json!({ "mounts": statuses, "unmounted": kept }))?;
        return Ok((exit, output::print_to_reader(&line)?));
    }
    let mut text = String::new();
    if arguments.watch {
        text.push_str(CLEAR_SCREEN);
    }
    if mounts.is_empty() {
        text.push_str("no volume is mounted ('segue help mount' explains how)\n");
    }
    for status in &statuses {
        let now = Instant::now();
        let (pace, rates) = seen.entry(status.mountpoint.clone()).or_default();
        let pace = pace.words(now, status.log_records, status.to_send_bytes);
        text.push_str(&describe(status, &pace));
        for (number, words) in rates.lines(now, &status.link).iter().enumerate() {
            let name = if number == 0 { "now" } else { "" };
            text.push_str(&line(name, words));
        }
    }
    for cache in &kept {
        text.push_str(&format!("{}\n", unmounted::words(cache)));
    }
    Ok((exit, output::print_to_reader(&text)?))
}

pub(super) async fn status_of(mount: &Mount, context: &Context) -> Result<Status, Failure> {
    let asking = control::get(&context.places, mount, "/v1/status");
    control::within(mount, PATIENCE, asking).await
}

/// The exit code for the state of one mount.
fn exit_of(status: &Status) -> Exit {
    match status.state {
        _ if status.denied => Exit::NotPermitted,
        _ if status.refused > 0 || status.writers == Writers::Refused => Exit::DataAtRisk,
        State::Offline => Exit::Offline,
        State::Online | State::Readonly => Exit::Done,
    }
}

/// A line of the report: `name` in a column of its own, then `words`.
fn line(name: &str, words: &str) -> String {
    format!("  {name:<9}  {}\n", output::printable(words, &[]))
}

fn describe(status: &Status, pace: &str) -> String {
    let mut text = format!("{}\n", output::printable(&status.mountpoint, &[]));
    let mut line = |name: &str, words: String| text.push_str(&line(name, &words));
    line("volume", format!("{}, as {} {}", status.url, status.role, status.identity));
    line("link", link(status));
    if let Some(words) = bwlimit::words(&status.bandwidth) {
        line("bwlimit", words);
    }
    line("to send", to_send(status, pace));
    if let Some(words) = writers(status) {
        line("writers", words);
    }
    if status.refused > 0 {
        let refused = quantity::count(status.refused, "change");
        line(
            "refused",
            format!("{refused} refused by the server, or lost; 'segue conflicts' tells why"),
        );
    }
    if status.conflicts > 0 {
        line("conflicts", quantity::count(status.conflicts, "conflict copy").replace("ys", "ies"));
    }
    if status.conflicts_beside > 0 {
        let copies = quantity::count(status.conflicts_beside, "copy").replace("ys", "ies");
        line("conflicts", format!("{copies} of other hosts' changes beside files of this host"));
    }
    line("cache", cache(status));
    for words in fetching(&status.fetching) {
        line("fetching", words);
    }
    if status.promises > 0 {
        let inodes = quantity::count(status.promises, "inode");
        line("promises", format!("the server reports changes of {inodes}"));
    }
    if status.marks > 0 {
        let files = quantity::count(status.marks, "file");
        line("others", format!("{files} changed on other hosts and not sent; an open waits"));
    }
    text
}

/// A line for each of the files that a program waits for, or for the longest waits.
fn fetching(files: &[AwaitedFile]) -> Vec<String> {
    let words = |file: &AwaitedFile| {
        let (here, size) = (quantity::bytes(file.here_bytes), quantity::bytes(file.size));
        let waiting = Duration::try_from_secs_f64(file.seconds).unwrap_or_default();
        let waiting = quantity::age(waiting);
        let AwaitedFile { path, program, pid, .. } = file;
        format!("{path}: {here} of {size} on this host; {program} ({pid}) waits for {waiting}")
    };
    let mut lines: Vec<String> = files.iter().take(FETCHING_SHOWN).map(words).collect();
    if files.len() > FETCHING_SHOWN {
        lines.push(format!("and {} more", files.len() - FETCHING_SHOWN));
    }
    lines
}

fn link(status: &Status) -> String {
    let state = match status.state {
        State::Online => "online",
        State::Offline if status.reason.is_empty() => return "offline".to_owned(),
        State::Offline if status.denied => {
            return format!(
                "the server refuses this host: {}; ask for a new invite (segue invite), or extract \
                 pending changes with 'segue recover'",
                status.reason
            );
        }
        State::Offline => return format!("offline: {}", status.reason),
        State::Readonly => "online, read-only",
    };
    let rate = |bytes: u64, way: &str| match bytes {
        0 => None,
        bytes => Some(format!("{}/s {way}", quantity::bytes(bytes))),
    };
    let round_trip = round_trip(status.rtt_seconds, status.link.base_rtt_seconds);
    let up = rate(status.bandwidth_up, "up");
    let down = rate(status.bandwidth_down, "down");
    // If the server is silent, the last round trip time means nothing.
    let last = if status.reason.is_empty() { round_trip } else { format!("but {}", status.reason) };
    let share = status.bandwidth.background.then(|| "after all other traffic".to_owned());
    let parts = [Some(state.to_owned()), up, down, Some(last), share];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The round trip time, and that of an idle link.
fn round_trip(now: f64, base: f64) -> String {
    let millis = |seconds: f64| seconds * 1_000.0;
    let base = match base {
        0.0 => String::new(),
        base => format!(" ({:.1} ms when idle)", millis(base)),
    };
    format!("round trip {:.1} ms{base}", millis(now))
}

/// The effect of `log-max` on writers now, if any.
fn writers(status: &Status) -> Option<String> {
    let limit = quantity::bytes(status.log_limit_bytes);
    match status.writers {
        Writers::Free => None,
        Writers::Slowed => Some(format!("slowed: pending data are close to log-max ({limit})")),
        Writers::Refused => Some(format!(
            "refused with \"no space left\": pending data have reached log-max ({limit}), and none \
             are being sent"
        )),
    }
}

fn to_send(status: &Status, pace: &str) -> String {
    if status.log_records == 0 && status.unsafe_bytes == 0 {
        return "nothing, the server has every change".to_owned();
    }
    let oldest = Duration::try_from_secs_f64(status.unsafe_oldest_seconds).unwrap_or_default();
    let queued: Vec<String> = status
        .link
        .classes
        .iter()
        .filter(|class| class.queued_bytes > 0)
        .map(|class| format!("{} {}", class.class, quantity::bytes(class.queued_bytes)))
        .collect();
    let mut more = Vec::new();
    // Parts of a large change are on their way long before the change is committed.
    if !pace.is_empty() && (pace != pace::NOTHING || queued.is_empty()) {
        more.push(pace.to_owned());
    }
    if !status.waits_for.is_empty() {
        more.push(format!("waits for {}", status.waits_for));
    }
    if !queued.is_empty() {
        more.push(format!("queued: {}", queued.join(", ")));
    }
    let more: String = more.iter().map(|words| format!("; {words}")).collect();
    format!(
        "{}, {} of data, the oldest {} old{more}",
        quantity::count(status.log_records, "change"),
        quantity::bytes(status.to_send_bytes),
        quantity::age(oldest),
    )
}

fn cache(status: &Status) -> String {
    let used = quantity::bytes(status.cache_bytes);
    let limit = quantity::bytes(status.cache_limit_bytes);
    let short = match status.cache_size_bytes {
        size if size > status.cache_limit_bytes => {
            format!(", not {}: the disk is almost full (cache-min-free)", quantity::bytes(size))
        }
        _ => String::new(),
    };
    let used = match status.cache_is_counted {
        true => format!("{used} on this host"),
        false => format!("at least {used} on this host (the cache is still being counted)"),
    };
    format!("{used}; clean data may take {limit} of it{short}")
}

#[cfg(test)]
mod tests {
    use segue_client::replies::{Bandwidth, LinkReport};

    use super::*;

    /// Proves S15.2.
    #[test]
    fn a_mount_is_described_in_words() {
        let status = Status {
            mountpoint: "/home/a/m".to_owned(),
            url: "segue://h/home".to_owned(),
            identity: "5acbefa37d2d0dce".to_owned(),
            role: "writer".to_owned(),
            state: State::Online,
            bandwidth_up: 1 << 20,
            rtt_seconds: 0.02,
            link: LinkReport { base_rtt_seconds: 0.0155, ..LinkReport::default() },
            bandwidth: Bandwidth { limit_up: Some(1 << 20), ..Bandwidth::default() },
            log_records: 2,
            unsafe_bytes: 4_096,
            to_send_bytes: 2_048,
            unsafe_oldest_seconds: 61.0,
            log_limit_bytes: 4 << 30,
            writers: Writers::Slowed,
            waits_for: "x".to_owned(),
            cache_bytes: 3 << 20,
            cache_is_counted: true,
            cache_limit_bytes: 1 << 30,
            cache_size_bytes: 20 << 30,
            promises: 12,
            marks: 0,
            pulls: 3,
            waits: 2,
            conflicts: 2,
            refused: 1,
            ..Status::default()
        };
        let text = describe(&status, "1.0 MiB/s, about 3 s left");
        for expected in [
            "/home/a/m\n  volume     segue://h/home, as writer 5acbefa37d2d0dce\n",
            "online, 1.0 MiB/s up, round trip 20.0 ms (15.5 ms when idle)\n",
            "  bwlimit    at most 1.0 MiB/s up\n",
            "2 changes, 2.0 KiB of data, the oldest 1 min old; 1.0 MiB/s, about 3 s left; waits \
             for x\n",
            "writers    slowed: pending data are close to log-max (4.0 GiB)\n",
            "1 change refused by the server, or lost",
            "2 conflict copies\n",
            "promises   the server reports changes of 12 inodes\n",
            "3.0 MiB on this host; clean data may take 1.0 GiB of it, not 20.0 GiB: the disk is \
             almost full (cache-min-free)\n",
        ] {
            assert!(text.contains(expected), "{expected:?} in {text}");
        }
        let text = describe(&Status { cache_is_counted: false, ..status }, "");
        assert!(
            text.contains("at least 3.0 MiB on this host (the cache is still being counted)"),
            "{text}"
        );
    }

    /// Proves S20.4.
    #[test]
    fn refused_changes_are_data_at_risk() {
        let exit = |refused, state| exit_of(&Status { state, refused, ..Status::default() });
        assert_eq!(exit(0, State::Online), Exit::Done);
        assert_eq!(exit(1, State::Online), Exit::DataAtRisk);
        assert_eq!(exit(1, State::Offline), Exit::DataAtRisk);
        assert_eq!(Exit::DataAtRisk as u8, 7);
    }

    #[test]
    fn a_silent_server_is_not_shown_as_one_that_answers() {
        let reason = "the server does not answer".to_owned();
        let status =
            Status { state: State::Online, reason, rtt_seconds: 0.02, ..Status::default() };
        let text = describe(&status, "");
        assert!(text.contains("link       online, but the server does not answer\n"), "{text}");
    }
}
