//! `docs/json.md` says what each `--json` prints; every answer here is one of a real world.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use segue_bed::segue::SegueMount;
use segue_bed::{Host, LinkSpec};
use serde_json::Value;

use crate::world::{World, arg, end, eventually, segue, wait_for_state};

/// The fields of an answer, each with the types that it had.
type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// The fields of the answers of each command.
#[derive(Default)]
struct Answers(BTreeMap<String, Shape>);

impl Answers {
    /// Takes in what `command` printed: an object, or an object a line.
    fn take(&mut self, command: &str, printed: &str) {
        let shape = self.0.entry(command.to_owned()).or_default();
        let values = serde_json::Deserializer::from_str(printed).into_iter::<Value>();
        let mut count = 0;
        for value in values {
            let value = value.unwrap_or_else(|error| panic!("{command}: {error}: {printed}"));
            add(shape, String::new(), &value);
            count += 1;
        }
        assert!(count > 0, "{command} printed no JSON: {printed}");
    }

    /// Runs `segue COMMAND ARGS --json` on `host`.
    fn ask(&mut self, host: &Host, command: &str, args: &[&str]) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        let ended = segue(host, &[&words, args, &["--json"]].concat());
        assert!(!ended.out.is_empty(), "{command}: {ended:?}");
        self.take(command, &ended.out);
        ended.out
    }

    /// The same on host a about all mounts of the user, without those of other tests.
    fn ask_alone(&mut self, world: &World, command: &str, args: &[&str]) -> String {
        let mut alone = world.a.command("sh");
        alone.arg(world.alone()).arg(world.bed.dir().join("segue")).arg(command);
        let ended = end(alone.args(args).arg("--json"));
        self.take(command, &ended.out);
        ended.out
    }
}

fn add(shape: &mut Shape, at: String, value: &Value) {
    let kind = match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                add(shape, format!("{at}{dot}{name}"), value);
            }
            return;
        }
        Value::Array(values) => {
            values.iter().for_each(|value| add(shape, format!("{at}[]"), value));
            return;
        }
        Value::Null => "null",
        Value::Bool(_) => "true/false",
        Value::Number(_) => "number",
        Value::String(_) => "text",
    };
    shape.entry(at).or_default().insert(kind);
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")
}

/// What the document says: the types of each field of each command. The title of a section names
/// its commands.
fn documented() -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let text = fs::read_to_string(document()).unwrap();
    let mut found: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    let mut commands: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let quoted = title.split('`').skip(1).step_by(2);
            commands = quoted.map(|name| name.trim_start_matches("segue ").to_owned()).collect();
        } else if let Some(row) = line.strip_prefix("| `") {
            let (name, rest) = row.split_once("` |").unwrap();
            let types = rest.split('|').next().unwrap().trim();
            let types: Vec<String> = types.split(" or ").map(str::to_owned).collect();
            for command in &commands {
                let fields = found.entry(command.clone()).or_default();
                fields.insert(name.to_owned(), types.clone());
            }
        }
    }
    found
}

/// How the answers differ from the document.
fn differences(answers: &Answers) -> Vec<String> {
    let documented = documented();
    let mut found = Vec::new();
    for (command, shape) in &answers.0 {
        let Some(fields) = documented.get(command) else {
            found.push(format!("{command}: not documented: {shape:?}"));
            continue;
        };
        for (field, types) in shape {
            match fields.get(field) {
                None => found.push(format!("{command}: {field} {types:?} is not documented")),
                Some(said) => found.extend(
                    types
                        .iter()
                        .filter(|kind| !said.iter().any(|said| said == *kind))
                        .map(|kind| format!("{command}: {field} is {kind}, not {said:?}")),
                ),
            }
        }
        let missing = fields.iter().filter(|(field, types)| {
            !shape.contains_key(*field) && !types.iter().any(|kind| kind == "nothing")
        });
        found.extend(missing.map(|(field, _)| format!("{command}: no answer has {field}")));
    }
    let untried = documented.keys().filter(|command| !answers.0.contains_key(*command));
    found.extend(untried.map(|command| format!("{command}: documented, and not asked")));
    found
}

