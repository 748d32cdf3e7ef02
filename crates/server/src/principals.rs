//! Who may do what: identities that hosts have, and invites that become identities.
//!
//! An invite is stored as a hash and works once, until it expires. It is consumed in the
//! transaction that records the identity, so that of two hosts with one invite only one gets
//! in. A host that asks again with the same request (its answer got lost) gets the same answer.

use std::net::IpAddr;

use segue_core::namespace::keys::{SERVER_TAGS, after};
use segue_core::namespace::{Fault, MetaSnapshot, MetaTxn, Rights, get_row, put_row};
use segue_core::nouns::{Role, VolumeId};
use serde::{Deserialize, Serialize};

const IDENTITY: u8 = SERVER_TAGS;
const INVITE: u8 = SERVER_TAGS + 1;
const USE: u8 = SERVER_TAGS + 8;
/// An invite is forgotten so many seconds after it expired: until then there are better words
/// for it than "unknown".
const FORGET_SECONDS: i64 = 30 * 86_400;

/// A host that was let in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct IdentityRow {
    /// The host's name as it gave it.
    pub(crate) host: String,
    pub(crate) volume: VolumeId,
    pub(crate) role: Role,
    pub(crate) no_root_squash: bool,
    /// Seconds since 1970.
    pub(crate) created: i64,
    /// When it was revoked, in seconds since 1970.
    pub(crate) revoked: Option<i64>,
}

/// When an identity was used last, and from where.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct UseRow {
    /// Seconds since 1970.
    pub(crate) last: i64,
    /// Its address then.
    pub(crate) address: IpAddr,
}

impl IdentityRow {
    pub(crate) fn rights(&self) -> Rights {
        Rights { role: self.role, no_root_squash: self.no_root_squash }
    }
}

/// A way in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct InviteRow {
    pub(crate) volume: VolumeId,
    pub(crate) role: Role,
    pub(crate) no_root_squash: bool,
    /// Seconds since 1970.
    pub(crate) expires: i64,
    /// Who used it.
    pub(crate) used: Option<Used>,
}

/// What became of an invite.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Used {
    /// BLAKE3 of the signing request.
    pub(crate) request: [u8; 32],
    /// What was answered.
    pub(crate) certificate_pem: String,
}

/// Why an invite does not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum InviteError {
    #[error("this server does not know this invite; get a new one from it: segue invite")]
    Unknown,
    #[error("this invite has expired; get a new one from the server: segue invite")]
    Expired,
    #[error("this invite has been used already; get a new one from the server: segue invite")]
    Used,
}

fn identity_key(fingerprint: &str) -> Vec<u8> {
    [&[IDENTITY], fingerprint.as_bytes()].concat()
}

fn invite_key(code: &str) -> Vec<u8> {
    [&[INVITE], blake3::hash(code.as_bytes()).as_bytes().as_slice()].concat()
}

/// The identity with that certificate.
pub(crate) fn identity<S: MetaSnapshot>(
    snapshot: &mut S,
    fingerprint: &str,
) -> Result<Option<IdentityRow>, Fault<S::Error>> {
    get_row(snapshot, &identity_key(fingerprint), "an identity")
}

/// All identities whose fingerprints start with `prefix`, with their fingerprints.
pub(crate) fn identities<S: MetaSnapshot>(
    snapshot: &mut S,
    prefix: &str,
) -> Result<Vec<(String, IdentityRow)>, Fault<S::Error>> {
    let first = identity_key(prefix);
    let rows = snapshot.range(&first, &after(&first), usize::MAX).map_err(Fault::Store)?;
    let identity = |(key, value): (Vec<u8>, Vec<u8>)| {
        let fingerprint = key.get(1..).and_then(|key| String::from_utf8(key.to_vec()).ok());
        let fingerprint = fingerprint.ok_or(Fault::Damaged("an identity's key"))?;
        let row = postcard::from_bytes(&value).map_err(|_| Fault::Damaged("an identity"))?;
        Ok((fingerprint, row))
    };
    rows.into_iter().map(identity).collect()
}

/// Notes that an identity is in use, unless it went with its volume.
pub(crate) fn note_use<T: MetaTxn>(
    txn: &mut T,
    fingerprint: &str,
    (last, address): (i64, IpAddr),
) -> Result<(), Fault<T::Error>> {
    match identity(txn, fingerprint)? {
        Some(_) => put_row(txn, &use_key(fingerprint), &UseRow { last, address }),
        None => Ok(()),
    }
}

