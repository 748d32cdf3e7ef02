//! Backups and restores beside a server's work, and volumes that go.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use segue_core::namespace::keys;
use segue_core::nouns::{ClientId, Ino, Role, VolumeId};
use segue_server::admin::{AdminReply, AdminRequest, FailReason, execute_offline};
use segue_server::backup::{BackupLine, BackupRequest, backup_offline, snapshots};
use segue_server::check::{CheckLine, CheckRequest, check_offline};
use segue_server::restore::{RestoreLine, RestoreRequest, restore_offline};

use crate::harness::{Server, chunk, done, http, noise, shut_out, store};

fn wanted(volume: &str, to: &Path) -> BackupRequest {
    let (volume, directory) = (volume.to_owned(), to.to_owned());
    BackupRequest { volume, directory, rate_bytes: Some(0), verify: false, keep: None }
}

async fn backup(server: &Server, to: &Path) -> Vec<BackupLine> {
    ask_for(&server.data(), &wanted("home", to)).await
}

async fn ask_for(data: &Path, request: &BackupRequest) -> Vec<BackupLine> {
    let request = serde_json::to_string(request).unwrap();
    let answer = http(data, "POST", "/v1/backup", &request).await;
    // A chunked answer has the lengths of its parts between its lines.
    answer.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Without a server.
async fn backed_up(data: PathBuf, request: BackupRequest) -> Vec<BackupLine> {
    blocking(move || {
        let mut lines = Vec::new();
        let mut tell = |line| {
            lines.push(line);
            true
        };
        backup_offline(&data, &request, &mut tell).unwrap();
        lines
    })
    .await
}

/// Does what blocks beside the runtime.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn restored(data: &Path, request: &RestoreRequest) -> RestoreLine {
    let (data, request, mut last) = (data.to_owned(), request.clone(), None);
    blocking(move || {
        let mut tell = |line| {
            last = Some(line);
            true
        };
        restore_offline(&data, &request, &mut tell).unwrap();
        last.unwrap()
    })
    .await
}

fn request(from: &Path) -> RestoreRequest {
    RestoreRequest {
        volume: "home".to_owned(),
        directory: from.to_owned(),
        snapshot: None,
        replace: false,
        partial: false,
        rate_bytes: None,
    }
}

async fn quick_check(server: &Server) -> String {
    let request = r#"{"volume":null,"quick":false,"rate_bytes":0}"#;
    http(&server.data(), "POST", "/v1/check", request).await
}

/// A file of two chunks that do not compress.
async fn furnish(server: &Server) -> (Vec<u8>, Vec<u8>) {
    let mut tin = server.client("tin", Role::Writer).await;
    let (first, second) = (noise(50_000, 1), noise(50_000, 3));
    tin.upload(&[&first, &second]).await.unwrap();
    let (ino, version) = tin.create("f").await;
    let pieces = vec![chunk(0, &first), chunk(50_000, &second)];
    done(&tin.apply(store(ino, version, 100_000, pieces)).await, ino);
    (first, second)
}

/// A server that stops in the middle of a backup leaves no snapshot, and the earlier ones whole;
/// the next backup copies the rest.
#[tokio::test]
async fn a_backup_that_is_broken_off_is_run_again() {
    let mut server = Server::start().await;
    let to = server.dir.path().join("backups");
    let lines = backup(&server, &to).await;
    assert!(matches!(lines.last(), Some(BackupLine::Saved { chunks: 0, .. })), "{lines:?}");
    furnish(&server).await;

    let (data, slow) =
        (server.data(), BackupRequest { rate_bytes: Some(1), ..wanted("home", &to) });
    let slow = tokio::spawn(async move { ask_for(&data, &slow).await });
    while !to.join("snapshots/unfinished").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let refused = backup(&server, &to).await;
    assert!(
        matches!(&refused[..], [BackupLine::Failed { reason: FailReason::Exists, .. }]),
        "{refused:?}"
    );
    server.stop().await;
    let lines = slow.await.unwrap();
    assert!(matches!(lines.last(), Some(BackupLine::Failed { .. })), "{lines:?}");
    server.begin().await;
    let before = snapshots(&to).unwrap().snapshots.len();
    let lines = backup(&server, &to).await;
    let Some(BackupLine::Saved { chunks, chunks_lost, .. }) = lines.last() else {
        panic!("{lines:?}");
    };
    assert_eq!((*chunks, *chunks_lost), (2, 0));
    assert_eq!(snapshots(&to).unwrap().snapshots.len(), before + 1);
    server.stop().await;
    let other = server.dir.path().join("other");
    let line = restored(&other, &request(&to)).await;
    assert!(matches!(line, RestoreLine::Done { epoch: 2, chunks_lost: 0, .. }), "{line:?}");
}

