//! How much of a link a mount takes: `bwlimit`, and what is told of the link.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use segue_bed::segue::SegueMount;
use segue_bed::{Host, LinkSpec};
use segue_client::paths::socket_path;
use serde_json::Value;

use crate::tree::{hash, hash_of, noise};
use crate::world::{CLOSE, World, arg, eventually, failing_mount, json, measured, save, segue, sh};

const KB: u64 = 1 << 10;

/// What a limit lets through in that time, of frames with their own headers: a fiftieth of a second
/// may go at once, and what somebody waits for a quarter of one before it may.
fn most(limit: u64, time: Duration) -> u64 {
    let millis = u64::try_from(time.as_millis()).unwrap() + 270;
    limit * millis / 1000 * 103 / 100 + 10_000
}

/// At least what it takes to move so many bytes at `limit`.
fn least(bytes: u64, limit: u64) -> Duration {
    Duration::from_secs_f64((bytes as f64 / limit as f64 - 0.27).max(0.0))
}

/// Does `work`; the time it took, and bytes on the wire of `host` to the server and from it.
fn measure(host: &Host, work: impl FnOnce()) -> (Duration, u64, u64) {
    let count = || (host.tx_bytes().unwrap(), host.rx_bytes().unwrap());
    let (before, began) = (count(), Instant::now());
    work();
    let (after, time) = (count(), began.elapsed());
    (time, after.0 - before.0, after.1 - before.1)
}

/// What `host` writes is at the server.
fn push(mount: &SegueMount, name: &str, bytes: &[u8]) {
    save(&mount.path().join(name), bytes).unwrap();
    mount.sync().unwrap();
}

fn link(host: &Host, mount: &SegueMount) -> Value {
    json(host, &["status", arg(mount.path())])["mounts"][0]["link"].clone()
}

/// `bwlimit=UP:DOWN` holds in both directions, counted with all headers, also on the connection
/// to a server that was restarted; and what is written and read is whole.
#[test]
fn a_limit_holds_in_both_directions_and_over_a_restart() {
    let Some(mut world) = World::new() else { return };
    let other = world.mount_with(&world.b, CLOSE);
    let (ours, theirs) = (noise(1, 700_000), noise(2, 1_400_000));
    save(&other.path().join("theirs"), &theirs).unwrap();
    save(&other.path().join("later"), &theirs[..700_000]).unwrap();
    let (up, down) = (200 * KB, 400 * KB);
    let mount = world.mount_with(&world.a, "bwlimit=200K:400K");
    let (time, sent, _) = measure(&world.a, || push(&mount, "ours", &ours));
    assert!(sent <= most(up, time), "{sent} in {time:?}");
    assert!(time >= least(700_000, up), "{time:?}");
    let read = |name: &str, bytes: &[u8]| {
        let (time, _, received) = measure(&world.a, || {
            assert_eq!(hash(&mount.path().join(name)), hash_of(bytes));
        });
        assert!(received <= most(down, time), "{received} in {time:?}");
        assert!(time >= least(bytes.len() as u64, down), "{time:?}");
    };
    read("theirs", &theirs);
    world.server.restart().unwrap();
    eventually("there is another connection", || link(&world.a, &mount)["connection"] == 2);
    read("later", &theirs[..700_000]);
    let (time, sent, _) = measure(&world.a, || push(&mount, "more", &ours[..500_000]));
    assert!(sent <= most(up, time), "{sent} in {time:?}");
    assert_eq!(hash(&other.path().join("ours")), hash_of(&ours));
}

