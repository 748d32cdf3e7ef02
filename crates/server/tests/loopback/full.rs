//! A disk that is full: removals are committed, and give the space of their files back.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use segue_core::nouns::{Ino, Name, Outcome, Record, Role};
use segue_core::refusal::Refusal;

use crate::harness::{Client, Server, chunk, done, http, noise, whole};

/// Whoever takes this long hangs.
const HANGS: Duration = Duration::from_secs(90);
const CHUNK: usize = 1 << 20;

/// A small disk, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    /// Mounts a disk; `None` where `SEGUE_SKIP_E2E=1` allows to do without.
    fn mount(point: &Path, size: &str) -> Option<Disk> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(point);
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Disk(point.to_owned()));
        }
        let may_skip = std::env::var("SEGUE_SKIP_E2E").is_ok_and(|value| value == "1");
        assert!(may_skip, "a test of a full disk mounts one, for which it needs root");
        None
    }

    /// Another program takes all that is left.
    fn fill(&self) {
        let mut foreign = File::create(self.0.join("foreign")).unwrap();
        let bytes = vec![1; 1 << 16];
        while foreign.write_all(&bytes).is_ok() {}
        while foreign.write_all(&bytes[..1]).is_ok() {}
        assert_eq!(rustix::fs::statvfs(&self.0).unwrap().f_bavail, 0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// Makes files of which the server gets one chunk after the other in turn.
async fn files(tin: &mut Client, names: &[&str], chunks: usize) -> Vec<(Ino, Vec<u8>)> {
    let mut files = Vec::new();
    for name in names {
        let (ino, version) = tin.create(name).await;
        files.push((ino, version, Vec::new(), Vec::new()));
    }
    for part in 0..chunks {
        for (ino, _, pieces, bytes) in &mut files {
            let content = noise(CHUNK, (ino.0 << 8 | part as u64) * 2 + 1);
            tin.upload(&[&content]).await.unwrap();
            pieces.push(chunk((part * CHUNK) as u64, &content));
            bytes.extend(content);
        }
    }
    let mut made = Vec::new();
    for (ino, version, pieces, bytes) in files {
        done(&tin.apply(whole(ino, version, pieces)).await, ino);
        made.push((ino, bytes));
    }
    made
}

async fn unlink(tin: &mut Client, name: &str, ino: Ino) {
    let (parent, name) = (Ino::ROOT, Name::new(name).unwrap());
    let outcome = tin.apply(Record::Unlink { parent, name, ino, open: false }).await;
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
}

fn packs(server: &Server) -> Vec<String> {
    let packs = std::fs::read_dir(server.data().join("packs")).unwrap();
    let mut names: Vec<_> =
        packs.map(|pack| pack.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Another program has filled the disk. One pack is dead, and the live chunks of an earlier one
/// find no room: the dead pack goes all the same, which makes the room.
/// Proves S20.12.
#[tokio::test]
async fn a_dead_pack_goes_while_another_cannot_be_compacted() {
    let mut server = Server::new();
    let Some(disk) = Disk::mount(server.dir.path(), "260m") else { return };
    server.begin().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let first = files(&mut tin, &["half", "other half"], 32).await;
    let dead = files(&mut tin, &["dead"], 64).await;
    let kept = files(&mut tin, &["kept"], 2).await;
    assert_eq!(packs(&server), ["00000001.pack", "00000002.pack", "00000003.pack"]);
    disk.fill();
    let content = noise(CHUNK, 999);
    let refused = tin.upload(&[&content]).await.unwrap_err();
    assert_eq!(refused.refusal, Refusal::NoSpace);
    unlink(&mut tin, "dead", dead[0].0).await;
    unlink(&mut tin, "other half", first[1].0).await;

    let back = async {
        while packs(&server).iter().any(|pack| pack < &"00000003.pack".to_owned()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        while tin.upload(&[&content]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(HANGS, back).await.expect("space comes back");
    for (ino, bytes) in [&first[0], &kept[0]] {
        assert!(tin.content(*ino).await == *bytes);
    }
    let request = r#"{"volume":null,"quick":false,"rate_bytes":0}"#;
    let check = http(&server.data(), "POST", "/v1/check", request).await;
    assert!(check.contains(r#""ok":true"#), "{check}");
}

/// A server starts on a disk that another program has filled, also after it was killed, and
/// takes removals.
/// Proves S20.12.
#[tokio::test]
async fn a_server_starts_on_a_full_disk() {
    let mut server = Server::new();
    let Some(disk) = Disk::mount(server.dir.path(), "200m") else { return };
    server.begin().await;
    let host = server.host("tin", Role::Writer).await;
    let mut tin = host.client(7).await;
    let made = files(&mut tin, &["removed", "kept"], 4).await;
    let reserve = server.data().join("reserve");
    let whole = async {
        while std::fs::metadata(&reserve).map_or(0, |meta| meta.len()) < 32 << 20 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(HANGS, whole).await.expect("space is reserved");
    server.stop().await;
    disk.fill();
    server.begin().await;
    let (seq, next_ino) = (tin.seq, tin.next_ino);
    let mut tin = host.client(7).await;
    (tin.seq, tin.next_ino) = (seq, next_ino);
    unlink(&mut tin, "removed", made[0].0).await;
    assert!(tin.content(made[1].0).await == made[1].1);
    let (_, creation) = tin.creation("new");
    let refused = Outcome::Refused { refusal: Refusal::NoSpace };
    assert_eq!(tin.apply(creation).await, refused);
    std::fs::remove_file(disk.0.join("foreign")).unwrap();
    tin.create("newer").await;
    tin.upload(&[&noise(CHUNK, 5)]).await.unwrap();
}
