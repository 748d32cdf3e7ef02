use super::*;

fn chunk(bytes: &[u8]) -> StoredChunk {
    let stored = match segue_rpc::codec::compress(bytes) {
        Some(stored) => stored.into(),
        None => Bytes::copy_from_slice(bytes),
    };
    let raw_len = u32::try_from(bytes.len()).unwrap();
    StoredChunk { fingerprint: fingerprint(bytes), raw_len, stored }
}

fn append(packs: &Packs, bytes: &[u8]) -> ChunkPlace {
    let (rows, unsynced) = packs.append(VolumeId(1), &[chunk(bytes)], Purpose::Store).unwrap();
    packs.sync(&unsynced).unwrap();
    rows[0]
}

fn read(packs: &Packs, row: &ChunkPlace, bytes: &[u8]) -> Bytes {
    packs.read(&fingerprint(bytes), row).unwrap().1
}

#[test]
fn chunks_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path(), 0).unwrap();
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
    let first = append(&Packs::open(dir.path(), 0).unwrap(), b"one");
    let second = append(&Packs::open(dir.path(), 0).unwrap(), b"two");
    assert_eq!((first.pack, second.pack), (1, 1));

    let path = dir.path().join("00000001.pack");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let end = file.metadata().unwrap().len();
    for torn in [&b"CHNK half a header"[..], &[0; 100]] {
        file.set_len(end).unwrap();
        file.write_all_at(torn, end).unwrap();
        let packs = Packs::open(dir.path(), 0).unwrap();
        let third = append(&packs, b"three");
        assert!(third.pack > 1);
        assert_eq!(read(&packs, &first, b"one"), &b"one"[..]);
        assert_eq!(read(&packs, &second, b"two"), &b"two"[..]);
        assert_eq!(read(&packs, &third, b"three"), &b"three"[..]);
        std::fs::remove_file(packs.path(third.pack)).unwrap();
    }
}

/// The row of a lost pack must never lead to another one's bytes.
#[test]
fn the_number_of_a_lost_pack_is_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    append(&Packs::open(dir.path(), 0).unwrap(), b"one");
    let packs = Packs::open(dir.path(), 5).unwrap();
    assert_eq!(append(&packs, b"two").pack, 6);
}

/// A pack that is retired stays while somebody may have a row that leads into it.
#[test]
fn a_pack_goes_when_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path(), 0).unwrap();
    let early = packs.pin();
    packs.retire(&[1]);
    let late = packs.pin();
    packs.retire(&[2]);
    assert_eq!(packs.unread(), Vec::<u64>::new());
    drop(late);
    assert_eq!(
        packs.unread(),
        Vec::<u64>::new(),
        "the earlier reader may read the second pack too"
    );
    drop(early);
    assert_eq!(packs.unread(), [1, 2]);
    assert_eq!(packs.unread(), Vec::<u64>::new());
}

#[test]
fn the_entries_of_a_pack_are_listed_up_to_its_torn_end() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path(), 0).unwrap();
    let (one, two) = (append(&packs, b"one"), append(&packs, b"two two"));
    let file = OpenOptions::new().append(true).open(packs.path(1)).unwrap();
    let end = file.metadata().unwrap().len();
    file.write_all_at(b"CHNK torn", end).unwrap();
    let entries = packs.entries(1).unwrap();
    let expected = [(b"one".as_slice(), one), (b"two two", two)];
    let expected = expected.map(|(bytes, place)| (VolumeId(1), fingerprint(bytes), place));
    assert_eq!(entries, expected);
}

/// Proves S18.2.
#[test]
fn damage_is_an_error_and_never_other_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path(), 0).unwrap();
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
    let packs = Packs::open(dir.path(), 0).unwrap();
    append(&packs, b"one");
    let path = dir.path().join("00000001.pack");
    OpenOptions::new().write(true).open(&path).unwrap().set_len(PACK_BYTES).unwrap();
    lock(&packs.current).pack.as_ref().unwrap().end.store(PACK_BYTES, Ordering::Release);
    assert_eq!(append(&packs, b"two").pack, 2);
}

#[test]
fn entries_decode_to_what_they_were() {
    let stored = Bytes::from_static(b"0123456789");
    let chunk = StoredChunk { fingerprint: Fingerprint([3; 32]), raw_len: 10, stored };
    let entry = Entry::new(VolumeId(7), &chunk, 10);
    assert_eq!(Entry::decode(&entry.encode()), Some(entry));
    assert!(entry.holds(b"0123456789") && !entry.holds(b"0123456780"));
    let mut long = entry.encode();
    long[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Entry::decode(&long), None);
}

/// What a pack holds is found from its bytes alone: all that is whole, also behind damage.
#[test]
fn entries_are_found_again_behind_damage() {
    let dir = tempfile::tempdir().unwrap();
    let packs = Packs::open(dir.path(), 0).unwrap();
    let bytes: Vec<Vec<u8>> = (0..5_u8).map(|n| vec![n; 50 + usize::from(n)]).collect();
    let rows: Vec<ChunkPlace> = bytes.iter().map(|bytes| append(&packs, bytes)).collect();
    let path = dir.path().join("00000001.pack");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let header = ENTRY_HEADER as u64;
    let find = |from| {
        let mut found = Vec::new();
        let last = scan::entries(&path, from, &mut |entry, offset| {
            found.push((entry.fingerprint, offset));
            Ok::<_, io::Error>(())
        });
        (found, last.unwrap())
    };
    let at = |numbers: &[usize]| -> Vec<_> {
        numbers.iter().map(|n| (fingerprint(&bytes[*n]), rows[*n].offset)).collect()
    };
    let end = rows[4].offset + u64::from(rows[4].stored_len);
    assert_eq!(find(0), (at(&[0, 1, 2, 3, 4]), end));
    assert_eq!(find(rows[2].offset - header), (at(&[2, 3, 4]), end));
    file.write_all_at(b"?", rows[1].offset - header).unwrap();
    file.write_all_at(b"?", rows[3].offset).unwrap();
    assert_eq!(find(0), (at(&[0, 2, 4]), end));
    file.set_len(end - 1).unwrap();
    assert_eq!(find(0), (at(&[0, 2]), rows[2].offset + u64::from(rows[2].stored_len)));
}
