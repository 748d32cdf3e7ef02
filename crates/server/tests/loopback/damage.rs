//! A data directory of which a part is cut short, flipped, missing, or of another one: the
//! server says what and what to do, or serves what is whole. It never returns other bytes than
//! those that were written, and never shows an unreadable object as missing or empty.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use segue_core::namespace::keys;
use segue_core::nouns::{Ino, Name, Outcome, Record, Role, Version, VolumeId};
use segue_core::refusal::Refusal;
use segue_core::wire::{Fetch, Looked, Lookup, Readdir, Refused, Reply, Request};
use segue_rpc::identity::MountUrl;
use segue_rpc::{Body, Peer, Target};
use segue_server::admin::{AdminReply, AdminRequest, execute_offline, renew_identity};
use segue_server::{ServeError, ServeOptions, serve};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::harness::{
    Client, Host, Server, apply, call, chunk, done, fetch, inline, noise, store, whole,
};

/// Bits flipped in each file, spread over it.
const FLIPS: usize = 12;
/// Bits flipped in the metadata, most of which are many small rows.
const META_FLIPS: usize = 60;

/// All files, by name.
type Files = BTreeMap<String, File>;

struct File {
    ino: Ino,
    version: Version,
    bytes: Vec<u8>,
}

/// A server that has stopped, with a host that it knows and files of every size.
async fn stopped() -> (Server, Host, Files) {
    let mut server = Server::start().await;
    let host = server.host("tin", Role::Writer).await;
    let mut tin = host.client(1).await;
    let mut files = Files::new();
    let lens = [0, 10, 300, 4_000, 30, 8_000].into_iter().cycle().take(90).chain([60_000; 3]);
    for (number, len) in (0u64..).zip(lens) {
        let (name, bytes) = (format!("file-{number}"), noise(len, number));
        let (ino, version) = tin.create(&name).await;
        let pieces = match len {
            0 => Vec::new(),
            60_000 => vec![chunk(0, &bytes)],
            _ => vec![inline(0, &bytes)],
        };
        if len == 60_000 {
            tin.upload(&[&bytes]).await.unwrap();
        }
        let attr = done(&tin.apply(store(ino, version, len as u64, pieces)).await, ino);
        files.insert(name, File { ino, version: attr.data_version, bytes });
    }
    drop(tin);
    server.stop().await;
    (server, host, files)
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

/// Starts a server on `data`, or says why it does not start.
async fn try_start(data: &Path) -> Result<Running, ServeError> {
    let (stop, stopped) = oneshot::channel();
    let (tell, told) = oneshot::channel();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = ServeOptions {
        data: data.to_owned(),
        listen,
        record_calls: None,
        priorities: Default::default(),
    };
    let task = tokio::spawn(async move {
        let stopped = async move { drop(stopped.await) };
        serve(options, |address| tell.send(address).unwrap(), stopped).await
    });
    match told.await {
        Ok(address) => Ok(Running { address, stop, task }),
        Err(_) => Err(task.await.unwrap().unwrap_err()),
    }
}

/// What a host is answered; `None` if only an error of the disk.
async fn ask(peer: &Peer, request: Request) -> Option<Reply> {
    match peer.call(&request, Body::Empty).await.ok()?.reply {
        Reply::Refused(Refused { refusal: Refusal::Io, .. }) => None,
        reply => Some(reply),
    }
}

/// The host, of a server at `address`.
fn at(host: &Host, address: SocketAddr) -> Host {
    let url: MountUrl = format!("segue://{address}/home").parse().unwrap();
    Host { target: Target::new(&url, &host.target.authority), ..host.clone() }
}

/// Requires that each file is read as it was or fails, and that none seems to be missing.
/// Returns how many are whole.
async fn read_all(host: &Host, address: SocketAddr, files: &Files) -> usize {
    let host = at(host, address);
    let peer = host.dial().await;
    let Some(reply) = ask(&peer, Request::Hello(host.hello(1))).await else { return 0 };
    assert!(matches!(reply, Reply::Welcome(_)), "{reply:?}");
    let listing = Readdir { ino: Ino::ROOT, after: None, since: None, limit: 4096 };
    if let Some(reply) = ask(&peer, Request::Readdir(listing)).await {
        let Reply::Page(page) = reply else { panic!("{reply:?}") };
        let names = page.entries.iter().map(|(name, _)| name.to_string());
        assert!(names.eq(files.keys().cloned()), "a name is missing from a listing");
    }
    let mut whole = 0;
    for (name, File { bytes, .. }) in files {
        let lookup = Lookup { parent: Ino::ROOT, name: Name::new(name.as_str()).unwrap() };
        let Some(reply) = ask(&peer, Request::Lookup(lookup)).await else { continue };
        let Reply::Looked(Looked { node: Some(node), .. }) = reply else { panic!("{reply:?}") };
        let attr = node.attr;
        assert_eq!(attr.size, bytes.len() as u64, "{name}");
        let (ino, version, offset, len) = (attr.ino, attr.data_version, 0, attr.size);
        match fetch(&peer, Fetch { ino, version, offset, len }).await {
            Ok((read, _)) => {
                assert_eq!(read, *bytes, "{name}");
                whole += 1;
            }
            Err(refused) => assert_eq!(refused.refusal, Refusal::Io, "{name}"),
        }
    }
    whole
}

/// Removes a third of the files, writes a third anew and makes as many new ones, in the name of
/// the cache that made them, many records at a time. Requires that each record gets a final
/// outcome, unless it is the volume that cannot be read, or SQLite that finds no place to write,
/// and that what was made is there or cannot be read. Returns how many were refused or cannot.
async fn change_all(host: &Host, address: SocketAddr, files: &Files) -> Option<usize> {
    let peer = at(host, address).dial().await;
    let reply = ask(&peer, Request::Hello(host.hello(1))).await?;
    let Reply::Welcome(welcome) = reply else { panic!("{reply:?}") };
    let next_ino = welcome.grants[0].first + files.len() as u64;
    let mut tin = Client { peer, welcome, next_ino, seq: 2 * files.len() as u64 };
    let (mut records, mut made) = (Vec::new(), Vec::new());
    for (number, (name, file)) in files.iter().enumerate() {
        let (new, creation) = tin.creation(&format!("{name}-new"));
        made.push((records.len(), new));
        records.push(tin.stamp(creation));
        let name = Name::new(name.as_str()).unwrap();
        let change = match number % 3 {
            0 => Record::Unlink { parent: Ino::ROOT, name, ino: file.ino, open: false },
            1 => whole(file.ino, file.version, vec![inline(0, b"new")]),
            _ => continue,
        };
        records.push(tin.stamp(change));
    }
    let mut outcomes = Vec::new();
    for batch in records.chunks(10) {
        match call(&tin.peer, &apply(batch.to_vec())).await {
            Reply::Applied(applied) => outcomes.extend(applied.outcomes),
            Reply::Refused(Refused { refusal: Refusal::Io, words }) => {
                let is_all = ["malformed", "the row 01", "the row 03"];
                assert!(is_all.iter().any(|all| words.contains(all)), "{words}");
                return None;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(outcomes.len(), records.len(), "records were left out");
    // What a page says of its own room can be damaged too: new rows are put over others then.
    let mut lost = 0;
    for (at, ino) in made {
        let is_done = matches!(outcomes[at], Outcome::Done { .. });
        match ask(&tin.peer, Request::Getattr(ino)).await {
            Some(Reply::Node(found)) => assert_eq!((is_done, found.node.attr.size), (true, 0)),
            Some(reply) => assert!(!is_done, "{reply:?}"),
            None => lost += usize::from(is_done),
        }
    }
    let is_refused = |outcome: &&Outcome| match outcome {
        Outcome::Refused { refusal: Refusal::Io } => true,
        Outcome::Done { .. } => false,
        other => panic!("{other:?}"),
    };
    Some(outcomes.iter().filter(is_refused).count() + lost)
}

/// Starts a server on `data`, where something is wrong with `part`. Returns how many files are
/// whole, or the words with which it did not start.
async fn outcome(host: &Host, data: &Path, part: &str, files: &Files) -> Result<usize, String> {
    match try_start(data).await {
        Ok(running) => {
            let whole = read_all(host, running.address, files).await;
            running.stop.send(()).unwrap();
            running.task.await.unwrap().unwrap();
            Ok(whole)
        }
        Err(error) => {
            let words = error.to_string();
            let has_way_out = ["Restore ", "use the "].iter().any(|way| words.contains(way));
            assert!(words.contains(part) && has_way_out, "{part}: {words}");
            Err(words)
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        // The server makes it anew, and nobody reads it.
        if target.ends_with("reserve") {
            continue;
        }
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Every file below `top`, as a path from there.
fn parts(top: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(top.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => parts(top, &path, found),
            false => found.push(path),
        }
    }
}

/// Something that happens to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Missing,
    Empty,
    Half,
    /// The bit of this number.
    Flip(usize),
}

impl Harm {
    fn all(part: &Path, len: usize) -> Vec<Harm> {
        let flips = if part.ends_with("meta.db") { META_FLIPS } else { FLIPS };
        // Within it: the file of a process's number has as few as four bytes.
        let flip = |n: usize| Harm::Flip((8 * len * n / flips + n % 8).min(8 * len - 1));
        [Harm::Missing, Harm::Empty, Harm::Half].into_iter().chain((0..flips).map(flip)).collect()
    }

    fn to(self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        match self {
            Harm::Missing => return fs::remove_file(path).unwrap(),
            Harm::Empty => bytes.clear(),
            Harm::Half => bytes.truncate(bytes.len() / 2),
            Harm::Flip(bit) => bytes[bit / 8] ^= 1 << (bit % 8),
        }
        fs::write(path, bytes).unwrap();
    }
}

/// A change that met a damaged row was answered by nothing but "try again", with all that came
/// before it, so its host sent nothing else for ever.
/// Proves S18.3, S18.4.
#[tokio::test]
async fn a_change_that_meets_damage_is_refused_and_the_others_are_not() {
    let (mut server, host, files) = stopped().await;
    let (over, removed) = (&files["file-1"], &files["file-2"]);
    let db = rusqlite::Connection::open(server.data().join("meta.db")).unwrap();
    for file in [over, removed] {
        let prefix = keys::extents_of(VolumeId(1), file.ino);
        let harm = "UPDATE kv SET v = x'00' WHERE k > ?1 AND k < ?2";
        assert_eq!(db.execute(harm, [&prefix, &keys::after(&prefix)]).unwrap(), 1);
    }
    drop(db);
    server.begin().await;
    let mut tin = host.client(1).await;
    (tin.seq, tin.next_ino) = (1_000, tin.next_ino + 1_000);
    let name = Name::new("file-2").unwrap();
    let changes = [
        tin.creation("before").1,
        store(over.ino, over.version, 10, vec![inline(3, b"part")]),
        whole(over.ino, over.version, vec![inline(0, b"anew")]),
        Record::Unlink { parent: Ino::ROOT, name, ino: removed.ino, open: false },
        tin.creation("behind").1,
    ];
    let records = changes.map(|change| tin.stamp(change)).to_vec();
    let outcomes = tin.send(records.clone()).await;
    let refused: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Done { .. } => None,
            Outcome::Refused { refusal } => Some(*refusal),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(refused, [None, Some(Refusal::Io), None, None, None]);
    assert_eq!(tin.send(records).await, outcomes, "sent once more");
    assert_eq!(tin.content(over.ino).await, b"anew");
    assert!(tin.lookup("file-2").await.is_none() && tin.lookup("behind").await.is_some());
}

/// Proves S18.3.
#[tokio::test]
async fn damage_to_one_row_stops_nothing_else() {
    let (server, host, files) = stopped().await;
    let len = fs::metadata(server.data().join("meta.db")).unwrap().len() as usize;
    let mut came = Vec::new();
    for harm in Harm::all(Path::new("meta.db"), len) {
        let Harm::Flip(_) = harm else { continue };
        let dir = tempfile::tempdir().unwrap();
        copy(&server.data(), dir.path());
        harm.to(&dir.path().join("meta.db"));
        let Ok(running) = try_start(dir.path()).await else { continue };
        came.push(change_all(&host, running.address, &files).await);
        running.stop.send(()).unwrap();
        running.task.await.unwrap().unwrap();
    }
    let went_on = came.iter().flatten().filter(|refused| **refused <= 2).count();
    assert!(went_on >= META_FLIPS * 3 / 4, "{came:?}");
}

/// Proves S18.1, S18.2.
#[tokio::test]
async fn damage_to_any_file_is_said_and_nothing_wrong_is_served() {
    let (server, host, files) = stopped().await;
    let mut all = Vec::new();
    parts(&server.data(), Path::new(""), &mut all);
    all.retain(|part| part != Path::new("reserve"));
    all.sort();
    let names = ["VERSION", "identity/ca.key", "identity/ca.pem", "lock", "meta.db"];
    assert!(names.iter().all(|name| all.contains(&PathBuf::from(name))), "{all:?}");
    for part in all {
        let len = fs::metadata(server.data().join(&part)).unwrap().len() as usize;
        for harm in Harm::all(&part, len) {
            let dir = tempfile::tempdir().unwrap();
            copy(&server.data(), dir.path());
            harm.to(&dir.path().join(&part));
            let name = part.to_str().unwrap();
            let came = outcome(&host, dir.path(), name, &files).await;
            let is_gone = matches!(harm, Harm::Missing | Harm::Empty | Harm::Half);
            match name {
                "lock" => assert_eq!(came, Ok(files.len())),
                _ if name.starts_with("packs/") => {
                    let whole = came.unwrap();
                    assert!(whole >= files.len() - 3, "{name} {harm:?}: {whole}");
                }
                _ => assert!(!is_gone || came.is_err(), "{name} {harm:?}: {came:?}"),
            }
        }
    }
}

/// Proves S18.5.
#[tokio::test]
async fn parts_of_two_directories_do_not_go_together() {
    let (server, host, files) = stopped().await;
    let (other, ..) = stopped().await;
    for part in ["VERSION", "meta.db", "identity"] {
        let dir = tempfile::tempdir().unwrap();
        copy(&server.data(), dir.path());
        let (from, to) = (other.data().join(part), dir.path().join(part));
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(from, to).unwrap()),
        }
        let words = outcome(&host, dir.path(), "", &files).await.unwrap_err();
        assert!(words.contains("another data directory") || words.contains("ca.pem"), "{words}");
    }
}

/// Proves S18.5.
#[tokio::test]
async fn a_half_copied_directory_is_refused() {
    let (server, host, files) = stopped().await;
    for part in ["VERSION", "meta.db", "packs", "identity"] {
        let dir = tempfile::tempdir().unwrap();
        copy(&server.data(), dir.path());
        let path = dir.path().join(part);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
        let words = outcome(&host, dir.path(), part, &files).await.unwrap_err();
        assert!(words.contains("is missing"), "{words}");
        let (data, request) = (dir.path().to_owned(), AdminRequest::VolumeList);
        let offline = tokio::task::spawn_blocking(move || execute_offline(&data, request));
        assert_eq!(offline.await.unwrap().unwrap_err().to_string(), words);
    }
}

/// The price of a lost key: hosts have to be let in anew, and what they have not sent yet goes
/// on where it was.
/// Proves S18.5.
#[tokio::test]
async fn a_lost_identity_can_be_made_anew() {
    let (mut server, host, files) = stopped().await;
    fs::remove_file(server.data().join("identity/ca.key")).unwrap();
    let words = outcome(&host, &server.data(), "identity/ca.key", &files).await.unwrap_err();
    assert!(words.contains("segue identity renew"), "{words}");
    let data = server.data();
    tokio::task::spawn_blocking(move || renew_identity(&data)).await.unwrap().unwrap();
    server.begin().await;
    let again = server.host("tin-again", Role::Writer).await;
    let mut tin = again.client(1).await;
    tin.seq = 1_000;
    tin.next_ino += 1_000;
    let (ino, _) = tin.create("new").await;
    assert_eq!(tin.lookup("new").await.map(|attr| attr.ino), Some(ino));
    assert_eq!(tin.lookup("file-1").await.map(|attr| attr.size), Some(10));
}

/// One volume's broken row is that volume's trouble.
#[tokio::test]
async fn a_volume_that_cannot_be_read_stops_no_other() {
    let (mut server, host, files) = stopped().await;
    server.begin().await;
    let create = AdminRequest::VolumeCreate { name: "work".to_owned() };
    assert!(matches!(server.admin(&create).await, AdminReply::Volume(_)));
    server.stop().await;
    flip_row_of_volume(&server.data().join("meta.db"), "work");
    server.begin().await;
    assert_eq!(read_all(&host, server.address, &files).await, files.len());
    let AdminReply::Volumes { volumes } = server.admin(&AdminRequest::VolumeList).await else {
        panic!("no list")
    };
    let damaged: Vec<_> = volumes.iter().map(|volume| volume.damaged.is_some()).collect();
    assert_eq!(damaged, [false, true]);
    let show = AdminRequest::VolumeShow { name: "work".to_owned() };
    let AdminReply::Failed { words, .. } = server.admin(&show).await else { panic!("it is shown") };
    assert!(words.contains("damaged"), "{words}");
    let mut tin = host.client(1).await;
    (tin.seq, tin.next_ino) = (1_000, tin.next_ino + 1_000);
    let (_, creation) = tin.creation("more");
    assert!(matches!(tin.apply(creation).await, Outcome::Done { .. }));
}

/// Flips a bit of the row that begins with the volume's name.
fn flip_row_of_volume(meta: &Path, name: &str) {
    let mut bytes = fs::read(meta).unwrap();
    let row = [&[name.len() as u8], name.as_bytes()].concat();
    let at = bytes.windows(row.len()).position(|window| window == row).unwrap();
    bytes[at + 1] ^= 1;
    fs::write(meta, bytes).unwrap();
}
