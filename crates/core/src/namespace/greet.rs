//! The store's part of a hello: which cache connects, and which numbers it gets.
//!
//! A hello that is not welcome changes nothing.

use super::session::BindError;
use super::{Fault, MetaTxn, copied, lives, session};
use crate::nouns::{InoGrant, OpId, VolumeId};
use crate::wire::{Hello, History};

/// The numbers of a client that is welcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeted {
    /// Numbers for its new inodes.
    pub grants: Vec<InoGrant>,
    /// The versions of the volume, if the client knows a later one.
    pub history: Option<History>,
}

/// The reason why a client is not welcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unwelcome {
    /// Its cache is a copy, and the other copy has sent later records. It may come back as another
    /// client.
    Copied,
    /// It cannot be bound.
    Unbound(BindError),
}

/// Greets a client of `identity`, which is for `volume`.
pub fn greet<T: MetaTxn>(
    txn: &mut T,
    hello: &Hello,
    identity: &str,
    volume: VolumeId,
) -> Result<Result<Greeted, Unwelcome>, Fault<T::Error>> {
    let client = hello.client;
    let next = OpId { client, incarnation: hello.incarnation, seq: hello.next };
    if copied::is_copied(txn, next)? {
        return Ok(Err(Unwelcome::Copied));
    }
    match session::bind(txn, client, identity, volume, hello.incarnation)? {
        Ok(()) => {}
        Err(BindError::OldIncarnation) => return Ok(Err(Unwelcome::Copied)),
        Err(error) => return Ok(Err(Unwelcome::Unbound(error))),
    }
    let history = match hello.known {
        Some(known) => lives::history(txn, volume, known)?,
        None => None,
    };
    if let (Some(known), Some(_)) = (hello.known, &history) {
        lives::admit_lost(txn, volume, known)?;
    }
    if let Some(before) = hello.was {
        copied::inherit(txn, next, before)?;
    }
    session::raise_floor(txn, client, hello.incarnation, hello.acked_below)?;
    if session::grants(txn, client)?.is_empty() && session::grant(txn, client)?.is_none() {
        return Err(Fault::Damaged("a new client has too many grants"));
    }
    let grants = session::grants(txn, client)?;
    Ok(Ok(Greeted { grants, history }))
}
