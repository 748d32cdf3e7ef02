//! One line of outcome for each experiment, from the lines that its run has written.
//!
//! Each compares Segue with the best of the others in the same run, or with its target.

use serde_json::Value;

use crate::spread::{Spread, grouped, median};

const SEGUE: &str = "segue";

/// Sums up the lines of a run.
type Outcome = fn(&[Value]) -> String;

/// Experiments that sum themselves up, by name; the others are workloads.
const OUTCOMES: [(&str, Outcome); 17] = [
    ("atp-latency", atp_latency),
    ("beside", shares),
    ("dense", dense),
    ("edit-big", edit_big),
    ("fuse-floor", fuse_floor),
    ("mfs-fig2", mfs_fig2),
    ("mfs-fig4", mfs_fig4),
    ("mfs-fig5", mfs_fig5),
    ("mfs-fig7a", mfs_fig7a),
    ("mfs-table2", mfs_table2),
    ("mfs-table2-shared", mfs_table2),
    ("mfs-table3", mfs_table3),
    ("rpc-speed", rpc_speed),
    ("small-writes", small_writes),
    ("store", store),
    ("storm", storm),
    ("train", train),
];

/// The outcome of a run of `experiment`.
pub(super) fn outcome(experiment: &str, lines: &[Value]) -> String {
    let known = OUTCOMES.iter().find(|(name, _)| *name == experiment);
    let text = known.map_or_else(|| workloads(lines), |(_, of)| of(lines));
    if text.is_empty() { "no figures".into() } else { text }
}

/// How often each was measured, and at which share of the standard size.
pub(super) fn runs(lines: &[Value]) -> String {
    let repeats = lines.iter().filter_map(|line| line.get("repeat")?.as_u64()).max();
    let scale = lines.first().and_then(|line| line.get("scale")?.as_f64());
    let scale = scale.filter(|scale| *scale != 1.0).map(|scale| format!(" at {scale}"));
    format!("{}{}", repeats.unwrap_or(1), scale.unwrap_or_default())
}

/// The values of a field, in the order of first appearance.
pub(super) fn distinct(lines: &[Value], field: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in lines {
        let word = word(line, field);
        if line.get(field).is_some() && !all.contains(&word) {
            all.push(word);
        }
    }
    all
}

fn word(line: &Value, field: &str) -> String {
    match line.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// A field in each line that has these values in others.
fn spread(lines: &[Value], with: &[(&str, &str)], field: &str) -> Option<Spread> {
    let has_all = |line: &&Value| with.iter().all(|(of, value)| word(line, of) == *value);
    Spread::over(lines.iter().filter(has_all).filter_map(|line| line.get(field)?.as_f64()))
}

fn middle(lines: &[Value], with: &[(&str, &str)], field: &str) -> Option<f64> {
    spread(lines, with, field).map(|spread| spread.median())
}

/// A figure with three digits that count.
fn figure(value: f64) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else if value >= 0.1 {
        2
    } else if value >= 0.01 {
        3
    } else {
        4
    };
    grouped(value, digits)
}

/// Those that are known, separated.
fn listed(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The values of a field that are numbers, in ascending order.
fn numbers(lines: &[Value], field: &str) -> Vec<String> {
    let mut all = distinct(lines, field);
    all.retain(|value| value.parse::<f64>().is_ok());
    all.sort_by_key(|value| value.parse::<f64>().map_or(0, |value| value.to_bits()));
    all
}

/// For each workload, on the run's first link: Segue's seconds, the best peer's, the local disk's.
fn workloads(lines: &[Value]) -> String {
    let link = distinct(lines, "rate_kb_per_s").into_iter().next().unwrap_or_default();
    let peers = || {
        let all = distinct(lines, "file_system").into_iter();
        all.filter(|name| ![SEGUE, "local", "fuse-floor"].contains(&name.as_str()))
    };
    let at = if link == "null" { String::new() } else { format!(" at {link} KB/s") };
    let of = |workload: String| {
        let seconds = |system: &str| {
            let with = [("workload", workload.as_str()), ("file_system", system)];
            middle(lines, &[&with[..], &[("rate_kb_per_s", &link)]].concat(), "seconds")
        };
        let best = peers().filter_map(|peer| Some((seconds(&peer)?, peer)));
        let best = best.min_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut beside: Vec<String> = Vec::new();
        beside.extend(best.map(|(seconds, peer)| format!("{peer} {}", figure(seconds))));
        beside.extend(seconds("local").map(|seconds| format!("local {}", figure(seconds))));
        let beside = beside.join(", ");
        let beside = if beside.is_empty() { beside } else { format!(" ({beside})") };
        Some(format!("`{workload}` {} s{at}{beside}", figure(seconds(SEGUE)?)))
    };
    listed(distinct(lines, "workload").into_iter().map(of))
}

/// The name of the field that tells systems apart in samples.
fn system_field(lines: &[Value]) -> &'static str {
    if distinct(lines, "system").is_empty() { "file_system" } else { "system" }
}

