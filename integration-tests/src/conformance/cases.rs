//! The cases: each begins with an empty database of a kind.
//!
//! Where the name of a failure of other systems is behind a case, its number is given (D1 to D50).

mod ends;
mod leases;
mod losses;
mod outside;
mod registration;
mod sessions;
mod settling;
mod upkeep;

pub use ends::*;
pub use leases::*;
pub use losses::*;
pub use outside::*;
pub use registration::*;
pub use sessions::*;
pub use settling::*;
pub use upkeep::*;
