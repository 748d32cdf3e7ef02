//! The start of a server, beside commands that open its data directory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use segue_bed::{run, run_detaching};

use crate::world::{Ended, World, arg, eventually, segue};

/// A server that started while a command ran had failed: a job that looked at it at boot kept it
/// down.
/// Proves S18.9.
#[test]
fn a_server_starts_beside_commands_and_they_succeed() {
    let Some(mut world) = World::new() else { return };
    let (serving, data) = (world.serving.clone(), world.server.data().to_owned());
    for round in 0..5 {
        world.server.kill9().unwrap();
        let (asked, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
        let list = || {
            let mut failed: Vec<Ended> = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let ended = segue(&serving, &["volume", "list", "--data", arg(&data)]);
                failed.extend((ended.code != Some(0)).then_some(ended));
                asked.fetch_add(1, Ordering::Relaxed);
            }
            failed
        };
        let (started, failed) = thread::scope(|scope| {
            let lists = [(); 2].map(|()| scope.spawn(list));
            eventually("commands run", || asked.load(Ordering::Relaxed) > 4);
            let started = world.server.restart();
            let before = asked.load(Ordering::Relaxed);
            eventually("commands run on", || asked.load(Ordering::Relaxed) > before + 4);
            ends.store(true, Ordering::Relaxed);
            let failed: Vec<Ended> =
                lists.into_iter().flat_map(|list| list.join().unwrap()).collect();
            (started, failed)
        });
        started.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(failed.is_empty(), "round {round}: {failed:?}");
    }
}

/// A daemon had kept open whatever the shell had open that started it.
#[test]
fn a_daemon_keeps_no_file_of_its_shell() {
    let Some(world) = World::new() else { return };
    let mut first = world.mount(&world.a);
    let file = first.path().join("file");
    let second = world.a.mkdir("second").unwrap();
    let script = "exec 7> \"$1\"; shift; \"$@\"";
    let mut command = world.a.command("sh");
    let cache = world.a.dir().join("second-cache");
    let option = format!("cache-dir={}", cache.display());
    let url = world.url(&world.a);
    command.args(["-euc", script, "sh", arg(&file), env!("CARGO_BIN_EXE_segue"), "mount"]);
    command.args([&url, arg(&second), "-o", &option]);
    run_detaching(&mut command, &world.a.dir().join("second.log")).unwrap();
    first.umount(&[]).unwrap();
    run(world.a.command("segue").args(["umount", arg(&second)])).unwrap();
}

/// A server that cannot have its data directory says which process has it, and by which command.
/// Proves S18.9.
#[test]
fn a_second_server_names_the_first() {
    let Some(mut world) = World::new() else { return };
    let (pid, data) = (world.server.process().pid(), arg(world.server.data()).to_owned());
    let ended = segue(&world.serving, &["serve", "--data", &data, "--listen", "127.0.0.1:0"]);
    let (process, command) = (format!("in use by process {pid} ("), format!("serve --data {data}"));
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains(&process) && ended.err.contains(&command), "{ended:?}");
    let listed = segue(&world.serving, &["volume", "list", "--data", &data]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
}
