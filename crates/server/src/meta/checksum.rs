//! Rows as they stand in the table: each with a checksum of its key and its value.
//!
//! SQLite believes its disk. One flipped bit in a page is another size, another name or another
//! byte of a small file, and nothing would say so. The sum makes that an error. It also covers
//! what is *not* found: a search that a flipped key has led astray ends beside that key, so
//! whoever finds nothing, or the end of a range, looks at the row there.

/// Length of the sum at the end of a value, in bytes.
const SUM: usize = 4;

fn sum(key: &[u8], value: &[u8]) -> [u8; SUM] {
    crc32c::crc32c_append(crc32c::crc32c(key), value).to_le_bytes()
}

/// The value of `key` as it is stored.
pub(super) fn with_sum(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(value.len() + SUM);
    stored.extend_from_slice(value);
    stored.extend_from_slice(&sum(key, value));
    stored
}

/// The value that was stored for `key`; `None` if key and value are not those of one write.
pub(super) fn checked<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (value, found) = stored.split_last_chunk::<SUM>()?;
    (sum(key, value) == *found).then_some(value)
}

/// The own key of a damaged row, if it is `key` with one other bit. `None` says that the damage is
/// not in the key, as long as it is one flipped bit.
pub(super) fn own_key(key: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    let mut key = key.to_vec();
    for bit in 0..8 * key.len() {
        let flip = |key: &mut [u8]| key.get_mut(bit / 8).map(|byte| *byte ^= 1 << (bit % 8));
        flip(&mut key);
        if checked(&key, stored).is_some() {
            return Some(key);
        }
        flip(&mut key);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves S18.2.
    #[test]
    fn a_row_with_any_bit_flipped_is_none() {
        let (key, value) = (b"key".to_vec(), b"some value".to_vec());
        let stored = with_sum(&key, &value);
        assert_eq!(checked(&key, &stored), Some(&value[..]));
        let flipped = |bytes: &[u8], bit: usize| {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        };
        assert!((0..8 * stored.len()).all(|bit| checked(&key, &flipped(&stored, bit)).is_none()));
        assert!((0..8 * key.len()).all(|bit| checked(&flipped(&key, bit), &stored).is_none()));
        let of = |bit| own_key(&flipped(&key, bit), &stored);
        assert!((0..8 * key.len()).all(|bit| of(bit).as_ref() == Some(&key)));
        assert!((0..8 * stored.len()).all(|bit| own_key(&key, &flipped(&stored, bit)).is_none()));
        assert!((0..stored.len()).all(|len| checked(&key, &stored[..len]).is_none()));
    }
}
