//! What a mount and a server tell while they work: metrics, and data that somebody waits for.

use std::fs;
use std::process::Stdio;

use segue_bed::LinkSpec;

use crate::tree::noise;
use crate::world::{CLOSE, World, arg, eventually, json, measured, segue, wait_for_state};

/// Each value of a mount has its volume. Calls are timed by class and kind, questions are counted
/// as hits and misses, and the bytes that the server lacks by class. A server tells its disk, its
/// hosts, and how old the backup of each volume is.
/// Proves S12.20.
#[test]
fn a_mount_and_a_server_tell_prometheus_how_they_are() {
    let Some(world) = World::new() else { return };
    let writer = world.mount_with(&world.a, CLOSE);
    fs::write(writer.path().join("f"), vec![7; 300_000]).unwrap();
    let reader = world.mount(&world.b);
    let of_reader = || segue(&world.b, &["metrics", arg(reader.path())]).out;
    let misses = |kind| measured(&of_reader(), "segue_cache_misses_total", kind);
    let hits = |kind| measured(&of_reader(), "segue_cache_hits_total", kind);
    assert_eq!(fs::read(reader.path().join("f")).unwrap().len(), 300_000);
    assert!(misses("kind=\"data\"") >= 1.0 && misses("kind=\"name\"") >= 1.0);
    let (before, missed) = (hits("kind=\"data\""), misses("kind=\"data\""));
    fs::read_dir(reader.path()).unwrap().for_each(drop);
    // The pages of the kernel would answer.
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fs::read(reader.path().join("f")).unwrap().len(), 300_000);
    assert_eq!(misses("kind=\"data\""), missed);
    assert!(hits("kind=\"data\"") >= before);

    let text = of_reader();
    let values = text.lines().filter(|line| !line.starts_with('#'));
    assert!(values.clone().count() > 40, "{text}");
    values.for_each(|line| assert!(line.contains("volume=\"home\""), "{line}"));
    assert!(text.ends_with("# EOF\n"), "{text}");
    let fetched = "class=\"fetch\",op=\"Fetch\"";
    assert!(measured(&text, "segue_rpc_seconds_count", fetched) >= 1.0);
    assert!(measured(&text, "segue_rpc_seconds_sum", fetched) > 0.0);

    world.b.link_down().unwrap();
    world.lose_link(&world.b, &reader);
    wait_for_state(&world.b, &reader, "offline");
    fs::write(reader.path().join("g"), vec![8; 50_000]).unwrap();
    let lacking = |name, labels| measured(&of_reader(), name, labels);
    assert_eq!(lacking("segue_unsafe_bytes", "class=\"store-data\""), 50_000.0);
    assert_eq!(lacking("segue_to_send_bytes", ""), 50_000.0);
    assert_eq!(lacking("segue_online", ""), 0.0);
    world.b.link_up().unwrap();
    eventually("the server has it", || lacking("segue_unsafe_bytes", "store-data") == 0.0);

    let data = arg(world.server.data());
    let of_server = || segue(&world.serving, &["metrics", "--server", "--data", data]).out;
    let text = of_server();
    assert_eq!(measured(&text, "segue_server_hosts", "volume=\"home\""), 2.0);
    assert!(measured(&text, "segue_server_disk_free_bytes", "") > 1e6);
    assert!(measured(&text, "segue_server_request_seconds_count", "op=\"Fetch\"") >= 1.0);
    assert!(measured(&text, "segue_server_volume_bytes", "volume=\"home\"") >= 350_000.0);
    assert!(!text.contains("segue_server_backup_age_seconds{"), "there was none: {text}");
    let to = world.local("backup");
    let backup = ["volume", "backup", "home", arg(&to), "--rate", "0", "--data", data];
    let ended = segue(&world.serving, &backup);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let age = measured(&of_server(), "segue_server_backup_age_seconds", "volume=\"home\"");
    assert!((0.0..600.0).contains(&age), "{age}");
}

/// While a program waits for data, `status` and `why` tell which program, for which file, how long,
/// and how much of the file is here.
/// Proves S12.24.
#[test]
fn status_tells_what_a_program_waits_for() {
    let Some(world) = World::new() else { return };
    let writer = world.mount_with(&world.a, CLOSE);
    fs::write(writer.path().join("large"), noise(1, 4 << 20)).unwrap();
    world.b.set_link(LinkSpec::kb_per_s(256)).unwrap();
    let reader = world.mount(&world.b);
    let file = reader.path().join("large");
    let mut copy = world.b.spawn(world.b.command("cat").arg(&file).stdout(Stdio::null())).unwrap();
    let status = || json(&world.b, &["status", arg(reader.path())])["mounts"][0].clone();
    let mut seen = serde_json::Value::Null;
    eventually("a wait of some bytes is told", || {
        seen = status()["fetching"][0].clone();
        seen["here_bytes"].as_u64() > Some(0)
    });
    assert_eq!((&seen["program"], &seen["path"]), (&"cat".into(), &"large".into()), "{seen}");
    assert_eq!(seen["pid"], copy.pid(), "{seen}");
    assert_eq!(seen["size"], 4 << 20, "{seen}");
    assert!(seen["here_bytes"].as_u64() < Some(4 << 20), "{seen}");
    eventually("it is told in words", || {
        let words = segue(&world.b, &["status", arg(reader.path())]).out;
        words.contains("  large: ") && words.contains("of 4.0 MiB on this host; cat (")
    });
    eventually("why knows it, too", || {
        let why = json(&world.b, &["why", arg(&file)]);
        let operations = why["operations"].as_array().unwrap().clone();
        operations.iter().any(|operation| operation["under_way"] == true)
    });
    copy.wait().unwrap();
    assert_eq!(status()["fetching"], serde_json::json!([]));
}