/// How many times as fast `system` is as `base`, over all tests of both.
fn beside(lines: &[Value], system: &str, base: &str) -> Option<String> {
    let field = system_field(lines);
    let is_cost = |unit: &str| !unit.ends_with("/s");
    let mut ratios = Vec::new();
    for test in distinct(lines, "test") {
        let of = |name: &str| middle(lines, &[("test", &test), (field, name)], "figure");
        let unit = lines.iter().find(|line| word(line, "test") == test);
        let unit = unit.map(|line| word(line, "unit")).unwrap_or_default();
        if let Some((own, other)) = of(system).zip(of(base)) {
            ratios.push(if is_cost(&unit) { other / own } else { own / other });
        }
    }
    let count = ratios.len();
    let ratios = Spread::over(ratios.into_iter())?;
    let [median, least, greatest] =
        [ratios.median(), ratios.least(), ratios.greatest()].map(figure);
    Some(format!("`{system}` ×{median} as fast as {base} ({least}-{greatest}, {count} tests)"))
}

/// Changes a second by how many are in flight, and bytes.
fn store(lines: &[Value]) -> String {
    const TESTS: [(&str, &str); 5] = [
        ("changes, one in flight", "changes/s one by one"),
        ("changes, 16 clients, one in flight each", "of 16 clients"),
        ("changes, 4 clients, 256 in flight each", "1,024 in flight"),
        ("upload new data", "MB/s up"),
        ("read data", "MB/s down"),
    ];
    let of = |(test, words): (&str, &str)| {
        let rate = |system| middle(lines, &[("system", system), ("test", test)], "figure");
        let sqlite = rate("sqlite").map(|rate| format!(" (sqlite {})", figure(rate)));
        Some(format!("{words} {}{}", figure(rate(SEGUE)?), sqlite.unwrap_or_default()))
    };
    listed(TESTS.map(of))
}

fn fuse_floor(lines: &[Value]) -> String {
    let bindings = ["binding", "binding-passthrough"];
    listed(bindings.map(|system| beside(lines, system, "fuser")))
}

fn dense(lines: &[Value]) -> String {
    let of = |test: &str, unit: &str| {
        let figure = middle(lines, &[("test", test)], "figure").map(figure)?;
        Some(format!("{test} {figure} {unit}"))
    };
    listed([of("upload", "MB/s"), of("read and compare", "MB/s"), of("check", "MB/s")])
}

fn storm(lines: &[Value]) -> String {
    let of = |way: String| {
        let figure =
            middle(lines, &[("system", &way), ("test", "files made")], "figure").map(figure)?;
        Some(format!("`{way}` {figure}"))
    };
    let ways = listed(distinct(lines, "system").into_iter().map(of));
    if ways.is_empty() { ways } else { format!("files made a second: {ways}") }
}

/// The least and the most of each system's shares.
fn shares(lines: &[Value]) -> String {
    let of = |system: String| {
        let tests = distinct(lines, "test").into_iter();
        let shares = tests
            .filter_map(|test| middle(lines, &[("test", &test), ("system", &system)], "figure"));
        let shares: Vec<f64> = shares.collect();
        let (least, most) =
            (shares.iter().copied().reduce(f64::min)?, shares.into_iter().reduce(f64::max)?);
        Some(format!("`{system}` {} to {}", figure(least), figure(most)))
    };
    let systems = listed(distinct(lines, "system").into_iter().map(of));
    if systems.is_empty() { systems } else { format!("percent of the link: {systems}") }
}