/// A server with volumes, a backup and identities.
fn ask_server(answers: &mut Answers, world: &World) {
    let (data, host) = (arg(world.server.data()), &world.serving);
    let to = world.local("backup");
    let to = arg(&to);
    let at = ["--data", data];
    answers.ask(host, "volume create", &[&["other"][..], &at].concat());
    answers.ask(host, "volume set", &[&["home", "--quota", "1G"][..], &at].concat());
    answers.ask(host, "volume list", &at);
    answers.ask(host, "volume show", &[&["home"][..], &at].concat());
    answers.ask(
        host,
        "volume backup",
        &[&["home", to, "--rate", "0", "--keep", "1"][..], &at].concat(),
    );
    let listed =
        segue(host, &[&["volume", "backup", "home", to, "--list", "--json"][..], &at].concat());
    answers.take("volume backup --list", &listed.out);
    answers.ask(host, "volume restore", &[&["again", to, "--rate", "0"][..], &at].concat());
    answers.ask(host, "volume check", &[&["--rate", "0"][..], &at].concat());
    answers.ask(host, "volume delete", &[&["other", "--yes"][..], &at].concat());
    let listed = answers.ask(host, "identity list", &at);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = listed["identities"][0]["id"].as_str().unwrap();
    answers.ask(host, "identity revoke", &[&[id, "--yes"][..], &at].concat());
    let stopped = segue(host, &["serve", "--stop", "--data", data]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    answers.ask(host, "volume repair", &[&["home"][..], &at].concat());
}

/// A conflict on host b, and a change that the server refuses.
fn collide(world: &World, a: &SegueMount, b: &SegueMount) {
    let (one, other) = (a.path().join("f"), b.path().join("f"));
    fs::write(&one, "base").unwrap();
    a.sync().unwrap();
    eventually("b sees it", || fs::read(&other).is_ok_and(|bytes| bytes == b"base"));
    world.b.link_down().unwrap();
    world.lose_link(&world.b, b);
    fs::write(&other, "of b").unwrap();
    fs::write(&one, "of a").unwrap();
    a.sync().unwrap();
}

/// Starts `segue watch`, and returns its lines until a change.
fn watched(world: &World, mount: &SegueMount, change: impl FnOnce()) -> String {
    let mut command = world.a.command("segue");
    command.args(["watch", arg(mount.path())]).stdout(Stdio::piped());
    let mut watching = command.spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut heard = lines.next().unwrap().unwrap();
    change();
    heard += &lines.next().unwrap().unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    heard
}

/// Each answer of each command has the documented fields, of the documented types; and each
/// documented field is in some answer.
/// Proves S12.21.
#[test]
fn the_document_describes_every_answer() {
    let Some(world) = World::new() else { return };
    let mut answers = Answers::default();
    let data = arg(world.server.data()).to_owned();
    let address = world.serving.addr().to_string();
    let invite = ["--host", &address, "--data", &data];
    let invited = answers.ask(&world.serving, "invite", &invite);
    let url: Value = serde_json::from_str(&invited).unwrap();
    let point = world.a.mkdir("mnt").unwrap();
    let url = url["url"].as_str().unwrap();
    let a = SegueMount::new(&world.a, url, &point, &["--json"]).unwrap();
    answers.take("mount", &fs::read_to_string(world.a.dir().join("mount.log")).unwrap());
    // Calls that wait for the server take time then.
    world.b.set_link(LinkSpec::kb_per_s(4096).with_rtt(Duration::from_millis(4))).unwrap();
    let b = world.mount(&world.b);
    let (here, there) = (arg(&point), arg(b.path()).to_owned());

    let to = world.local("backup");
    answers.ask(&world.serving, "volume backup", &["home", arg(&to), "--data", &data]);
    collide(&world, &a, &b);
    let (file, other) = (point.join("f"), b.path().join("f"));
    answers.ask(&world.b, "log", &[&there]);
    answers.ask(&world.b, "push", &[arg(&other)]);
    answers.ask(&world.b, "where", &[&there, arg(&other)]);
    answers.ask(&world.b, "why", &[arg(&other)]);
    answers.ask(&world.a, "status", &[here]);
    answers.ask(&world.a, "bwlimit", &[here]);
    answers.ask(&world.a, "bwlimit", &[here, "1M"]);
    answers.ask(&world.a, "persist", &[arg(&file)]);
    answers.take("watch", &watched(&world, &a, || fs::write(point.join("w"), "w").unwrap()));
    world.b.link_up().unwrap();
    wait_for_state(&world.b, &b, "online");
    answers.ask(&world.b, "sync", &[&there]);
    answers.ask(&world.b, "conflicts", &[&there]);
    answers.ask(&world.b, "resolve", &["--theirs", arg(&other)]);

    // Pending changes of what is not mounted.
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &a);
    fs::write(point.join("kept"), "kept").unwrap();
    answers.ask(&world.a, "umount", &["--now", here]);
    let kept = answers.ask_alone(&world, "status", &[]);
    answers.ask_alone(&world, "sync", &[]);
    answers.ask_alone(&world, "log", &["--all"]);
    let status: Value = serde_json::from_str(&kept).unwrap();
    answers.ask(&world.a, "recover", &[status["unmounted"][0]["cache"].as_str().unwrap()]);

    ask_server(&mut answers, &world);
    let found = differences(&answers);
    assert!(found.is_empty(), "docs/json.md and the answers differ:\n{}", found.join("\n"));
}
