//! Calls of programs: what each means, when it is refused, and what it waits for.

mod below;
mod handles;
mod room;

pub use below::{UnsentBelow, is_below};
pub use handles::{Handles, OpenFile};
pub use room::{Growth, Quota, Room};
