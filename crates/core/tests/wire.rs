//! The wire format stays as it is: hosts and servers of one protocol version understand each
//! other whatever they were built from. A vector that changes needs a new ALPN.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test throughout")]

use std::time::Duration;

use proptest::prelude::*;
use segue_core::nouns::{
    Attr, Base, Caller, ClientId, Fingerprint, Ino, InoGrant, Kind, Name, NewNode, Outcome, Piece,
    PieceBytes, Record, RenameMode, Role, SetAttr, Stamped, Store, Timestamp, Version,
};
use segue_core::persist::Lm;
use segue_core::refusal::Refusal;
use segue_core::sharing::{Announced, Mark, Marked};
use segue_core::wire::{
    Applied, Apply, Became, Break, Brief, Compare, Delta, Dirty, Enrol, Enrolled, Fetch, Fetched,
    Found, Heal, Hello, History, Leaf, LeafPart, Limit, Looked, Lookup, Node, Offer, Opened,
    Outline, Outlined, Page, Promising, Put, Readdir, Refused, Renewed, Reply, Request, Resume,
    Resumed, Seek, Sought, Space, Stage, Staged, Stored, Wanted, Watch, Watched, WatchedAll,
    Welcome, Xattrs,
};

const VERSION: Version = Version { epoch: 1, counter: 300 };
const TIME: Timestamp = Timestamp { secs: -2, nanos: 999_999_999 };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn attr() -> Attr {
    Attr {
        ino: Ino(1 << 32),
        kind: Kind::File,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: 5,
        allocated: 4096,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
        change: VERSION,
        data_version: VERSION,
        quota: Some(Ino(7)),
        lm: Some(Lm::Delay(Duration::from_secs(30))),
    }
}

fn node() -> Node {
    Node { attr: attr(), target: Some(b"to".to_vec()) }
}

fn stamped(record: Record) -> Stamped {
    let groups = vec![4, 24];
    let program = "vi".to_owned();
    let caller = Caller { uid: 1, gid: 2, groups, pid: 3, process_group: 3, program, session: 0 };
    Stamped { seq: 9, time: TIME, caller, operation: None, known: None, record }
}

fn records() -> Vec<Record> {
    let (parent, ino) = (Ino::ROOT, Ino(77));
    let create =
        |node| Record::Create { parent, name: name("a"), ino, node, mode: 0o644, uid: 1, gid: 2 };
    let rename = |mode| Record::Rename {
        from_parent: parent,
        from_name: name("a"),
        ino,
        to_parent: Ino(5),
        to_name: name("b"),
        mode,
        open: true,
    };
    let mode = Some(0o600);
    let set =
        SetAttr { mode, uid: None, gid: None, atime: Some(TIME), mtime: None, times_now: true };
    let piece = |offset, bytes| Piece { offset, bytes };
    let store = Store {
        ino,
        base: Base::Version(VERSION),
        cut: Some(3),
        size: 500,
        pieces: vec![
            piece(0, PieceBytes::Inline(b"abc".to_vec())),
            piece(3, PieceBytes::Chunk { fingerprint: Fingerprint([0xee; 32]), len: 400 }),
            piece(403, PieceBytes::Hole { len: 97 }),
            piece(500, PieceBytes::Leaf { leaf: Fingerprint([0xdd; 32]), len: 1 << 26 }),
        ],
        mtime: Some(TIME),
        whole: false,
    };
    vec![
        create(NewNode::File),
        create(NewNode::Symlink(b"to".to_vec())),
        create(NewNode::BlockDevice(2049)),
        Record::Link { ino, parent, name: name("c") },
        Record::Unlink { parent, name: name("c"), ino, open: false },
        Record::Rmdir { parent, name: name("d"), ino },
        rename(RenameMode::Replace(Some(Ino(8)))),
        rename(RenameMode::Exchange(Ino(8))),
        Record::SetAttr { ino, set },
        Record::SetXattr { ino, name: b"user.x".to_vec(), value: b"1".to_vec() },
        Record::RemoveXattr { ino, name: b"user.x".to_vec() },
        Record::Store(store.clone()),
        Record::Store(Store { base: Base::Result(8), pieces: Vec::new(), whole: true, ..store }),
        Record::Release { ino },
        Record::Clone { ino, base: Base::Version(VERSION), from: Ino(8), version: VERSION },
    ]
}

