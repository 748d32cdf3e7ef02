//! Volumes that are not mounted and whose changes are on this host only: who asks whether all is
//! safe hears of them.

use serde_json::Value;

use crate::tree::noise;
use crate::world::{Ended, World, arg, end, save};

/// Runs `segue WORDS` where only mounts of this test are seen.
fn alone(world: &World, words: &[&str]) -> Ended {
    let mut command = world.a.command("sh");
    command.args([arg(&world.alone()), env!("CARGO_BIN_EXE_segue")]);
    end(command.args(words))
}

/// Asks every command that says whether all is safe.
fn asked(world: &World) -> (Option<i32>, Option<i32>, Value) {
    let [status, sync] = [["status"], ["sync"]].map(|words| alone(world, &words));
    let log = alone(world, &["log", "--all", "--json"]);
    let records: Value = serde_json::from_str(&log.out).unwrap_or_else(|_| panic!("{log:?}"));
    assert_eq!(status.code == Some(7), status.out.contains("not mounted"), "{status:?}");
    assert_eq!(sync.code == Some(6), sync.err.contains("not mounted"), "{sync:?}");
    (status.code, sync.code, records["records"].clone())
}

/// After an unmount that left changes every command had said that all is safe.
/// Proves S12.12.
#[test]
fn what_an_unmount_leaves_is_told() {
    let Some(world) = World::new() else { return };
    let elsewhere = world.local("elsewhere");
    let options = [String::new(), format!("cache-dir={}", elsewhere.display())];
    for (round, options) in options.iter().enumerate() {
        let mut mount = world.mount_with(&world.a, options);
        save(&mount.path().join(format!("sent{round}")), b"text").unwrap();
        mount.sync().unwrap();
        world.a.link_down().unwrap();
        world.lose_link(&world.a, &mount);
        let left = mount.path().join(format!("left{round}"));
        save(&left, &noise(1, 1 << 20)).unwrap();
        mount.umount(&["--now"]).unwrap();
        drop(mount);
        let (status, sync, records) = asked(&world);
        assert_eq!((status, sync), (Some(7), Some(6)));
        let store = records.as_array().unwrap().iter().find(|one| one["bytes"] == 1 << 20);
        let path = store.unwrap()["path"].as_str().unwrap();
        assert!(path.starts_with("segue://") && path.ends_with(&format!("/home/left{round}")));
        let text = alone(&world, &["log"]);
        assert!(!text.out.contains("every change") && text.err.contains("not mounted"), "{text:?}");
        let status: Value =
            serde_json::from_str(&alone(&world, &["status", "--json"]).out).unwrap();
        let unmounted = &status["unmounted"][0];
        assert_eq!(unmounted["pending_bytes"], 1 << 20, "{unmounted}");
        let of_elsewhere = unmounted["cache"].as_str().unwrap().starts_with(arg(&elsewhere));
        assert_eq!(of_elsewhere, round == 1);
        world.a.link_up().unwrap();
        let mut mount = world.mount_with(&world.a, options);
        mount.sync().unwrap();
        mount.umount(&[]).unwrap();
        drop(mount);
        assert_eq!(asked(&world), (Some(0), Some(0), Value::Array(Vec::new())));
    }
}
