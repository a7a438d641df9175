//! What keeps a promise, each with a switch: a test that passes without it watches nothing.

#[cfg(feature = "torture")]
use std::sync::atomic::{AtomicU32, Ordering};

/// What can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Safeguard {
    /// A branch makes sure that it is still the transaction it began before it prepares.
    Guard,
    /// What a session runs outside of its branch's transaction cannot write.
    ReadOnlyOutside,
    /// An answer counts with the nonce of its own question only.
    Nonce,
    /// A call that was dropped half way ends the use of its session.
    Torn,
    /// A branch leaves its witness.
    Witness,
    /// *Never* is said after the fence has been placed, not when nothing was found.
    Fence,
    /// *No record* means rolled back once the opening is settled, not before.
    Settled,
    /// After its first failure the journal writes nothing and acknowledges nothing.
    Poison,
    /// A new segment's name is durable before its first record is acknowledged.
    DirectorySync,
    /// What was read at opening is durable before it is acted on.
    DurableBeforeActing,
    /// A branch is finished on the connection that prepared it, or that connection is closed.
    SameConnection,
    /// MariaDB's word from outside counts together with what the witness says.
    Proof,
    /// The formatID of XA ids is the highest there is.
    FormatId,
    /// A branch is ours by a full parse and an opening of this journal.
    Ownership,
    /// One program at a time decides and settles in a node's name.
    Lease,
    /// What was prepared under a lease is decided under the same one.
    UnderLease,
    /// A server is taken for the one that is known by its name when its data is.
    Lineage,
    /// Nothing is settled by an older copy of the journal.
    OlderCopy,
    /// An earlier opening is settled when its sessions are gone.
    SessionsEnd,
    /// A witness is deleted when the note that stands for it is durable.
    NoteBeforePruning,
}

impl Safeguard {
    /// Each.
    pub const ALL: [Self; 20] = [
        Self::Guard,
        Self::ReadOnlyOutside,
        Self::Nonce,
        Self::Torn,
        Self::Witness,
        Self::Fence,
        Self::Settled,
        Self::Poison,
        Self::DirectorySync,
        Self::DurableBeforeActing,
        Self::SameConnection,
        Self::Proof,
        Self::FormatId,
        Self::Ownership,
        Self::Lease,
        Self::UnderLease,
        Self::Lineage,
        Self::OlderCopy,
        Self::SessionsEnd,
        Self::NoteBeforePruning,
    ];

    /// `same-connection`
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::ReadOnlyOutside => "read-only-outside",
            Self::Nonce => "nonce",
            Self::Torn => "torn",
            Self::Witness => "witness",
            Self::Fence => "fence",
            Self::Settled => "settled",
            Self::Poison => "poison",
            Self::DirectorySync => "directory-sync",
            Self::DurableBeforeActing => "durable-before-acting",
            Self::SameConnection => "same-connection",
            Self::Proof => "proof",
            Self::FormatId => "format-id",
            Self::Ownership => "ownership",
            Self::Lease => "lease",
            Self::UnderLease => "under-lease",
            Self::Lineage => "lineage",
            Self::OlderCopy => "older-copy",
            Self::SessionsEnd => "sessions-end",
            Self::NoteBeforePruning => "note-before-pruning",
        }
    }
}

impl std::str::FromStr for Safeguard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| format!("there is no safeguard {text:?}"))
    }
}

#[cfg(feature = "torture")]
static OFF: AtomicU32 = AtomicU32::new(0);

/// Switches a safeguard off, for this process and for good.
#[cfg(feature = "torture")]
pub fn switch_off(safeguard: Safeguard) {
    OFF.fetch_or(1 << safeguard as u8, Ordering::SeqCst);
}

/// Whether a safeguard is on: always, without the feature.
#[inline]
pub(crate) fn is_on(safeguard: Safeguard) -> bool {
    #[cfg(feature = "torture")]
    return OFF.load(Ordering::Relaxed) & (1 << safeguard as u8) == 0;
    #[cfg(not(feature = "torture"))]
    {
        let _ = safeguard;
        true
    }
}
