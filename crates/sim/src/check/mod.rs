//! What must hold: after each commit ([`ledger`]), for what applications were told ([`told`]), when
//! a client starts again ([`restart`]) or got bytes ([`clean`]), of what the server promised
//! ([`promised`]), and at the end ([`structure`], [`view`], [`bounded`]).

pub(crate) mod bounded;
pub(crate) mod clean;
pub(crate) mod ledger;
mod ordered;
pub(crate) mod promised;
pub(crate) mod restart;
pub(crate) mod structure;
pub(crate) mod told;
pub(crate) mod view;
