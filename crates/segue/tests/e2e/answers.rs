//! What commands answer on hosts that are offline, revoked or damaged, or that may not write, word
//! for word, in `tests/answers-of-mounts.golden`. It is read in review as a text: each answer says
//! what failed, on which thing, why, and what to do.
//!
//! `SEGUE_RECORD=1 make e2e T=answers` writes the file anew.

use std::fs;
use std::path::{Path, PathBuf};

use segue_bed::Host;
use segue_bed::segue::SegueMount;

use crate::world::{World, arg, end, eventually, json, segue, wait_for_state};

/// What was typed and answered, without what differs between two runs.
struct Transcript<'a> {
    world: &'a World,
    alone: PathBuf,
    text: String,
}

impl Transcript<'_> {
    fn heading(&mut self, words: &str) {
        self.text += &format!("# {words}\n\n");
    }

    /// Runs a line of the shell in the home directory of `host`.
    fn run(&mut self, host: &Host, line: &str) {
        let path = format!("{}:/usr/bin:/bin", self.world.bed.dir().display());
        let typed = line.replace("alone ", &format!("sh {} ", self.alone.display()));
        let ended = end(host.command("sh").args(["-c", &typed]).env("PATH", path));
        let all = format!("{}{}", ended.out, ended.err);
        println!("$ {line}\n{all}");
        assert!(!all.contains("(os error") && !all.contains("panicked"), "{line}: {all}");
        let code = ended.code.unwrap_or(-1);
        self.text += &format!("$ {line}\n[exit {code}]\n{}\n", self.plain(host, &all));
    }

    fn plain(&self, host: &Host, text: &str) -> String {
        let text = text.replace(arg(host.home()), "~");
        let text = text.replace(arg(self.world.bed.dir()), "BED");
        let words = text.split_inclusive([' ', '\n', '/', ',', ')', '(']).map(|word| {
            let inside = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let is_hex = inside.len() >= 8 && inside.bytes().all(|byte| byte.is_ascii_hexdigit());
            let digits = |text: String, c: char| match c.is_ascii_digit() {
                true if text.ends_with('#') => text,
                true => text + "#",
                false => text + &c.to_string(),
            };
            match is_hex {
                true => word.replace(inside, "#"),
                false => word.chars().fold(String::new(), digits),
            }
        });
        let all: String = words.collect();
        // Columns are as wide as what stands in them.
        let line = |line: &str| {
            let mut words = String::new();
            for part in line.trim_end().split("  ").filter(|part| !part.is_empty()) {
                let gap = if words.is_empty() { "" } else { "  " };
                words += &format!("{gap}{}", part.trim());
            }
            words + "\n"
        };
        let all: String = all.lines().map(line).collect();
        // How far the count is depends on how busy this machine is.
        let all = all.replace(
            "at least # B on this host (the cache is still being counted)",
            "# B on this host",
        );
        all.replace("# min ", "# s ")
    }
}

/// A file that is cached, one that is not, and a pending change.
fn prepare(world: &World, host: &Host) -> SegueMount {
    let mount = SegueMount::new(host, &world.url(host), &host.home().join("work"), &[]).unwrap();
    fs::create_dir(mount.path().join("dir")).unwrap();
    fs::write(mount.path().join("dir/known"), "text\n").unwrap();
    mount.sync().unwrap();
    mount
}

fn offline(transcript: &mut Transcript<'_>, host: &Host, mount: &SegueMount) {
    let world = transcript.world;
    transcript.heading("The server cannot be reached");
    host.link_down().unwrap();
    world.lose_link(host, mount);
    eventually("it is offline for a reason", || {
        segue(host, &["status", arg(mount.path())]).out.contains("no answer within")
    });
    for line in [
        "echo more >> work/dir/known",
        "segue sync work",
        "segue sync work --timeout 1s",
        "segue sync work/dir/known --level host",
        "segue where work/dir/known",
        "segue where work/dir/unknown",
        "segue why work/dir/unknown",
        "segue push work/dir/known",
        "segue persist work/dir/known --lm sync",
        "segue persist work/dir/unknown --lm sync",
        "segue conflicts work",
        "segue resolve work/dir/known --ours",
        "segue watch work/dir/known",
        "cat work/dir/never-seen",
        "segue log work | cut -c 1-60",
        "segue mount segue://10.7.0.1/home work",
        "mkdir other; segue mount segue://10.7.0.1/nosuch other",
        "segue umount work",
        "segue umount --now work",
        "alone segue status",
        "alone segue sync",
        "alone segue log --all",
    ] {
        transcript.run(host, line);
    }
    host.link_up().unwrap();
}

fn identity_of(host: &Host, mount: &SegueMount) -> String {
    let status = json(host, &["status", arg(mount.path())]);
    status["mounts"][0]["identity"].as_str().unwrap().to_owned()
}