/// For each size of file, the dearest change of each system.
fn edit_big(lines: &[Value]) -> String {
    let of = |size: &str| {
        let dearest = |system: String| {
            let tests = distinct(lines, "test").into_iter().filter(|test| test.starts_with(size));
            let costs = tests.filter_map(|test| {
                middle(lines, &[("test", &test), ("system", &system)], "figure")
            });
            Some(format!("{system} {} KB", figure(costs.reduce(f64::max)?)))
        };
        let systems: Vec<String> =
            distinct(lines, "system").into_iter().filter_map(dearest).collect();
        (!systems.is_empty())
            .then(|| format!("`{size}`, dearest change of 1 KB: {}", systems.join(", ")))
    };
    listed(["64 MB", "1 GB"].map(of))
}

/// On how many links the 99th of 100 questions is in time.
fn atp_latency(lines: &[Value]) -> String {
    let fields = ["rate_kb_per_s", "rtt_ms", "queue_seconds", "direction"];
    let of = |system: String| {
        let mine: Vec<&Value> =
            lines.iter().filter(|line| word(line, "system") == system).collect();
        // A file system asks more than one question at a time: it has no target.
        let is_call = mine.iter().any(|line| {
            ["up_share", "down_share"]
                .iter()
                .any(|share| line.get(share).is_some_and(Value::is_f64))
        });
        let mut links: Vec<Vec<String>> = Vec::new();
        for line in mine {
            let link: Vec<String> = fields.iter().map(|field| word(line, field)).collect();
            if !links.contains(&link) {
                links.push(link);
            }
        }
        let is_met = |link: &&Vec<String>| {
            let mut with: Vec<(&str, &str)> =
                fields.iter().copied().zip(link.iter().map(String::as_str)).collect();
            with.push(("system", &system));
            let trip = middle(lines, &with, "p99_ms");
            trip.zip(middle(lines, &with, "target_ms")).is_some_and(|(trip, most)| trip <= most)
        };
        let met = links.iter().filter(is_met).count();
        is_call.then(|| format!("`{system}` on {met} of {}", links.len()))
    };
    let systems = listed(distinct(lines, "system").into_iter().map(of));
    if systems.is_empty() { systems } else { format!("links with p99 in time: {systems}") }
}

fn mfs_fig2(lines: &[Value]) -> String {
    let of = |name: &str, field: &str| middle(lines, &[("application", name)], field);
    let sent = |name: &str| of(name, "message_bytes");
    let times = sent("modeless").zip(sent("modal")).map(|(modeless, modal)| {
        format!("modeless sends {:.2} times the bytes of modal (target 1.17)", modeless / modal)
    });
    let used = of("modeless", "utilization");
    listed([times, used.map(|used| format!("uses {used:.3} of the link (target 0.97)"))])
}

fn mfs_fig4(lines: &[Value]) -> String {
    let rates = numbers(lines, "rate_kb_per_s");
    let Some(slowest) = rates.first() else { return String::new() };
    let of = |system: String| {
        let system_and_rate = [("system", system.as_str()), ("rate_kb_per_s", slowest)];
        let with = [&system_and_rate[..], &[("promises", "held"), ("test", "GW")]].concat();
        Some(format!("`{system}` {}", figure(middle(lines, &with, "foreground_seconds")?)))
    };
    let systems = listed(distinct(lines, "system").into_iter().map(of));
    if systems.is_empty() {
        return systems;
    }
    format!("seconds of grep beside a write at {slowest} KB/s: {systems}")
}

/// The last read at the slowest rate, with priorities and asynchronous writes, and without.
fn mfs_fig5(lines: &[Value]) -> String {
    let rates = numbers(lines, "rate_kb_per_s");
    let Some(slowest) = rates.first() else { return String::new() };
    let of = |trace: String| {
        let last = |system: &str| {
            let with = [("trace", trace.as_str()), ("system", system), ("rate_kb_per_s", slowest)];
            middle(lines, &with, "last_read_seconds").map(figure)
        };
        // Earlier runs have the second one.
        let bases = ["close-uniform", "sync-uniform"];
        let (base, seconds) = bases.into_iter().find_map(|base| Some((base, last(base)?)))?;
        Some(format!("`{trace}` {} ({base} {seconds})", last("async-priorities")?))
    };
    let traces = listed(distinct(lines, "trace").into_iter().map(of));
    if traces.is_empty() {
        traces
    } else {
        format!("seconds to the last read at {slowest} KB/s: {traces}")
    }
}