/// `segue bwlimit` says what holds and sets it while bytes move: what crawled goes on at once, and
/// what went crawls. A mistake changes nothing.
#[test]
fn a_limit_is_set_while_bytes_move() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let point = arg(mount.path());
    let limits = |value: &[&str]| {
        let said = json(&world.a, &[&["bwlimit", point], value].concat());
        (said["bwlimit"].clone(), said["limit_up"].as_u64(), said["limit_down"].as_u64())
    };
    assert_eq!(limits(&[]), ("off".into(), None, None));
    // An hour's work.
    assert_eq!(limits(&["1K:4K"]), ("1K:4K".into(), Some(KB), Some(4 * KB)));
    let bytes = noise(3, 4_000_000);
    save(&mount.path().join("file"), &bytes).unwrap();
    let stored = || link(&world.a, &mount)["classes"][4]["queued_bytes"].as_u64();
    eventually("it waits for its turn", || stored() > Some(0));
    let wrong = segue(&world.a, &["bwlimit", point, "fast"]);
    assert_eq!(wrong.code, Some(2));
    for words in ["'fast'", "UP:DOWN", "500K:2M", "08:00,500K:2M 18:00,off"] {
        assert!(wrong.err.contains(words), "{words} in {}", wrong.err);
    }
    let status = segue(&world.a, &["status", point]);
    let expected = "bwlimit    at most 1.0 KiB/s up, at most 4.0 KiB/s down\n";
    assert!(status.out.contains(expected), "{}", status.out);
    assert_eq!(limits(&["off"]), ("off".into(), None, None));
    mount.sync().unwrap();

    assert_eq!(limits(&["200K"]), ("200K".into(), Some(200 * KB), Some(200 * KB)));
    let (time, sent, _) = measure(&world.a, || push(&mount, "next", &noise(4, 500_000)));
    assert!(sent <= most(200 * KB, time), "{sent} in {time:?}");
    assert!(time >= least(500_000, 200 * KB), "{time:?}");
}

/// A timetable by flag, environment and file; what it says now is what holds.
#[test]
fn a_timetable_is_a_mount_option() {
    let Some(world) = World::new() else { return };
    let config = world.a.home().join(".config/segue");
    fs::create_dir_all(&config).unwrap();
    // The same all day, so that it does not matter when this runs.
    let table = "00:00,64K:2M 12:00,64K:2M";
    fs::write(config.join("config.toml"), format!("bwlimit = \"{table}\"\n")).unwrap();
    let mut mount = world.mount(&world.a);
    let said = |mount: &SegueMount| json(&world.a, &["bwlimit", arg(mount.path())]);
    assert_eq!(said(&mount)["bwlimit"], table);
    assert_eq!(said(&mount)["limit_up"], 64 * KB);
    mount.umount(&[]).unwrap();
    drop(mount);
    let mount = world.mount_with(&world.a, "bwlimit=00:00,off:1M 12:00,2M,uid=1234");
    let changing = said(&mount);
    assert_eq!(changing["bwlimit"], "00:00,off:1M 12:00,2M");
    assert!(changing["limit_seconds"].as_f64().unwrap() <= 12.0 * 3600.0, "{changing}");
    let down = changing["limit_down"].as_u64().unwrap();
    assert!([1024 * KB, 2048 * KB].contains(&down), "{changing}");
    let words = segue(&world.a, &["bwlimit", arg(mount.path())]).out;
    assert!(words.contains("for another ") && words.contains("(00:00,off:1M 12:00,2M)"), "{words}");
    let point = world.b.mkdir("mnt").unwrap();
    let url = world.url(&world.b);
    let ended = failing_mount(&world.b, &[&url, arg(&point), "-o", "bwlimit=08:00,1M 25:00,off"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("'25:00,off' is not UP:DOWN"), "{}", ended.err);
}

/// `GET path` of the mount's control socket, as a program that plots asks it: so many lines.
fn get(mount: &SegueMount, path: &str, lines: usize) -> String {
    let socket = socket_path(Path::new("/run"), mount.path());
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: segue\r\n\r\n").unwrap();
    let (mut said, mut part) = (String::new(), [0; 4096]);
    loop {
        let body: String = said.lines().filter(|line| line.starts_with('{')).collect();
        let is_error = said.starts_with("HTTP/1.1 4") && said.contains("\r\n\r\n");
        if body.matches("\"time_seconds\"").count() >= lines && body.ends_with('}') || is_error {
            return said;
        }
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0, "it ended: {said}");
        said.push_str(std::str::from_utf8(&part[..count]).unwrap());
    }
}

