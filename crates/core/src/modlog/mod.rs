//! The update log: the client's ordered list of changes that the server does not have yet.

mod record;

pub use record::{
    Base, INLINE_MAX, NewNode, Outcome, Piece, PieceBytes, Record, RenameMode, SetAttr, Stamped,
    Store,
};
