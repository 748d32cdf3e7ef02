//! Upkeep of stores to which hosts have applied records, as `namespace::tests` does.

pub(crate) mod check;
mod collect;
mod orphans;
pub(crate) mod repair;
mod restore;
mod tidy;

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::{RemnantAges, dump};
use crate::namespace::MapStore as MapTxn;
use crate::namespace::tests::*;
use crate::namespace::*;
use crate::nouns::{
    Base, ClientId, Fingerprint, Ino, NewNode, OpId, Outcome, Piece, PieceBytes, Record, Store,
    Timestamp, VolumeId,
};