fn revoked(transcript: &mut Transcript<'_>, host: &Host, mount: &SegueMount) {
    transcript.heading("The identity of the host was revoked");
    let world = transcript.world;
    let (own, data) = (identity_of(host, mount), arg(world.server.data()));
    let revoke = ["identity", "revoke", &own, "--yes", "--data", data];
    assert_eq!(segue(&world.serving, &revoke).code, Some(0));
    wait_for_state(host, mount, "offline");
    for line in [
        "cat work/dir/known",
        "echo lost >> work/dir/known",
        "cat work/dir/never-seen",
        "segue sync work",
        "segue where work/dir/known",
        "segue push work/dir/known",
        "segue log work | cut -c 1-60",
        "segue persist work/dir/known --lm sync",
        "segue umount work",
        "segue umount --now work",
        "segue mount segue://10.7.0.1/home work",
    ] {
        transcript.run(host, line);
    }
}

fn damaged(transcript: &mut Transcript<'_>, host: &Host, identity: &str) {
    transcript.heading("State on the disk of the host is damaged");
    let cache = "C=$(ls -d .local/state/segue/*/state.json); C=${C%/state.json}";
    let restored = "rm -r .local/state/segue; cp -a saved .local/state/segue";
    let mount = "segue mount segue://10.7.0.1/home work";
    transcript.run(host, "cp -a .local/state/segue saved");
    for damage in [
        "echo nonsense > $C/state.json",
        "echo nonsense > $C/update.log",
        "head -c 100 /dev/zero > $C/update.log",
        "rm $C/update.log",
    ] {
        transcript.run(host, &format!("{cache}; {damage}"));
        transcript.run(host, "alone segue status");
        transcript.run(host, "alone segue log --all");
        transcript.run(host, &format!("{cache}; segue recover $C"));
        transcript.run(host, mount);
        transcript.run(host, "segue status work; segue umount work 2>/dev/null");
        transcript.run(host, restored);
    }
    transcript.run(
        host,
        "for key in .config/segue/identities/*/home/key.pem; do echo nonsense > $key; done",
    );
    transcript.run(host, mount);
    let world = transcript.world;
    let data = arg(world.server.data());
    let revoke = ["identity", "revoke", identity, "--yes", "--data", data];
    assert_eq!(segue(&world.serving, &revoke).code, Some(0));
    let invite = world.server.invite(&[]).unwrap();
    let point = host.home().join("work");
    let mut again = SegueMount::new(host, &invite, &point, &[]).unwrap();
    again.umount(&[]).unwrap();
    transcript.run(host, &format!("{cache}; segue recover $C"));
    transcript.run(host, "echo 'nosuch = 1' > .config/segue/config.toml");
    transcript.run(host, mount);
    transcript.run(host, "alone segue status; rm .config/segue/config.toml");
}

fn read_only(transcript: &mut Transcript<'_>, host: &Host) {
    transcript.heading("The host may only read");
    let invite = transcript.world.server.invite(&["--role", "reader"]).unwrap();
    let mut mount = SegueMount::new(host, &invite, &host.home().join("work"), &[]).unwrap();
    for line in [
        "echo more >> work/dir/known",
        "segue persist work/dir/known --lm sync",
        "segue push work/dir/known",
        "segue sync work",
        "segue invite",
        "segue watch work/dir/known",
    ] {
        transcript.run(host, line);
    }
    mount.umount(&[]).unwrap();
}

#[test]
fn hosts_in_trouble_are_answered_as_in_the_golden_file() {
    let Some(world) = World::new() else { return };
    let mut transcript = Transcript { world: &world, alone: world.alone(), text: String::new() };
    for host in [&world.a, &world.b] {
        fs::create_dir_all(host.home().join("work")).unwrap();
    }
    let mount = prepare(&world, &world.a);
    let identity = identity_of(&world.a, &mount);
    read_only(&mut transcript, &world.b);
    offline(&mut transcript, &world.a, &mount);
    damaged(&mut transcript, &world.a, &identity);
    let url = world.server.url("home");
    let mount = SegueMount::new(&world.a, &url, &world.a.home().join("work"), &[]).unwrap();
    mount.sync().unwrap();
    revoked(&mut transcript, &world.a, &mount);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/answers-of-mounts.golden");
    if std::env::var_os("SEGUE_RECORD").is_some() {
        fs::write(&path, &transcript.text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let mut last = "";
    for (found, golden) in transcript.text.lines().zip(golden.lines()) {
        last = if found.starts_with('$') { found } else { last };
        assert_eq!(found, golden, "after {last}; see the top of this file");
    }
    assert_eq!(transcript.text.len(), golden.len());
}
