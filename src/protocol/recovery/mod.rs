//! Recovery: what is to become of a branch, from what is remembered, seen and proven.
//!
//! A pass of the resolver has three steps, and only the first and the last touch the world:
//!
//! 1. **Observe.** [`Observation::new`] first. Then each participant is asked for its whole list of prepared branches:
//!    a [`Scan`], complete or failed, never in between ([`Observation::scanned`]). Branches that a coordinator left, or
//!    that somebody asks about, are added with [`Observation::want`].
//! 2. **Plan.** [`plan`] looks every branch up in [`TABLE`], the decision table [`History`] x [`Sighting`] x
//!    [`Evidence`] -> [`Action`], where exactly one row matches each combination. The [`Plan`] is a value: a dry run
//!    prints it.
//! 3. **Apply.** [`Plan::work`] is carried out, what was heard goes back into the observation, and step 2 is repeated
//!    until no work is left. Then [`Plan::notes`] are written and the observation is thrown away.
//!
//! | action | what is heard | goes back as |
//! |---|---|---|
//! | [`Action::Commit`] | a positive answer that is proof | [`Observation::committed`] |
//! | [`Action::Commit`] | a positive answer that needs the witness to be one | [`Observation::gone`] |
//! | [`Action::RollBack`] | a positive answer | [`Observation::gone`] |
//! | [`Action::Ask`] | the witness table's answer to the fence | [`Observation::heard`] |
//! | any | a refusal, of this branch | [`Observation::unclear`] |
//! | any | anything else | [`Observation::lost_sight`] |
//!
//! This ends: an answer is final for its pass, and a branch or participant that gives none is out of sight for the rest
//! of it. Coordinators that end meanwhile may leave new work; whoever applies the plan bounds how often it plans anew.
//!
//! Three rules of order make this safe beside a coordinator that is at work in the same process:
//!
//! * **The scan comes before the memory.** A branch that a scan shows, and whose transaction is not live *afterwards*,
//!   belongs to a transaction that has ended: ids never come twice, so it cannot become live again. The other way
//!   round, a transaction begun between the two would look like a dead one without a record, and be rolled back.
//!   [`plan`] takes finished scans and reads the [`Memory`] itself, so the wrong order cannot be written.
//! * **Absence needs the opposite.** That a decided branch is not listed says that it has ended only when the decision
//!   was there before the scan: otherwise it may have been prepared in between. So [`Observation::new`] notes the open
//!   decisions before the first scan, and a younger one waits for the next pass.
//! * **A transaction stops being live only after its record is there.** So [`plan`] asks [`Memory::is_live`] first and
//!   [`Memory::recall`] second, and a memory that changes in between is no danger.
//!
//! Apart from single branches, a pass finds out whether whole incarnations of the past are [settled](Settling), so that
//! *no record* of theirs means rolled back without asking anybody.
//!
//! Before the first rollback, and so before the first pass applies anything, every participant in reach is asked whether
//! this journal is the one that decided, or an [older copy](Stale) of it: to a copy, a transaction whose decision it lacks
//! looks like one without, and nothing in the table could tell. [`unknown_opening`] and [`unknown_decision`] judge what
//! they show. What cannot be seen in this way: what a participant would say that is down; rows that were pruned, though
//! the row of the last decision always stays; commits of one writer alone.
//!
//! Evidence is gathered after the scan, about branches that the scan does not show, and is thrown away with it. A
//! server that is restored from a backup may take back what it once proved. Only what contradicts itself is remembered,
//! [for ever](Plan::damages): the next pass may see nothing of it, and a branch without a decision whose sibling was once
//! seen to have committed must not be rolled back. Its history is [`History::Contradicted`], until a person decides.

mod observation;
mod outcome;
mod plan;
mod settled;
mod sight;
mod stale;
mod table;
#[cfg(test)]
pub(super) mod tests;

pub use observation::{Memory, Observation, Recalled, Scan};
pub use outcome::{outcome_of, questions};
pub use plan::{BranchPlan, ForeignBranch, Plan, TransactionPlan, Unscanned, plan};
pub use settled::{Settling, Verdict, Why};
pub use stale::{RegistryRow, Sign, Stale, WitnessRow, unknown_decision, unknown_opening};
pub use table::{Action, Evidence, History, Row, Sighting, TABLE, decide};
