//! `link=background`: a mount takes of a link what other traffic leaves.

use std::thread;

use segue_bed::{LinkSpec, TcpFlow};

use crate::tree::{hash, hash_of, noise};
use crate::world::{CLOSE, World, arg, eventually, json, save, segue};

const KB: u64 = 1 << 10;

#[test]
fn a_download_of_another_program_goes_first_and_then_the_mount_has_the_link() {
    let Some(world) = World::new() else { return };
    let bytes = noise(1, 8_000_000);
    let other = world.mount_with(&world.b, CLOSE);
    save(&other.path().join("file"), &bytes).unwrap();
    let link = LinkSpec { queue: Some(400 * KB), ..LinkSpec::kb_per_s(1024) };
    world.a.set_link(link).unwrap();
    let mount = world.mount_with(&world.a, "link=background");
    let point = arg(mount.path());
    assert_eq!(json(&world.a, &["bwlimit", point])["background"], true);
    let status = segue(&world.a, &["status", point]).out;
    assert!(status.contains("after all other traffic\n"), "{status}");

    let file = mount.path().join("file");
    let reader = thread::spawn(move || hash(&file));
    let ours = || {
        json(&world.a, &["status", point])["mounts"][0]["link"]["received_bytes"].as_u64().unwrap()
    };
    eventually("the mount has the link", || ours() > 500_000);
    let download = TcpFlow::begin(&world.serving, &world.a, "cubic").unwrap();
    // TCP's start takes the first second.
    eventually("the download has its share", || download.received() > 1_500_000);
    let before = (ours(), download.received());
    eventually("the download goes on", || download.received() > before.1 + 3_000_000);
    let (ours, theirs) = (ours() - before.0, download.received() - before.1);
    assert!(4 * ours < theirs, "{ours} beside {theirs}");
    drop(download);
    assert_eq!(reader.join().unwrap(), hash_of(&bytes));
}
