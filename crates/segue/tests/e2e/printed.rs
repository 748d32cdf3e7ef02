//! Names that would steer a terminal, or look like lines of their own: what is printed of them.

use std::fs;

use serde_json::Value;

use crate::conflicts::apart;
use crate::world::{Ended, World, arg, save, segue, sh, wait_for_state};

const NAME: &str = "a\x1b[2J\nsegue: all is safe\x07\r\u{202e}txt\u{9b}2J";
/// Where caches and logs are, below the home directory.
const STATE: &str = ".local/state/segue";
const LINE: &str = "segue: all is safe";

/// Fails if `text` does something to a terminal, or has a line that a name made.
fn check(from: &str, text: &str) {
    let turns = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let found = text.chars().find(|&c| c != '\n' && (c.is_control() || turns(c)));
    assert_eq!(found, None, "{from} prints it: {text:?}");
    let line = text.lines().find(|line| line.trim_start().starts_with(LINE));
    assert_eq!(line, None, "{from} prints a line of its own: {text:?}");
}

/// The same for a command, which must print the name.
fn checked(ended: Ended, args: &[&str]) -> Ended {
    let from = format!("{args:?}");
    check(&from, &ended.out);
    check(&from, &ended.err);
    let all = format!("{}{}", ended.out, ended.err);
    assert!(all.contains(LINE), "{from} does not print the name: {ended:?}");
    ended
}

fn has(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text.contains(name),
        Value::Array(values) => values.iter().any(|value| has(value, name)),
        Value::Object(values) => values.values().any(|value| has(value, name)),
        _ => false,
    }
}

/// Runs a command on host a, which must print the name.
fn asked(world: &World, args: &[&str]) -> Ended {
    checked(segue(&world.a, args), args)
}

/// The same in JSON, which must mean the name.
fn json(world: &World, args: &[&str]) {
    let args = [args, &["--json"]].concat();
    let ended = asked(world, &args);
    let value: Value = serde_json::from_str(&ended.out).unwrap();
    assert!(has(&value, NAME), "{args:?}: {ended:?}");
}

/// What is printed of changes in the cache directory of host a.
fn check_recovery(world: &World) {
    let mut inside =
        fs::read_dir(world.a.home().join(STATE)).unwrap().map(|entry| entry.unwrap().path());
    let cache = inside.find(|path| path.join("update.log").exists()).unwrap();
    json(world, &["recover", arg(&cache)]);
    asked(world, &["recover", arg(&cache)]);
    let target = world.local("target").join(NAME);
    asked(world, &["recover", arg(&cache), "--to", arg(&target)]);
    assert!(target.join(NAME).exists());
}

/// A name had cleared the terminal of those who listed conflicts, and made lines of a log.
/// Proves S23.7.
#[test]
fn a_name_does_nothing_to_a_terminal_and_to_a_log() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount(&world.b));
    let (file, none) = (a.path().join(NAME), a.path().join(format!("{NAME}-none")));
    save(&file, b"before").unwrap();
    apart(
        &world,
        (&a, &b),
        |a| save(&a.join(NAME), b"ours").unwrap(),
        |b| save(&b.join(NAME), b"theirs").unwrap(),
    );
    let asked = |args: &[&str]| asked(&world, args);
    let json = |args: &[&str]| json(&world, args);
    let (file, none) = (arg(&file).to_owned(), arg(&none).to_owned());
    let outside = world.local(NAME);
    for args in [
        &["conflicts", arg(a.path())][..],
        &["where", &file],
        &["push", &file],
        &["persist", &file, "--lm", "close"],
        &["persist", &file],
    ] {
        if args.len() < 3 {
            json(args);
        }
        asked(args);
    }
    asked(&["why", &file]);
    for args in [
        &["where", &none][..],
        &["why", &none],
        &["push", &none],
        &["persist", &none],
        &["sync", &none],
        &["resolve", &none, "--ours"],
        &["resolve", &file, "--merge=false %A"],
        &["umount", &file],
        &["status", arg(&outside)],
        &["mount", &world.server.url("home"), &none],
        &["recover", &none],
        &["volume", "list", "--data", &none],
    ] {
        let ended = asked(args);
        assert_ne!(ended.code, Some(0), "{args:?}: {ended:?}");
    }
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &a);
    sh(a.path(), &format!("printf more >> '{NAME}'"));
    json(&["log", arg(a.path())]);
    asked(&["log", arg(a.path())]);
    segue(&world.a, &["umount", "--now", arg(a.path())]);
    drop(a);
    check_recovery(&world);
    world.a.link_up().unwrap();
    let a = world.mount(&world.a);
    wait_for_state(&world.a, &a, "online");
    asked(&["resolve", &file, "--theirs"]);
    check("the server's log", &world.server.log());
    for entry in fs::read_dir(world.a.home().join(STATE).join("log")).unwrap() {
        check("a mount's log", &fs::read_to_string(entry.unwrap().path()).unwrap());
    }
}

/// Without control sequences of a terminal.
fn plain(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.trim_start_matches(|c: char| !c.is_ascii_alphabetic()));
    rest.fold(first.to_owned(), |all, part| all + &part.chars().skip(1).collect::<String>())
}

/// The progress of long work takes one line, however narrow the terminal is, with a bar. A pipe
/// gets nothing of it.
/// Proves S12.23.
#[test]
fn progress_takes_one_line_of_the_terminal() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    save(&mount.path().join("file"), &crate::tree::noise(1, 40 << 20)).unwrap();
    mount.sync().unwrap();
    let (program, data) = (world.bed.dir().join("segue"), arg(world.server.data()).to_owned());
    let backup = |to: &str| {
        let (program, to) = (program.display(), world.local(to));
        format!("{program} volume backup home {} --rate 20M --data {data}", to.display())
    };
    let typed = format!("stty cols 40 rows 20; {}", backup("one"));
    let mut command = world.serving.command("script");
    command.args(["-qefc", &typed, "/dev/null"]).env("TERM", "xterm");
    let shown = crate::world::end(&mut command).out;
    let lines: Vec<String> = shown.split(['\r', '\n']).map(plain).collect();
    let bars: Vec<&String> = lines.iter().filter(|line| line.contains('░')).collect();
    assert!(bars.iter().any(|line| line.contains("MiB of")), "{shown:?}");
    assert!(bars.iter().all(|line| line.chars().count() <= 40), "{shown:?}");
    let piped = crate::world::end(world.serving.command("sh").args(["-c", &backup("two")]));
    assert!(!format!("{}{}", piped.out, piped.err).contains(['\x1b', '\r', '░']), "{piped:?}");
}