fn mfs_fig7a(lines: &[Value]) -> String {
    let count = |line: &Value, field: &str| -> f64 {
        let seconds = line.get("seconds").and_then(Value::as_array);
        let counts = seconds.into_iter().flatten().filter_map(|second| second.get(field)?.as_f64());
        counts.sum()
    };
    let of = |system: String| {
        let mine = || lines.iter().filter(|line| word(line, "system") == system);
        let (late, calls): (f64, f64) = (
            mine().map(|line| count(line, "late")).sum(),
            mine().map(|line| count(line, "calls")).sum(),
        );
        let used = middle(lines, &[("system", &system)], "utilization")?;
        let late = 100.0 * late / calls.max(1.0);
        Some(format!("`{system}` {late:.1} % of questions late, {used:.2} of the link used"))
    };
    listed(distinct(lines, "system").into_iter().map(of))
}

/// For each test the worst ratio over all rates: the foreground beside the background to its time
/// alone.
fn mfs_table2(lines: &[Value]) -> String {
    const SYSTEM: &str = "async-priorities";
    let mut worst: Vec<(String, f64, String)> = Vec::new();
    for (test, alone) in [("GC", "grep"), ("GW", "grep"), ("RC", "read"), ("RW", "read")] {
        for promises in distinct(lines, "promises") {
            let ratio = |rate: &String| {
                let of = |test: &str| {
                    let with: [(&str, &str); 4] = [
                        ("test", test),
                        ("promises", &promises),
                        ("system", SYSTEM),
                        ("rate_kb_per_s", rate),
                    ];
                    middle(lines, &with, "foreground_seconds")
                };
                Some((of(test)? / of(alone)?, rate.clone()))
            };
            let rates = numbers(lines, "rate_kb_per_s");
            let most = rates.iter().filter_map(ratio).max_by(|(a, _), (b, _)| a.total_cmp(b));
            let mark = if promises == "expired" { " expired" } else { "" };
            worst.extend(most.map(|(ratio, rate)| (format!("{test}{mark}"), ratio, rate)));
        }
    }
    let text = |(test, ratio, rate): &(String, f64, String)| {
        Some(format!("`{test}` ×{ratio:.2} at {rate} KB/s"))
    };
    let tests = listed(worst.iter().map(text));
    if tests.is_empty() {
        return tests;
    }
    format!(
        "{SYSTEM}, worst foreground beside a background, of its time alone (target 1.1): {tests}"
    )
}

fn mfs_table3(lines: &[Value]) -> String {
    let of = |trace: String| {
        let bytes = |field| middle(lines, &[("trace", &trace)], field);
        let [read, written] =
            [bytes("read_bytes")?, bytes("written_bytes")?].map(|bytes| bytes / 1048576.0);
        Some(format!("`{trace}` reads {read:.2} MB and writes {written:.2} MB"))
    };
    listed(distinct(lines, "trace").into_iter().map(of))
}

fn rpc_speed(lines: &[Value]) -> String {
    let of = |load: String| {
        let rate = |system: &str| middle(lines, &[("system", system), ("load", &load)], "rate");
        let best = ["quinn", "sshfs"].map(|peer| Some(format!("{peer} {}", figure(rate(peer)?))));
        let best = best.into_iter().flatten().collect::<Vec<_>>().join(", ");
        Some(format!("`{load}` {} ({best})", figure(rate(SEGUE)?)))
    };
    let loads = listed(distinct(lines, "load").into_iter().map(of));
    if loads.is_empty() { loads } else { format!("calls or MB a second: {loads}") }
}