/// A chunk that cannot be read is named by its file; everything else is saved. Restoring such a
/// backup has to be asked for, and reading the lost bytes then fails.
/// Proves S19.2.
#[tokio::test]
async fn what_cannot_be_read_is_named_and_the_rest_is_saved() {
    let mut server = Server::start().await;
    let to = server.dir.path().join("backups");
    furnish(&server).await;
    let pack = server.data().join("packs/00000001.pack");
    rot(&pack);
    let lines = backup(&server, &to).await;
    let [BackupLine::Finding { path, what, .. }, BackupLine::Saved { chunks_lost: 1, .. }] =
        &lines[lines.len() - 2..]
    else {
        panic!("{lines:?}");
    };
    assert_eq!(path.as_deref(), Some("/f"));
    assert!(what.contains("50000 bytes of it cannot be read"), "{what}");
    server.stop().await;

    let other = server.dir.path().join("other");
    let refused = restored(&other, &request(&to)).await;
    let RestoreLine::Failed { reason: FailReason::Damaged, words } = &refused else {
        panic!("{refused:?}");
    };
    assert!(words.contains("--partial"), "{words}");
    let partial = RestoreRequest { partial: true, ..request(&to) };
    let line = restored(&other, &partial).await;
    assert!(matches!(line, RestoreLine::Done { chunks_lost: 1, .. }), "{line:?}");
    let findings = blocking(move || {
        let (mut findings, volume) = (Vec::new(), None);
        let check = CheckRequest { volume, quick: false, rate_bytes: None };
        let mut tell = |line| {
            if let CheckLine::Finding { path, .. } = line {
                findings.push(path);
            }
            true
        };
        check_offline(&other, &check, &mut tell).unwrap();
        findings
    });
    assert_eq!(findings.await, [Some("/f".to_owned())]);
}

/// A row that cannot be read is counted and named, also one of a quota or of a host, and what is
/// backed up can be restored.
#[tokio::test]
async fn rows_that_cannot_be_read_are_counted() {
    let mut server = Server::start().await;
    let to = server.dir.path().join("backups");
    furnish(&server).await;
    server.stop().await;
    let client = ClientId([b't'; 16]);
    {
        let db = Connection::open(server.data().join("meta.db")).unwrap();
        for key in [keys::quota(VolumeId(1), Ino(5)), keys::client(client)] {
            let row = params![key, b"not what was written"];
            db.execute("INSERT OR REPLACE INTO kv VALUES (?1, ?2)", row).unwrap();
        }
    }
    let lines = backed_up(server.data(), wanted("home", &to)).await;
    let found: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            BackupLine::Finding { what, .. } => Some(what.as_str()),
            _ => None,
        })
        .collect();
    assert!(found.len() == 2 && found[0].contains("the row 18"), "{found:?}");
    assert!(found[1].contains("the row 20") && found[1].contains("host"), "{found:?}");
    assert!(matches!(lines.last(), Some(BackupLine::Saved { rows_lost: 2, .. })), "{lines:?}");
    let other = server.dir.path().join("other");
    let line = restored(&other, &request(&to)).await;
    assert!(matches!(line, RestoreLine::Done { chunks_lost: 0, .. }), "{line:?}");
}

/// Flips a bit of the file's last chunk.
fn rot(pack: &Path) {
    let mut bytes = std::fs::read(pack).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    std::fs::write(pack, bytes).unwrap();
}

/// A pack of the backup rots and keeps its length: the next backup finds it without being asked,
/// copies what was there again and says so, and what is restored is whole.
/// Proves S19.3.
#[tokio::test]
async fn what_rots_in_a_backup_is_copied_again() {
    let mut server = Server::start().await;
    let to = server.dir.path().join("backups");
    furnish(&server).await;
    backup(&server, &to).await;
    rot(&to.join("packs/00000001.pack"));
    let lines = backup(&server, &to).await;
    let Some(BackupLine::Saved { chunks_copied: 1, chunks_damaged, chunks_mended, .. }) =
        lines.last()
    else {
        panic!("{lines:?}");
    };
    assert_eq!((*chunks_damaged, *chunks_mended), (1, 1));
    let mended = server.dir.path().join("mended");
    let line = restored(&mended, &request(&to)).await;
    assert!(matches!(line, RestoreLine::Done { chunks_lost: 0, .. }), "{line:?}");
    // What the server cannot read either is lost, and that is said too.
    for pack in std::fs::read_dir(to.join("packs")).unwrap() {
        let path = pack.unwrap().path();
        std::fs::write(&path, vec![0; std::fs::read(&path).unwrap().len()]).unwrap();
    }
    rot(&server.data().join("packs/00000001.pack"));
    let lines = backup(&server, &to).await;
    let Some(BackupLine::Saved { chunks_lost, chunks_damaged, chunks_mended, .. }) = lines.last()
    else {
        panic!("{lines:?}");
    };
    assert_eq!((*chunks_lost, *chunks_damaged, *chunks_mended), (1, 2, 1));
    server.stop().await;
    let other = server.dir.path().join("other");
    for snapshot in snapshots(&to).unwrap().snapshots {
        let request = RestoreRequest { snapshot: Some(snapshot.name), ..request(&to) };
        let line = restored(&other, &request).await;
        assert!(matches!(line, RestoreLine::Failed { .. }), "{line:?}");
        let request = RestoreRequest { partial: true, replace: true, ..request };
        let line = restored(&other, &request).await;
        assert!(matches!(line, RestoreLine::Done { chunks_lost: 1, .. }), "{line:?}");
    }
}

