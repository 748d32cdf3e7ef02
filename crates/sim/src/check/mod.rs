//! The checks: after each commit ([`ledger`]), of acknowledged calls ([`acknowledged`]), when a
//! client starts again ([`restart`]), gets bytes ([`clean`]) or merges duplicates ([`merged`]), of
//! files that its kernel reads ([`backed`]), of the server's promises ([`promised`]), of what its
//! kernel shows ([`kernel`]), and at the end ([`structure`], [`view`], [`bounded`]).

pub(crate) mod acknowledged;
pub(crate) mod backed;
pub(crate) mod bounded;
pub(crate) mod clean;
pub(crate) mod kernel;
pub(crate) mod ledger;
pub(crate) mod lives;
pub(crate) mod merged;
mod ordered;
mod outdated;
pub(crate) mod promised;
pub(crate) mod restart;
pub(crate) mod structure;
pub(crate) mod view;
