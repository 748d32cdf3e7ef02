//! Copies that the server makes by reference.

use std::fs;

use crate::tree::{hash, noise};
use crate::world::{World, arg};

/// `cp` of a file that this host has never read: its bytes cross the link in neither direction,
/// and both hosts then read the same.
#[test]
fn a_copy_of_what_is_not_here_moves_no_bytes() {
    let Some(world) = World::new() else { return };
    let bytes = noise(7, 30 << 20);
    let mut mount = world.mount(&world.a);
    fs::write(mount.path().join("source"), &bytes).unwrap();
    mount.umount(&[]).unwrap();

    let mut mount = world.mount(&world.b);
    let (source, copy) = (mount.path().join("source"), mount.path().join("copy"));
    let moved = || world.b.tx_bytes().unwrap() + world.b.rx_bytes().unwrap();
    let before = moved();
    world.b.run("cp", &[arg(&source), arg(&copy)]).unwrap();
    let moved = moved() - before;
    assert!(moved < 1 << 20, "{moved} bytes moved for a copy of {}", bytes.len());
    assert_eq!(hash(&copy), hash(&source));
    // What is changed afterwards is changed in one of them.
    fs::write(&source, b"another").unwrap();
    assert!(fs::read(&copy).unwrap() == bytes);
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.a);
    assert!(fs::read(mount.path().join("copy")).unwrap() == bytes);
    assert_eq!(fs::read(mount.path().join("source")).unwrap(), b"another");
}