/// For each workload, the wait on the link with the longest round trip, of that on an unlimited
/// link.
fn small_writes(lines: &[Value]) -> String {
    let trips = numbers(lines, "rtt_ms");
    let Some(longest) = trips.last() else { return String::new() };
    let of = |workload: String| {
        let seconds = |rtt: &str| {
            let with = [("workload", workload.as_str()), ("system", SEGUE), ("rtt_ms", rtt)];
            middle(lines, &with, "seconds")
        };
        Some(format!("`{workload}` ×{:.2}", seconds(longest)? / seconds("null")?))
    };
    let workloads = listed(distinct(lines, "workload").into_iter().map(of));
    if workloads.is_empty() {
        return workloads;
    }
    format!("wait at {longest} ms of that on an unlimited link (target 1.2): {workloads}")
}

fn train(lines: &[Value]) -> String {
    let sum =
        |field: &str| -> f64 { lines.iter().filter_map(|line| line.get(field)?.as_f64()).sum() };
    let used = |way: usize| {
        let share = |line: &Value| line.get("utilization")?.get(way)?.as_f64();
        median(lines.iter().filter_map(share))
    };
    let Some((up, down)) = used(0).zip(used(1)) else { return String::new() };
    let lost = (sum("acknowledged") - sum("arrived")).max(0.0);
    format!(
        "{lost:.0} of {} acknowledged messages lost, {:.0} damaged, {:.0} calls failed, {up:.2} up \
         and {down:.2} down of the link used",
        grouped(sum("acknowledged"), 0),
        sum("damaged"),
        sum("failed")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_workload_stands_beside_the_best_peer() {
        let line = |system: &str, seconds: f64| {
            json!({"workload": "untar", "file_system": system, "rate_kb_per_s": 64,
                "seconds": seconds})
        };
        let lines = [
            line("segue", 1.0),
            line("segue", 2.0),
            line("segue", 4.0),
            line("sshfs", 30.0),
            line("rclone", 20.0),
            line("local", 0.01),
        ];
        let text = outcome("untar+small-files", &lines);
        assert_eq!(text, "`untar` 2.00 s at 64 KB/s (rclone 20.0, local 0.010)");
    }

    #[test]
    fn a_foreground_is_told_at_its_worst_rate() {
        let line = |test: &str, rate: u32, seconds: f64| {
            json!({"test": test, "promises": "held", "system": "async-priorities",
                "rate_kb_per_s": rate, "foreground_seconds": seconds})
        };
        let lines = [
            line("RW", 64, 12.0),
            line("read", 64, 10.0),
            line("RW", 512, 3.0),
            line("read", 512, 2.0),
        ];
        let text = outcome("mfs-table2", &lines);
        assert!(text.ends_with(": `RW` ×1.50 at 512 KB/s"), "{text}");
    }

    #[test]
    fn links_with_answers_in_time_are_counted() {
        let line = |rate: f64, p99: f64| {
            json!({"system": "segue", "rate_kb_per_s": rate, "rtt_ms": 1, "queue_seconds": 0.4,
                "direction": "up", "target_ms": 60.0, "p99_ms": p99, "up_share": 0.9})
        };
        let lines = [line(64.0, 70.0), line(64.0, 50.0), line(128.0, 61.0), line(64.0, 55.0)];
        assert_eq!(outcome("atp-latency", &lines), "links with p99 in time: `segue` on 1 of 2");
    }

    #[test]
    fn ratios_over_all_tests_take_costs_the_other_way() {
        let line = |system: &str, of: [&str; 2], figure: f64| {
            let [test, unit] = of;
            json!({"system": system, "test": test, "unit": unit, "figure": figure})
        };
        let lines = [
            line("binding", ["stat", "files/s"], 300.0),
            line("fuser", ["stat", "files/s"], 100.0),
            line("binding", ["OPEN", "microseconds"], 10.0),
            line("fuser", ["OPEN", "microseconds"], 10.0),
        ];
        let text = outcome("fuse-floor", &lines);
        assert_eq!(text, "`binding` ×2.00 as fast as fuser (1.00-3.00, 2 tests)");
    }

    #[test]
    fn a_run_without_figures_says_so() {
        for (name, _) in OUTCOMES {
            assert_eq!(outcome(name, &[]), "no figures");
        }
        assert_eq!(outcome("untar", &[json!({"error": "gone"})]), "no figures");
    }
}