/// When an identity was used last, if it ever was.
pub(crate) fn last_use<S: MetaSnapshot>(
    snapshot: &mut S,
    fingerprint: &str,
) -> Result<Option<UseRow>, Fault<S::Error>> {
    get_row(snapshot, &use_key(fingerprint), "the last use of an identity")
}

fn use_key(fingerprint: &str) -> Vec<u8> {
    [&[USE][..], fingerprint.as_bytes()].concat()
}

/// Shuts an identity out from `now` on; one that is out stays so.
pub(crate) fn revoke<T: MetaTxn>(
    txn: &mut T,
    fingerprint: &str,
    now: i64,
) -> Result<(), Fault<T::Error>> {
    if let Some(mut row) = identity(txn, fingerprint)? {
        row.revoked = row.revoked.or(Some(now));
        put_row(txn, &identity_key(fingerprint), &row)?;
    }
    Ok(())
}

/// Shuts every identity out from `now` on, and ends every invite: both are of an authority that
/// is gone.
pub(crate) fn revoke_all<T: MetaTxn>(txn: &mut T, now: i64) -> Result<(), Fault<T::Error>> {
    for (fingerprint, _) in identities(txn, "")? {
        revoke(txn, &fingerprint, now)?;
    }
    let invites = txn.range(&[INVITE], &[INVITE + 1], usize::MAX).map_err(Fault::Store)?;
    invites.iter().try_for_each(|(key, _)| txn.remove(key)).map_err(Fault::Store)
}

/// What may be used of volume `from` may be used of `to`; returns the fingerprints of identities.
pub(crate) fn hand_over<T: MetaTxn>(
    txn: &mut T,
    from: VolumeId,
    to: VolumeId,
) -> Result<Vec<String>, Fault<T::Error>> {
    let mut fingerprints = Vec::new();
    for (fingerprint, row) in identities(txn, "")? {
        if row.volume == from {
            put_row(txn, &identity_key(&fingerprint), &IdentityRow { volume: to, ..row })?;
            fingerprints.push(fingerprint);
        }
    }
    for (key, row) in invites(txn)? {
        if row.volume == from {
            put_row(txn, &key, &InviteRow { volume: to, ..row })?;
        }
    }
    Ok(fingerprints)
}

/// Removes the identities and invites of a volume that goes; returns the fingerprints of the
/// identities.
pub(crate) fn forget<T: MetaTxn>(
    txn: &mut T,
    volume: VolumeId,
) -> Result<Vec<String>, Fault<T::Error>> {
    let mut fingerprints = Vec::new();
    for (fingerprint, row) in identities(txn, "")? {
        if row.volume == volume {
            txn.remove(&identity_key(&fingerprint)).map_err(Fault::Store)?;
            txn.remove(&use_key(&fingerprint)).map_err(Fault::Store)?;
            fingerprints.push(fingerprint);
        }
    }
    for (key, row) in invites(txn)? {
        if row.volume == volume {
            txn.remove(&key).map_err(Fault::Store)?;
        }
    }
    Ok(fingerprints)
}

/// An invite with its key.
type KeyedInvite = (Vec<u8>, InviteRow);

/// All invites.
fn invites<S: MetaSnapshot>(snapshot: &mut S) -> Result<Vec<KeyedInvite>, Fault<S::Error>> {
    let rows = snapshot.range(&[INVITE], &[INVITE + 1], usize::MAX).map_err(Fault::Store)?;
    let invite = |(key, value): (Vec<u8>, Vec<u8>)| {
        let row = postcard::from_bytes(&value).map_err(|_| Fault::Damaged("an invite"))?;
        Ok((key, row))
    };
    rows.into_iter().map(invite).collect()
}

/// Records an invite, and forgets those that expired long ago.
pub(crate) fn invite<T: MetaTxn>(
    txn: &mut T,
    code: &str,
    invite: &InviteRow,
    now: i64,
) -> Result<(), Fault<T::Error>> {
    for (key, row) in invites(txn)? {
        if row.expires < now - FORGET_SECONDS {
            txn.remove(&key).map_err(Fault::Store)?;
        }
    }
    put_row(txn, &invite_key(code), invite)
}