/// `GET /v1/link` is the link now, with `every` a line for each period; counts grow with what was
/// sent, by class. `status --watch` says them of the last second.
#[test]
fn the_link_is_told_of_for_plots() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    world.a.set_link(LinkSpec::kb_per_s(1024)).unwrap();
    let before = link(&world.a, &mount);
    let (mut after, mut seed) = (Value::Null, 5);
    // A host without a free processor sends in fits and starts, and learns no rate from these.
    eventually("the link's rate is known", || {
        seed += 1;
        push(&mount, "file", &noise(seed, 3_000_000));
        after = link(&world.a, &mount);
        after["rate_up"].as_u64() > Some(0) && after["base_rtt_seconds"].as_f64() > Some(0.0)
    });
    let sent =
        |link: &Value, class: usize, what: &str| link["classes"][class][what].as_u64().unwrap();
    assert!(sent(&after, 4, "sent_bytes") >= sent(&before, 4, "sent_bytes") + 3_000_000, "{after}");
    assert!(sent(&after, 4, "sent_messages") > sent(&before, 4, "sent_messages"), "{after}");
    assert!(after["sent_bytes"].as_u64() > Some(3_000_000), "{after}");
    // After a silence the path is learnt anew; what is told of it is still what it carried.
    std::thread::sleep(Duration::from_secs(3));
    sh(mount.path(), "stat -f . > /dev/null");
    assert!(link(&world.a, &mount)["rate_up"].as_u64() > Some(100_000), "{after}");
    let line =
        |text: &str| text.lines().filter_map(|line| serde_json::from_str(line).ok()).next_back();
    let now: Value = line(&get(&mount, "/v1/link", 1)).unwrap();
    assert_eq!(now["classes"][4]["class"], "store-data");
    let stream = get(&mount, "/v1/link?every=20", 5);
    let times: Vec<f64> = stream
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|line| line["time_seconds"].as_f64())
        .collect();
    assert!(times.len() >= 5 && times.is_sorted(), "{times:?}");
    for wrong in ["/v1/link?every=1", "/v1/link?every=soon"] {
        assert!(get(&mount, wrong, 1).starts_with("HTTP/1.1 400"), "{wrong}");
    }

    let shown = world.local("watch").join("out");
    let mut command = world.a.command("segue");
    command.args(["status", arg(mount.path()), "--watch"]);
    let watching = world.a.spawn(command.stdout(fs::File::create(&shown).unwrap())).unwrap();
    for words in [" when idle)", "/s down\n", "CLASS", "MESSAGES/S", "store-data"] {
        let is_shown = || fs::read_to_string(&shown).unwrap_or_default().contains(words);
        eventually(&format!("{words} is shown"), is_shown);
    }
    drop(watching);
    let metrics = segue(&world.a, &["metrics", arg(mount.path())]).out;
    measured(&metrics, "segue_link_rate_bytes_per_second", "");
    measured(&metrics, "segue_link_sent_messages_total", "class=\"fetch\"");
}

/// `record-calls=FILE` notes each call to the server when it is over: what it was, how it ended,
/// and when it was queued, sent and answered.
#[test]
fn calls_are_noted_in_a_file() {
    let Some(world) = World::new() else { return };
    let notes = world.local("notes").join("calls");
    let mut mount = world.mount_with(&world.a, &format!("record-calls={}", arg(&notes)));
    push(&mount, "file", &noise(6, 300_000));
    mount.umount(&[]).unwrap();
    let text = fs::read_to_string(&notes).unwrap();
    let calls: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| calls.iter().find(|call| call["request"] == name && call["end"] == "ok");
    for (name, class) in [("Hello", "validate"), ("Put", "store-data")] {
        let call = of(name).unwrap_or_else(|| panic!("no {name} in {text}"));
        assert_eq!((&call["class"], &call["side"]), (&class.into(), &"asking".into()));
        let names = ["queued", "sent_first", "sent_last", "reply_first", "reply_last"];
        let times: Vec<f64> = names.iter().map(|name| call[name].as_f64().unwrap()).collect();
        assert!(times.is_sorted(), "{call}");
    }
}
