//! Repairs of a data directory whose rows and packs were damaged behind the server's back.

use std::path::Path;

use rusqlite::{Connection, params};
use segue_core::chunk::fingerprint;
use segue_core::namespace::{ChunkPlace, ChunkRow, keys};
use segue_core::nouns::{Ino, Role, VolumeId};
use segue_core::refusal::Refusal;
use segue_core::wire::Fetch;
use segue_server::ServeError;
use segue_server::check::{CheckLine, CheckRequest, check_offline};
use segue_server::repair::{RepairLine, RepairRequest, repair_offline};

use crate::harness::{Server, chunk, done, noise, store};

const VOLUME: VolumeId = VolumeId(1);

/// Does what blocks beside the runtime.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Repairs volume home; returns what was put right and what is lost.
async fn repair(data: &Path, dry_run: bool) -> (Vec<RepairLine>, Vec<RepairLine>) {
    let data = data.to_owned();
    let lines = blocking(move || {
        let request = RepairRequest { volume: "home".to_owned(), dry_run, quick: false };
        let mut lines = Vec::new();
        let mut tell = |line| {
            lines.push(line);
            true
        };
        repair_offline(&data, &request, &mut tell).unwrap();
        lines
    })
    .await;
    assert!(matches!(lines.last(), Some(RepairLine::Finished { .. })), "{lines:?}");
    let of =
        |kind: fn(&RepairLine) -> bool| lines.iter().filter(|line| kind(line)).cloned().collect();
    (
        of(|line| matches!(line, RepairLine::Repaired { .. })),
        of(|line| matches!(line, RepairLine::Lost { .. })),
    )
}

/// What a check finds.
async fn check(data: &Path) -> Vec<CheckLine> {
    let data = data.to_owned();
    blocking(move || {
        let mut findings = Vec::new();
        let mut tell = |line| {
            if matches!(line, CheckLine::Finding { .. }) {
                findings.push(line);
            }
            true
        };
        let request = CheckRequest { volume: None, quick: false, rate_bytes: None };
        check_offline(&data, &request, &mut tell).unwrap();
        findings
    })
    .await
}

/// All rows of the store.
fn rows(data: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let db = Connection::open(data.join("meta.db")).unwrap();
    let mut statement = db.prepare("SELECT k, v FROM kv ORDER BY k").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// What stands under a key: a row and its checksum.
fn stored(db: &Connection, key: &[u8]) -> Vec<u8> {
    db.query_row("SELECT v FROM kv WHERE k = ?1", params![key], |row| row.get(0)).unwrap()
}

/// Puts a row, with its checksum.
fn put(db: &Connection, key: &[u8], value: &[u8]) {
    let sum = crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes();
    let sealed = [value, &sum].concat();
    db.execute("INSERT OR REPLACE INTO kv VALUES (?1, ?2)", params![key, sealed]).unwrap();
}

/// A directory with damage of most kinds is repaired: what it had is there again, byte for byte,
/// and what is nowhere any more cannot be read. A rehearsal says the same and changes nothing.
#[tokio::test]
async fn damage_in_the_store_is_repaired() {
    let mut server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let parts = [1, 3, 5, 7].map(|seed| noise(50_000, seed));
    // The one that will be lost is the last in its pack.
    tin.upload(&[&parts[0], &parts[1], &parts[3], &parts[2]]).await.unwrap();
    let mut inodes = Vec::new();
    for (name, part) in ["whole", "unnamed", "lost", "flipped"].iter().zip(&parts) {
        let (ino, version) = tin.create(name).await;
        done(&tin.apply(store(ino, version, 50_000, vec![chunk(0, part)])).await, ino);
        inodes.push(ino);
    }
    let data = server.data();
    let running = {
        let (data, request) =
            (data.clone(), RepairRequest { volume: "home".to_owned(), dry_run: true, quick: true });
        blocking(move || repair_offline(&data, &request, &mut |_| true)).await
    };
    assert!(matches!(running, Err(ServeError::InUse { .. })), "{running:?}");
    server.stop().await;
    assert_eq!(check(&data).await, []);
    {
        let db = Connection::open(data.join("meta.db")).unwrap();
        let remove =
            |key: Vec<u8>| db.execute("DELETE FROM kv WHERE k = ?1", params![key]).unwrap();
        let key = keys::chunk(VOLUME, &fingerprint(&parts[0]));
        let sealed = stored(&db, &key);
        let row: ChunkRow = postcard::from_bytes(&sealed[..sealed.len() - 4]).unwrap();
        let place = ChunkPlace { pack: 77, ..row.place };
        put(&db, &key, &postcard::to_stdvec(&ChunkRow { place, ..row }).unwrap());
        remove(keys::chunk(VOLUME, &fingerprint(&parts[1])));
        remove(keys::dentry(VOLUME, Ino::ROOT, b"unnamed"));
        let nothing = keys::dentry(VOLUME, Ino::ROOT, b"nothing");
        put(&db, &nothing, &postcard::to_stdvec(&Ino(77)).unwrap());
        remove(keys::volume_tally(VOLUME));
        // One that is not what was written.
        let key = keys::inode(VOLUME, inodes[3]);
        let mut flipped = stored(&db, &key);
        flipped[3] ^= 1;
        db.execute("UPDATE kv SET v = ?2 WHERE k = ?1", params![key, flipped]).unwrap();
    }
    let pack = data.join("packs/00000001.pack");
    let mut bytes = std::fs::read(&pack).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    std::fs::write(&pack, bytes).unwrap();

    let before = rows(&data);
    let rehearsed = repair(&data, true).await;
    assert!(rows(&data) == before, "a rehearsal changed the store");
    let repaired = repair(&data, false).await;
    assert_eq!(repaired, rehearsed);
    let [RepairLine::Lost { path, .. }] = &repaired.1[..] else { panic!("{:?}", repaired.1) };
    assert_eq!(path.as_deref(), Some("/lost"));
    let [CheckLine::Finding { path, .. }] = &check(&data).await[..] else { panic!("a finding") };
    assert_eq!(path.as_deref(), Some("/lost"));
    assert_eq!(repair(&data, false).await, (Vec::new(), repaired.1));

    server.begin().await;
    let pan = server.client("pan", Role::Writer).await;
    for gone in ["nothing", "unnamed"] {
        assert!(pan.lookup(gone).await.is_none(), "{gone}");
    }
    assert_eq!(pan.lookup("flipped").await.map(|attr| attr.ino), Some(inodes[3]));
    assert!(pan.lookup(".segue-found").await.is_some());
    for number in [0, 1, 3] {
        assert_eq!(pan.content(inodes[number]).await, parts[number], "file {number}");
    }
    let attr = pan.attr(inodes[2]).await;
    let ask = Fetch { ino: attr.ino, version: attr.data_version, offset: 0, len: 50_000 };
    let refused = pan.fetch(ask).await.unwrap_err();
    assert_eq!(refused.refusal, Refusal::Io, "{refused:?}");
}