fn requests() -> Vec<Request> {
    let records = records().into_iter().map(stamped).collect();
    let fingerprint = Fingerprint([0xaa; 32]);
    vec![
        Request::Hello(Hello {
            volume: "home".into(),
            client: ClientId([7; 16]),
            incarnation: 2,
            host: "laptop".into(),
            acked_below: 128,
            next: 300,
            known: Some(VERSION),
            was: Some(ClientId([8; 16])),
            fresh_start: true,
        }),
        Request::Enrol(Enrol {
            code: "c0de".into(),
            request_der: vec![0x30, 0],
            host: "laptop".into(),
            volume: "home".into(),
        }),
        Request::Getattr(Ino(300)),
        Request::Lookup(Lookup { parent: Ino::ROOT, name: name("a") }),
        Request::Readdir(Readdir {
            ino: Ino::ROOT,
            after: Some(name("a")),
            since: Some(7),
            limit: 100,
        }),
        Request::Xattrs(Ino(2)),
        Request::Statfs(Ino(3)),
        Request::Fetch(Fetch { ino: Ino(2), version: VERSION, offset: 4096, len: 65536 }),
        Request::Seek(Seek { ino: Ino(2), version: VERSION, offset: 1 << 43 }),
        Request::Offer(Offer { chunks: vec![(fingerprint, Fingerprint([0xbb; 32]))] }),
        Request::Outline(Outline { ino: Ino(2), version: VERSION, offset: 1 << 43 }),
        Request::Compare(Compare { one: (Ino(2), VERSION), other: (Ino(300), VERSION) }),
        Request::Put(Put {
            chunks: vec![(fingerprint, 65536)],
            files: vec![Ino(300), Ino(2)],
            deltas: vec![Delta { index: 0, ino: Ino(2), version: VERSION, range: 300..70_000 }],
        }),
        Request::Apply(Apply {
            records,
            chunks: vec![(Fingerprint([6; 32]), 70_000)],
            acked_below: 9,
            awaited: marked(),
        }),
        Request::Grant(()),
        Request::Visible(()),
        Request::Break(Break { inodes: vec![Ino::ROOT, Ino(300)] }),
        Request::Heal(Heal { ino: Ino(7), chunks: vec![(300, Fingerprint([3; 32]), 200)] }),
        Request::Resume(Resume { since: 1 << 40, held: (300..400).map(Ino).collect() }),
        Request::Renew(()),
        Request::Watch(Watch { directory: Ino::ROOT, since: Some(1 << 40), copies: false }),
        Request::Limit(Limit { bytes_per_second: Some(500 << 10), is_background: true }),
        Request::Stage(Stage {
            leaves: vec![Leaf {
                name: Fingerprint([0xcc; 32]),
                parts: vec![
                    LeafPart::Chunk(fingerprint, 65536),
                    LeafPart::Run { ino: Ino(2), version: VERSION, range: 300..1 << 30 },
                ],
            }],
            files: vec![Ino(300)],
        }),
    ]
}

fn page() -> Page {
    Page {
        directory: attr(),
        entries: vec![(name("a"), node())],
        more: true,
        promised: Some(Promising { but: [Ino(9)].into_iter().collect(), marked: marked() }),
        commit: 1 << 40,
        gone: Some(vec![name("b")]),
    }
}

fn outlined() -> Outlined {
    let parts = vec![(65536, Some(Brief([1, 2, 3, 4]))), (1 << 29, None)];
    Outlined { size: 1 << 30, start: 300, parts }
}

fn replies() -> Vec<Reply> {
    let outcomes = vec![
        Outcome::Done { touched: vec![attr()] },
        Outcome::Conflict {
            parent: Ino::ROOT,
            name: name("a.conflict"),
            touched: Vec::new(),
            copy: Ino(78),
        },
        Outcome::Refused { refusal: Refusal::NotEmpty },
        Outcome::NeedsWhole,
        Outcome::Missing { chunks: vec![Fingerprint([0xee; 32])] },
    ];
    let grant = InoGrant { first: 1 << 20, count: 1 << 20 };
    vec![
        Reply::Refused(Refused { refusal: Refusal::Access, words: "no".into() }),
        Reply::Welcome(Welcome {
            volume_uuid: [1; 16],
            epoch: 1,
            role: Role::Writer,
            grants: vec![grant],
            nonce: [2; 32],
            commit: 1 << 40,
            history: Some(History { epoch: 2, lives: vec![(0, 300), (1 << 20, 1 << 21)] }),
        }),
        Reply::Enrolled(Enrolled {
            certificate_pem: "C".into(),
            authority_pem: "A".into(),
            volume: "home".into(),
            role: Role::Host,
        }),
        Reply::Node(Found { node: node(), promised: Some(Promising::default()) }),
        Reply::Looked(Looked { parent: attr(), node: None, promised: None }),
        Reply::Page(page()),
        Reply::Xattrs(Xattrs { change: VERSION, values: vec![(b"user.x".to_vec(), vec![1])] }),
        Reply::Space(Space {
            total_bytes: 1 << 40,
            free_bytes: 1 << 39,
            inodes: 12,
            free_inodes: 88,
            room_bytes: u64::MAX,
        }),
        Reply::Fetched(Fetched { segments: vec![(4096, true), (61440, false)] }),
        Reply::Sought(Sought { start: 4096, end: 1 << 43 }),
        Reply::Wanted(Wanted { indexes: vec![0, 200] }),
        Reply::Stored(Stored { lacking: vec![0, 200] }),
        Reply::Outlined(outlined()),
        Reply::Compared(true),
        Reply::Applied(Applied { outcomes, visible: true, promised: None, heard: 1 << 41 }),
        Reply::Granted(grant),
        Reply::Visible(()),
        Reply::Broken(()),
        Reply::Healed(200),
        Reply::Resumed(Some(Resumed {
            changed: [Ino(301)].into_iter().collect(),
            commit: 1 << 41,
        })),
        Reply::Resumed(None),
        Reply::Renewed(Renewed { commit: 1 << 41 }),
        Reply::Watched(WatchedAll {
            commit: 1 << 41,
            changes: vec![
                Watched { path: vec![name("d"), name("a")], became: Became::Named(attr()) },
                Watched { path: Vec::new(), became: Became::Changed(attr()) },
                Watched { path: vec![name("b")], became: Became::Gone },
            ],
            others: true,
        }),
        Reply::Limited(()),
        Reply::Staged(Staged { missing: vec![Fingerprint([0xee; 32])], astray: vec![0, 200] }),
    ]
}

