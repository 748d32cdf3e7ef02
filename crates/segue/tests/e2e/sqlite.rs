//! SQLite, which trusts a file system with its journal.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use segue_bed::run;

use crate::world::World;

pub(crate) const FILL: &str = "
    CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
    INSERT INTO t SELECT i, printf('row %d %0200d', i, i * i) FROM n;
    CREATE INDEX by_text ON t(text);";

pub(crate) fn sqlite(database: &Path, script: &str) -> String {
    // Bounded: a lock that is never given up must not hang the test.
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail", "-cmd", ".timeout 20000"]).arg(database).arg(script);
    run(&mut command).unwrap()
}

/// All that the database says, and that SQLite finds it sound.
pub(crate) fn contents(database: &Path) -> String {
    let sound = sqlite(database, "PRAGMA integrity_check");
    assert_eq!(sound, "ok\n", "{}", database.display());
    sqlite(database, ".dump")
}

/// Begins a transaction in `mode` that reaches the database file (its cache is tiny), and
/// kills SQLite in the middle of it.
fn die_in_a_transaction(database: &Path, mode: &str) {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail"]).arg(database).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut victim = command.spawn().unwrap();
    let script = format!(
        "PRAGMA journal_mode={mode}; PRAGMA cache_size=5; PRAGMA cache_spill=1; BEGIN;
         UPDATE t SET text = text || ' changed'; DELETE FROM t WHERE id % 3 = 0;
         SELECT 'in the middle';\n"
    );
    victim.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let reached = lines.map(Result::unwrap).any(|line| line == "in the middle");
    assert!(reached, "{mode}: the transaction failed");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

fn survives(mode: &str) {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let database = mount.path().join("data.db");
    let said = sqlite(&database, &format!("PRAGMA journal_mode={mode}; {FILL}"));
    assert_eq!(said.trim().to_uppercase(), mode);
    let more = "UPDATE t SET text = 'again' WHERE id % 7 = 0; DELETE FROM t WHERE id % 11 = 0;";
    sqlite(&database, &format!("PRAGMA journal_mode={mode}; {more}"));
    let before = contents(&database);
    assert!(before.lines().count() > 4_500, "{} lines", before.lines().count());

    die_in_a_transaction(&database, mode);
    assert_eq!(contents(&database), before, "{mode}: after a killed transaction");
    die_in_a_transaction(&database, mode);
    let mount = world.remount(&world.a, mount);
    assert_eq!(contents(&database), before, "{mode}: rolled back after a new mount");
    sqlite(&database, "INSERT INTO t VALUES (100000, 'last')");
    let last = contents(&database);
    assert_ne!(last, before);
    mount.sync().unwrap();
    drop(mount);

    let mount = world.mount(&world.b);
    assert_eq!(contents(&mount.path().join("data.db")), last, "{mode}: on another host");
}

/// A database whose journal is deleted at each commit is sound after its writer was killed in
/// a transaction, after a new mount, and on another host.
#[test]
fn a_deleted_journal() {
    survives("DELETE");
}

/// The same with a journal that is truncated.
#[test]
fn a_truncated_journal() {
    survives("TRUNCATE");
}

/// The same with a journal whose header is cleared.
#[test]
fn a_persistent_journal() {
    survives("PERSIST");
}

/// The same with a write-ahead log, whose index is memory shared by mapping a file.
#[test]
fn a_write_ahead_log() {
    survives("WAL");
}

/// A host that dies in a transaction leaves a hot journal; whoever opens the database next,
/// on another host, rolls it back.
#[test]
fn a_hot_journal_is_rolled_back_by_another_host() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let database = mount.path().join("data.db");
    sqlite(&database, FILL);
    let before = contents(&database);
    die_in_a_transaction(&database, "DELETE");
    assert!(mount.path().join("data.db-journal").exists());
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    assert_eq!(contents(&mount.path().join("data.db")), before);
    assert!(!mount.path().join("data.db-journal").exists());
}

/// Two processes of one host that add to one counter lose no step: SQLite's locks hold there.
/// Proves S5.1.
#[test]
fn two_writers_of_one_host() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let database = mount.path().join("data.db");
    sqlite(&database, "CREATE TABLE c (n INTEGER); INSERT INTO c VALUES (0);");
    let step = "BEGIN IMMEDIATE; UPDATE c SET n = n + 1; COMMIT;".repeat(50);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| sqlite(&database, &step));
        }
    });
    assert_eq!(sqlite(&database, "SELECT n FROM c"), "100\n");
}
