//! What must hold: after each commit ([`ledger`]), for what applications were told ([`told`]), when
//! a client starts again ([`restart`]), of what the server promised ([`promised`]), and at the end
//! ([`structure`], [`view`]).

pub(crate) mod ledger;
pub(crate) mod promised;
pub(crate) mod restart;
pub(crate) mod structure;
pub(crate) mod told;
pub(crate) mod view;