/// A file that is removed, and one that has become longer.
fn marked() -> Marked {
    let announced = Some(Announced { size: 70_000, mtime: TIME });
    [(Ino(300), Mark::default()), (Ino(301), Mark { announced })].into()
}

/// Of files that one host has changed and another one opens.
fn sharing() -> ([Request; 3], [Reply; 3]) {
    let dirty = Dirty { is_all: true, changed: marked(), clean: [Ino(7)].into_iter().collect() };
    let opened = Opened { found: Found { node: node(), promised: None }, is_hidden: true };
    (
        [Request::Open(Ino(300)), Request::Dirty(dirty), Request::Pull(Ino(300))],
        [Reply::Opened(opened), Reply::Marked(()), Reply::Pulled(true)],
    )
}

/// Name and bytes of every message, one a line.
fn vectors() -> String {
    let (asked, answered) = sharing();
    let requests = requests().into_iter().chain(asked).map(|request| {
        let bytes = request.encode().unwrap();
        assert_eq!(Request::decode(&bytes).unwrap(), request);
        format!("request {} {}\n", request.name(), hex(&bytes))
    });
    let replies = replies().into_iter().chain(answered).map(|reply| {
        let bytes = reply.encode().unwrap();
        assert_eq!(Reply::decode(&bytes).unwrap(), reply);
        format!("reply {} {}\n", reply.name(), hex(&bytes))
    });
    requests.chain(replies).collect()
}

#[test]
fn messages_are_encoded_as_ever() {
    let golden = include_str!("wire.golden");
    for (ours, theirs) in vectors().lines().zip(golden.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(vectors().lines().count(), golden.lines().count());
}

/// The classes that the architecture gives a request, in its words.
fn documented(name: &str) -> Option<&'static str> {
    let text = include_str!("../../../ARCHITECTURE.md");
    text.lines().find_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let names = cells.next()?;
        names.split(", ").any(|cell| cell == name).then(|| cells.next()).flatten()
    })
}

#[test]
fn every_request_has_a_class_and_the_architecture_says_which() {
    for name in Request::NAMES {
        let words = documented(name);
        let words = words.unwrap_or_else(|| panic!("{name} is not in ARCHITECTURE.md's table"));
        let examples: Vec<Request> = requests()
            .into_iter()
            .chain(sharing().0)
            .filter(|request| request.name() == *name)
            .collect();
        assert!(!examples.is_empty(), "there is no example of {name}");
        for request in examples {
            let class = request.class().name();
            let is_said = words.split([' ', ',']).any(|word| word == class);
            assert!(is_said, "{name} goes at {class}, not at {words}");
        }
    }
}

#[test]
fn cut_messages_do_not_decode() {
    for request in requests() {
        let bytes = request.encode().unwrap();
        for length in 0..bytes.len() {
            assert!(Request::decode(&bytes[..length]).is_err(), "{} of {length}", request.name());
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        tag in prop_oneof![0..60u16, any::<u16>()],
        fields in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = [&tag.to_le_bytes()[..], &fields].concat();
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
        let _ = Request::decode(&fields);
    }

    #[test]
    fn damaged_messages_never_panic(which in any::<usize>(), at in any::<usize>(), bit in 0..8u32) {
        let mut messages: Vec<Vec<u8>> =
            requests().iter().map(|request| request.encode().unwrap()).collect();
        messages.extend(replies().iter().map(|reply| reply.encode().unwrap()));
        let which = which % messages.len();
        let bytes = &mut messages[which];
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let _ = Request::decode(bytes);
        let _ = Reply::decode(bytes);
    }
}
