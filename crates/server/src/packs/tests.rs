use super::*;

fn chunk(bytes: &[u8]) -> StoredChunk {
    let stored = match segue_rpc::codec::compress(bytes) {
        Some(stored) => stored.into(),
        None => Bytes::copy_from_slice(bytes),
    };
    let raw_len = u32::try_from(bytes.len()).unwrap();
    StoredChunk { fingerprint: fingerprint(bytes), raw_len, stored }
}

fn append(packs: &Packs, bytes: &[u8]) -> ChunkRow {
    let (rows, unsynced) = packs.append(&[chunk(bytes)]).unwrap();
    packs.sync(&unsynced).unwrap();
    rows[0]
}

fn read(packs: &Packs, row: &ChunkRow, bytes: &[u8]) -> Bytes {
    packs.read(&fingerprint(bytes), row).unwrap().1
}

#[test]
fn chunks_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path()).unwrap();
    let (text, noise) = (vec![b'a'; 100_000], b"short".to_vec());
    let (first, second) = (append(&packs, &text), append(&packs, &noise));
    assert!(first.compressed && first.stored_len < 1000);
    assert!(!second.compressed);
    assert_eq!(read(&packs, &first, &text), text);
    assert_eq!(read(&packs, &second, &noise), noise);
}

#[test]
fn a_whole_pack_goes_on_and_a_torn_tail_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let first = append(&Packs::open(dir.path()).unwrap(), b"one");
    let second = append(&Packs::open(dir.path()).unwrap(), b"two");
    assert_eq!((first.pack, second.pack), (1, 1));

    let path = dir.path().join("00000001.pack");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let end = file.metadata().unwrap().len();
    for torn in [&b"CHNK half a header"[..], &[0; 100]] {
        file.set_len(end).unwrap();
        file.write_all_at(torn, end).unwrap();
        let packs = Packs::open(dir.path()).unwrap();
        let third = append(&packs, b"three");
        assert!(third.pack > 1);
        assert_eq!(read(&packs, &first, b"one"), &b"one"[..]);
        assert_eq!(read(&packs, &second, b"two"), &b"two"[..]);
        assert_eq!(read(&packs, &third, b"three"), &b"three"[..]);
        std::fs::remove_file(packs.path(third.pack)).unwrap();
    }
}

#[test]
fn damage_is_an_error_and_never_other_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path()).unwrap();
    let bytes = vec![b'x'; 5000];
    let row = append(&packs, &bytes);
    let file = OpenOptions::new().write(true).open(dir.path().join("00000001.pack")).unwrap();
    file.write_all_at(b"!", row.offset + u64::from(row.stored_len) / 2).unwrap();
    let error = packs.read(&fingerprint(&bytes), &row).unwrap_err();
    assert!(matches!(error, ChunkError::Damaged { pack: 1, .. }), "{error}");
    file.set_len(row.offset).unwrap();
    assert!(matches!(packs.read(&fingerprint(&bytes), &row), Err(ChunkError::Damaged { .. })));
}

#[test]
fn a_full_pack_is_followed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path()).unwrap();
    append(&packs, b"one");
    let path = dir.path().join("00000001.pack");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(PACK_BYTES).unwrap();
    lock(&packs.current).pack.as_ref().unwrap().end.store(PACK_BYTES, Ordering::Release);
    assert_eq!(append(&packs, b"two").pack, 2);
}

#[test]
fn entries_decode_to_what_they_were() {
    let entry = Entry::new(Fingerprint([3; 32]), 10, 10, b"0123456789");
    assert_eq!(Entry::decode(&entry.encode()), Some(entry));
    assert!(entry.holds(b"0123456789") && !entry.holds(b"0123456780"));
    let mut long = entry.encode();
    long[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Entry::decode(&long), None);
}