/// A backup that was damaged is refused before anything changes.
#[tokio::test]
async fn a_damaged_backup_changes_nothing() {
    let mut server = Server::start().await;
    let to = server.dir.path().join("backups");
    furnish(&server).await;
    backup(&server, &to).await;
    server.stop().await;
    let name = snapshots(&to).unwrap().snapshots.remove(0).name;
    let file = to.join("snapshots").join(format!("{name}.rows.zst"));
    let pack = to.join("packs/00000001.pack");
    for (path, keep) in [(&pack, 60_000), (&file, 400)] {
        let whole = std::fs::read(path).unwrap();
        std::fs::write(path, &whole[..keep.min(whole.len() - 1)]).unwrap();
        let data = server.dir.path().join("other");
        let line = restored(&data, &request(&to)).await;
        assert!(
            matches!(line, RestoreLine::Failed { reason: FailReason::Damaged, .. }),
            "{line:?}"
        );
        let list =
            blocking(move || execute_offline(&data, AdminRequest::VolumeList).unwrap()).await;
        let AdminReply::Volumes { volumes } = list else { panic!("{list:?}") };
        assert_eq!((volumes.len(), volumes[0].inodes), (1, 1));
        std::fs::write(path, whole).unwrap();
    }
    // What a restore that was asked to do without finds is counted.
    rot(&pack);
    let partial = RestoreRequest { partial: true, ..request(&to) };
    let line = restored(&server.dir.path().join("partial"), &partial).await;
    assert!(matches!(line, RestoreLine::Done { chunks_lost: 1, .. }), "{line:?}");
    let lines = backed_up(server.data(), wanted("nothing", &to)).await;
    assert!(matches!(lines[..], [BackupLine::Failed { reason: FailReason::NotFound, .. }]));
}

/// A snapshot that cannot be read is listed with words, and hides none of the others.
#[tokio::test]
async fn a_damaged_snapshot_hides_no_other() {
    let server = Server::start().await;
    let to = server.dir.path().join("backups");
    backup(&server, &to).await;
    furnish(&server).await;
    backup(&server, &to).await;
    let mut names: Vec<_> =
        snapshots(&to).unwrap().snapshots.into_iter().map(|info| info.name).collect();
    assert_eq!(names.len(), 2);
    let first = names.remove(0);
    std::fs::write(to.join("snapshots").join(format!("{first}.rows.zst")), "").unwrap();
    let found = snapshots(&to).unwrap();
    assert_eq!((found.snapshots.len(), &found.snapshots[0].name), (1, &names[0]));
    assert_eq!(found.damaged[0].name, first);
    assert!(found.damaged[0].words.contains("was cut off"), "{found:?}");
}

/// A volume that is deleted ends its sessions with words, shuts its hosts out with words, and is
/// not the server's last.
/// Proves S19.8.
#[tokio::test]
async fn a_deleted_volume_ends_its_sessions() {
    let server = Server::start().await;
    let host = server.host("tin", Role::Writer).await;
    let client = host.client(1).await;
    let delete = AdminRequest::VolumeDelete { name: "home".to_owned() };
    let AdminReply::Failed { reason: FailReason::Invalid, words } = server.admin(&delete).await
    else {
        panic!("the only volume was deleted");
    };
    assert!(words.contains("only volume"), "{words}");
    server.admin(&AdminRequest::VolumeCreate { name: "other".to_owned() }).await;
    let reply = server.admin(&delete).await;
    assert!(matches!(&reply, AdminReply::Deleted { identities, .. } if identities.len() == 1));
    let words = shut_out(&client.peer).await;
    assert!(words.contains("was deleted"), "{words}");
    let words = shut_out(&host.dial().await).await;
    assert!(words.contains("invite"), "{words}");
    let again = server.admin(&delete).await;
    assert!(matches!(again, AdminReply::Failed { reason: FailReason::NotFound, .. }), "{again:?}");
    let answer = quick_check(&server).await;
    assert!(answer.contains(r#""volume":"other","ok":true"#), "{answer}");
}
