//! What must hold: after each commit ([`ledger`]), for what applications were told ([`told`]), when
//! a client starts again ([`restart`]), and at the end ([`structure`], [`view`]).

pub(crate) mod ledger;
pub(crate) mod restart;
pub(crate) mod structure;
pub(crate) mod told;
pub(crate) mod view;
