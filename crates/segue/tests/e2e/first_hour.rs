//! The first quarter of an hour of a user, as docs/first-hour.md has it: each command is run, and
//! says what stands there.
//!
//! `SEGUE_RECORD=1 make e2e T=first_hour` writes the document anew.

use std::fs;
use std::path::{Path, PathBuf};

use segue_bed::{Bed, Host};

use crate::world::{arg, end, eventually, segue};

const PREFACE: &str = "\
# The first hour

A recorded session: a server, a laptop that loses its link, and a desktop. The test
`e2e::first_hour` runs each command, and fails if one answers otherwise. `[exit 4]` is the exit code
of a command that has not ended with 0.
";

/// A session at the terminals of some hosts.
struct Recording {
    text: String,
    /// Words of this machine, and what the document has for them.
    words: Vec<(String, String)>,
    program: PathBuf,
}

impl Recording {
    /// Runs `line` in the shell of `host`, and notes both the line and what it says.
    fn run(&mut self, host: &Host, line: &str) -> String {
        let said = host.dir().join("said");
        let path = std::env::var("PATH").unwrap();
        let program = self.program.parent().unwrap();
        let mut shell = host.command("unshare");
        // All hosts of a bed have one name.
        let script = "hostname \"$1\"; exec >\"$2\" 2>&1; eval \"$3\"";
        shell.args(["--uts", "sh", "-c", script, "sh", host.name(), arg(&said), line]);
        let ended = end(shell.env("PATH", format!("{}:{path}", program.display())));
        let answer = fs::read_to_string(&said).unwrap();
        self.text.push_str(&format!("{}$ {line}\n{answer}", host.name()));
        match ended.code {
            Some(0) => {}
            code => self.text.push_str(&format!("[exit {}]\n", code.unwrap_or(-1))),
        }
        answer
    }

    /// Has the server print an invite, which is a secret.
    fn invite(&mut self, server: &Host) -> String {
        let invite = self.run(server, &format!("segue invite --host {}", server.addr()));
        let invite = invite.trim().to_owned();
        let (_, secret) = invite.split_once('?').unwrap();
        self.words.push((secret.to_owned(), "invite=..&ca=..".to_owned()));
        invite
    }

    fn heading(&mut self, words: &str) {
        let fence = if self.text.is_empty() { "" } else { "```\n" };
        self.text.push_str(&format!("{fence}\n## {words}\n\n```\n"));
    }

    fn document(&self) -> String {
        let mut text = format!("{PREFACE}{}```\n", self.text);
        for (here, there) in &self.words {
            text = text.replace(here, there);
        }
        text
    }
}

/// The same text without what differs between two runs: numbers, times and widths of columns.
fn shape(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let inside = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_id = inside.len() >= 8 && inside.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = |text: String, c: char| match c.is_ascii_digit() {
            true if text.ends_with('#') => text,
            true => text + "#",
            false => text + &c.to_string(),
        };
        if is_id { word.replace(inside, "#") } else { word.chars().fold(String::new(), digits) }
    };
    let line = |line: &str| {
        // What is known of a link depends on what went over it.
        if let Some((before, _)) = line.split_once("online, ") {
            return format!("{}online", before.trim_start());
        }
        let words: Vec<String> = line.split_whitespace().map(word).collect();
        words.join(" ").replace("# min ago", "# s ago")
    };
    text.lines().map(line).collect()
}

#[test]
fn the_first_hour_is_as_the_document_says() {
    let Some(bed) = Bed::for_test() else { return };
    let program = bed.dir().join("segue");
    fs::copy(env!("CARGO_BIN_EXE_segue"), &program).unwrap();
    bed.use_segue(program.clone());
    let [server, laptop, desktop] = ["server", "laptop", "desktop"].map(|name| bed.host(name));
    let (server, laptop, desktop) = (server.unwrap(), laptop.unwrap(), desktop.unwrap());
    let words = vec![
        (arg(laptop.home()).to_owned(), "/home/ada".to_owned()),
        (arg(desktop.home()).to_owned(), "/home/ada".to_owned()),
        (arg(server.home()).to_owned(), "/home/segue".to_owned()),
        (server.addr().to_string(), "server.example.org".to_owned()),
    ];
    let mut session = Recording { text: String::new(), words, program };

    session.heading("Serve a volume, and invite a laptop");
    session.run(&server, "segue serve --detach");
    let invite = session.invite(&server);

    session.heading("Mount it, and work");
    session.run(&laptop, "mkdir work");
    session.run(&laptop, &format!("segue mount '{invite}' work"));
    session.run(&laptop, "mkdir work/paper; echo 'first draft' > work/paper/text");
    session.run(&laptop, "segue sync work");
    session.run(&laptop, "segue status work");
    session.run(&laptop, "segue where work/paper/text");

    session.heading("On a second host");
    let second = session.invite(&server);
    session.run(&desktop, &format!("mkdir work; segue mount '{second}' work"));
    session.run(&desktop, "cat work/paper/text");

    session.heading("The laptop loses its link");
    laptop.link_down().unwrap();
    let data = server.home().join(".local/share/segue");
    let (address, mounted) = (laptop.addr().to_string(), laptop.home().join("work"));
    let lose = ["lose-link", arg(&mounted), "--address", &address, "--data", arg(&data)];
    assert_eq!(segue(&laptop, &lose).code, Some(0));
    eventually("it is offline", || {
        segue(&laptop, &["status", arg(&mounted)]).out.contains("no answer within")
    });
    session.run(&laptop, "cat work/paper/text");
    session.run(&laptop, "echo 'draft from the train' > work/paper/text");
    session.run(&laptop, "segue where work/paper/text");
    session.run(&laptop, "segue status work | grep -v 'to send'");
    session.run(&laptop, "segue sync work");
    session.run(&laptop, "segue umount work");
    session.run(&desktop, "echo 'draft from the desk' > work/paper/text; segue sync work");

    session.heading("The link is back: both hosts have changed one file");
    laptop.link_up().unwrap();
    session.run(&laptop, "segue sync --wait work");
    session.run(&laptop, "segue conflicts work");
    session.run(&laptop, "cat work/paper/text");
    session.run(&laptop, "segue resolve --ours work/paper/text");
    session.run(&laptop, "cat work/paper/text; segue sync work; segue conflicts work");

    session.heading("Unmount, and end the access of a lost laptop");
    session.run(&server, "segue identity list");
    session.run(&laptop, "segue umount work");
    session.run(&desktop, "segue umount work");
    session.run(&server, "segue identity revoke laptop --yes");
    session.run(&laptop, &format!("segue mount segue://{}/home work", server.addr()));
    session.run(&server, "segue volume check");
    session.run(&server, "segue serve --stop");

    let recorded = session.document();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/first-hour.md");
    if std::env::var_os("SEGUE_RECORD").is_some() {
        fs::write(&path, &recorded).unwrap();
    }
    let document = fs::read_to_string(&path).unwrap();
    let (found, expected) = (shape(&recorded), shape(&document));
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected, "in this session:\n{recorded}");
    }
    assert_eq!(found.len(), expected.len(), "lines of this session:\n{recorded}");
}