/// The invite, if `request` may use it at `now`.
pub(crate) fn valid<S: MetaSnapshot>(
    snapshot: &mut S,
    code: &str,
    request: &[u8; 32],
    now: i64,
) -> Result<Result<InviteRow, InviteError>, Fault<S::Error>> {
    let row: Option<InviteRow> = get_row(snapshot, &invite_key(code), "an invite")?;
    Ok(match row {
        None => Err(InviteError::Unknown),
        Some(row) => match &row.used {
            Some(used) if used.request != *request => Err(InviteError::Used),
            Some(_) => Ok(row),
            None if row.expires <= now => Err(InviteError::Expired),
            None => Ok(row),
        },
    })
}

/// What an invite came to.
pub(crate) struct Admission {
    pub(crate) certificate_pem: String,
    pub(crate) volume: VolumeId,
    pub(crate) role: Role,
}

/// Uses an invite: from now on `identity` has the certificate with that fingerprint. Returns
/// the certificate that counts, which is an earlier one if this request came before.
pub(crate) fn enrol<T: MetaTxn>(
    txn: &mut T,
    code: &str,
    used: Used,
    fingerprint: &str,
    host: &str,
    now: i64,
) -> Result<Result<Admission, InviteError>, Fault<T::Error>> {
    let mut row = match valid(txn, code, &used.request, now)? {
        Ok(row) => row,
        Err(error) => return Ok(Err(error)),
    };
    let (volume, role) = (row.volume, row.role);
    if let Some(Used { certificate_pem, .. }) = row.used {
        return Ok(Ok(Admission { certificate_pem, volume, role }));
    }
    let certificate_pem = used.certificate_pem.clone();
    row.used = Some(used);
    put_row(txn, &invite_key(code), &row)?;
    let identity = IdentityRow {
        host: host.to_owned(),
        volume: row.volume,
        role: row.role,
        no_root_squash: row.no_root_squash,
        created: now,
        revoked: None,
    };
    put_row(txn, &identity_key(fingerprint), &identity)?;
    Ok(Ok(Admission { certificate_pem, volume, role }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Store;

    const INVITE_ROW: InviteRow = InviteRow {
        volume: VolumeId(1),
        role: Role::Writer,
        no_root_squash: false,
        expires: 100,
        used: None,
    };

    #[test]
    fn an_invite_ends_on_time_and_lets_one_host_in() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::make(&dir.path().join("meta.db")).unwrap();
        store.write_blocking(|txn| invite(txn, "code", &INVITE_ROW, 0)).unwrap();
        let admit = |code: &'static str, request: u8, now| {
            let used = Used { request: [request; 32], certificate_pem: format!("of {request}") };
            let admitted =
                store.write_blocking(move |txn| enrol(txn, code, used, "print", "tin", now));
            admitted.unwrap().map(|admission| admission.certificate_pem)
        };
        assert_eq!(admit("other", 1, 50), Err(InviteError::Unknown));
        assert_eq!(admit("code", 1, 100), Err(InviteError::Expired));
        assert_eq!(admit("code", 1, 99), Ok("of 1".to_owned()));
        assert_eq!(admit("code", 1, 200), Ok("of 1".to_owned()), "the answer may have got lost");
        assert_eq!(admit("code", 2, 99), Err(InviteError::Used));
        let later = 100 + FORGET_SECONDS + 1;
        store.write_blocking(move |txn| invite(txn, "new", &INVITE_ROW, later)).unwrap();
        assert_eq!(admit("code", 2, 99), Err(InviteError::Unknown), "it is forgotten");
    }

    #[test]
    fn a_revoked_identity_keeps_the_time_of_its_first_revocation() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::make(&dir.path().join("meta.db")).unwrap();
        store.write_blocking(|txn| invite(txn, "code", &INVITE_ROW, 0)).unwrap();
        let used = Used { request: [1; 32], certificate_pem: String::new() };
        let row = store.write_blocking(|txn| {
            drop(enrol(txn, "code", used, "print", "tin", 5)?);
            revoke(txn, "print", 7)?;
            revoke(txn, "print", 9)?;
            revoke(txn, "nobody", 9)?;
            identities(txn, "pr")
        });
        let rows = row.unwrap();
        assert_eq!((rows.len(), rows[0].1.created, rows[0].1.revoked), (1, 5, Some(7)));
    }
}
