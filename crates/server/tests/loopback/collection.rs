//! Leaves are named before the record that needs them; what nothing needs gives its space back.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use segue_core::chunk::{Cutter, fingerprint};
use segue_core::namespace::{leaf_name, leaf_of, leaf_wanted};
use segue_core::nouns::{Fingerprint, Ino, Name, Outcome, Piece, PieceBytes, Record, Role};
use segue_core::wire::{Fetch, Reply, Request, Stage};

use crate::harness::{Client, Server, call, chunk, done, http, noise, store, whole};

/// Whoever takes this long hangs.
const HANGS: Duration = Duration::from_secs(90);

async fn stage(client: &Client, leaf: Vec<(Fingerprint, u32)>) -> Vec<Fingerprint> {
    let leaves = vec![leaf_wanted(&leaf).unwrap()];
    match call(&client.peer, &Request::Stage(Stage { leaves, files: Vec::new() })).await {
        Reply::Staged(staged) => staged.missing,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_leaf_is_made_of_chunks_that_its_host_has_shown() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let parts: Vec<_> = (0..5).map(|seed| noise(10_000, seed * 2 + 1)).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let leaf: Vec<_> = parts.iter().map(|part| (fingerprint(part), 10_000)).collect();
    let names: Vec<_> = leaf.iter().map(|(name, _)| *name).collect();
    assert_eq!(stage(&tin, leaf.clone()).await, names);
    tin.upload(&slices).await.unwrap();
    assert_eq!(stage(&tin, leaf.clone()).await, []);

    // Who knows the names and not the chunks gets nowhere.
    let mut zinc = server.client("zinc", Role::Writer).await;
    assert_eq!(stage(&zinc, leaf.clone()).await, names);
    let extents = leaf_of(&leaf);
    let leaf = leaf_name(&extents).unwrap();
    let piece = || vec![Piece { offset: 0, bytes: PieceBytes::Leaf { leaf, len: 50_000 } }];
    let (ino, version) = zinc.create("zincs").await;
    let missing = Outcome::Missing { chunks: vec![leaf] };
    assert_eq!(zinc.apply(store(ino, version, 50_000, piece())).await, missing);
    // Nor who can say what the leaf itself is made of.
    zinc.upload(&[&postcard::to_stdvec(&extents).unwrap()]).await.unwrap();
    assert_eq!(zinc.apply(store(ino, version, 50_000, piece())).await, missing);

    let (ino, version) = tin.create("tins").await;
    let version = done(&tin.apply(store(ino, version, 50_000, piece())).await, ino).data_version;
    assert_eq!(tin.content(ino).await, parts.concat());
    let torn = noise(6_000, 99);
    tin.upload(&[&torn]).await.unwrap();
    done(&tin.apply(store(ino, version, 50_000, vec![chunk(17_000, &torn)])).await, ino);
    let mut expected = parts.concat();
    expected[17_000..23_000].copy_from_slice(&torn);
    assert_eq!(tin.content(ino).await, expected);
    let check = http(&server.data(), "POST", "/v1/check", CHECK).await;
    assert!(check.contains(r#""ok":true"#), "{check}");
}

const CHECK: &str = r#"{"volume":null,"quick":false,"rate_bytes":0}"#;

fn pack_bytes(server: &Server) -> u64 {
    let packs = std::fs::read_dir(server.data().join("packs")).unwrap();
    // One may go between being listed and being looked at.
    packs.filter_map(|pack| Some(pack.ok()?.metadata().ok()?.len())).sum()
}

/// Of two files one is removed and its space comes back, also where it shares a pack with the
/// other, which stays as it is throughout.
#[tokio::test]
async fn space_comes_back_and_what_lives_stays() {
    let mut server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let mut files: Vec<(Ino, Vec<u8>)> = Vec::new();
    for (name, seed) in [("kept", 0), ("removed", 1)] {
        let parts: Vec<_> = (0..40).map(|part| noise(100_000, part * 4 + seed * 2 + 1)).collect();
        let (ino, version) = tin.create(name).await;
        let mut pieces = Vec::new();
        for (part, at) in parts.iter().zip(0..) {
            tin.upload(&[part]).await.unwrap();
            pieces.push(chunk(at * 100_000, part));
        }
        done(&tin.apply(whole(ino, version, pieces)).await, ino);
        files.push((ino, parts.concat()));
    }
    let (full, (kept, bytes)) = (pack_bytes(&server), files[0].clone());
    assert!(full > 8_000_000);
    let (parent, name) = (Ino::ROOT, Name::new("removed").unwrap());
    let record = Record::Unlink { parent, name, ino: files[1].0, open: false };
    assert!(matches!(tin.apply(record).await, Outcome::Done { .. }));
    let back = async {
        while pack_bytes(&server) > 4_500_000 {
            assert_eq!(tin.content(kept).await, bytes);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANGS, back).await.unwrap();
    assert_eq!(tin.content(kept).await, bytes);
    let check = http(&server.data(), "POST", "/v1/check", CHECK).await;
    assert!(check.contains(r#""ok":true"#), "{check}");
    server.restart().await;
    let check = http(&server.data(), "POST", "/v1/check", CHECK).await;
    assert!(check.contains(r#""ok":true"#), "{check}");
}

/// The chunks that a file in fragments is cut into are here already, and one of them rotted
/// unnoticed: the fragments are all there is of its bytes.
#[tokio::test]
async fn putting_a_file_in_order_heals_what_it_shares() {
    let server = Server::start().await;
    let mut tin = server.client("tin", Role::Writer).await;
    let bytes = noise(80_000, 7);
    let (mut at, mut cuts) = (0, Vec::new());
    for cut in Cutter::for_file(80_000).cut(&bytes) {
        tin.upload(&[cut]).await.unwrap();
        cuts.push(chunk(at, cut));
        at += cut.len() as u64;
    }
    let (rotten, version) = tin.create("rotten").await;
    done(&tin.apply(whole(rotten, version, cuts)).await, rotten);

    let parts: Vec<_> = (0..).zip(bytes.chunks(10_000)).collect();
    for (_, part) in &parts {
        tin.upload(&[part]).await.unwrap();
    }
    let mut pieces: Vec<_> = parts.iter().map(|(at, part)| chunk(at * 10_000, part)).collect();
    let last = pieces.pop().unwrap();
    let (ragged, version) = tin.create("ragged").await;
    let version = done(&tin.apply(whole(ragged, version, pieces)).await, ragged).data_version;
    done(&tin.apply(store(ragged, version, 80_000, vec![last])).await, ragged);

    // Where two fragments meet only the chunk of the other file has these bytes together.
    flip_where(&server.data().join("packs"), &bytes[9_990..10_010]);
    let ask = |ino, version| Fetch { ino, version, offset: 0, len: 80_000 };
    let version = tin.attr(rotten).await.data_version;
    assert!(tin.fetch(ask(rotten, version)).await.is_err());
    let healed = async {
        while tin.fetch(ask(rotten, version)).await.is_err() {
            assert_eq!(tin.content(ragged).await, bytes);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(HANGS, healed).await.unwrap();
    assert_eq!(tin.content(rotten).await, bytes);
    assert_eq!(tin.content(ragged).await, bytes);
    let check = http(&server.data(), "POST", "/v1/check", CHECK).await;
    assert!(check.contains(r#""ok":true"#), "{check}");
}

/// Flips a bit in the middle of `bytes` in the one file of `packs` that has them.
fn flip_where(packs: &Path, bytes: &[u8]) {
    let mut flipped = 0;
    for pack in std::fs::read_dir(packs).unwrap() {
        let path = pack.unwrap().path();
        let mut content = std::fs::read(&path).unwrap();
        let found = content.windows(bytes.len()).position(|window| window == bytes);
        if let Some(at) = found {
            content[at + bytes.len() / 2] ^= 1;
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&content, 0).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
}
