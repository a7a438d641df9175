//! The decision table. Each row is a sentence about one branch; the tests prove that no two rows speak of the same
//! case, that no case is without a row, and that no row is idle.

/// What is remembered of a branch's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum History {
    /// Not this journal's: another node, another journal, or no branch that its incarnation could have made.
    Foreign,
    /// A coordinator of this process is at work on it.
    Live,
    /// The journal failed with its decision in hand: the record may be there when it is opened again, or not.
    Unsure,
    /// The anchor's own branch of a transaction without a record: its row would be the decision.
    Anchor,
    /// Another branch of a transaction without a record, whose anchor has not said yet whether it is decided.
    Anchored,
    /// Ours, ended or cut short, without a record.
    Undecided,
    /// Without a record, yet one of its branches proves that it was decided: this journal is an older copy.
    Stale,
    /// Decided, and the record names the branch.
    Decided,
    /// Decided, and the record does not name the branch.
    Unnamed,
    /// Decided, and every branch was known to be committed; or committed by its only writer: the journal keeps a bit of
    /// each, and the bit does not tell them apart.
    Finished,
    /// Committed by its only writer, which was never prepared; no record says so yet, its witness does.
    OnePhase,
    /// Ours, without a record, and records of its incarnation may have been lost: nobody can tell but a person.
    Incomplete,
    /// Ours, without a record, and its branches contradict that: found before and remembered, or now.
    Contradicted,
    /// A person decided that it commits.
    ResolvedCommit,
    /// A person decided that it is rolled back.
    ResolvedRollBack,
    /// It was damaged, and a person has dealt with it.
    Forgotten,
}

impl History {
    /// All values, in order.
    pub const ALL: [Self; 16] = [
        Self::Foreign,
        Self::Live,
        Self::Unsure,
        Self::Anchor,
        Self::Anchored,
        Self::Undecided,
        Self::Stale,
        Self::Decided,
        Self::Unnamed,
        Self::Finished,
        Self::OnePhase,
        Self::Incomplete,
        Self::Contradicted,
        Self::ResolvedCommit,
        Self::ResolvedRollBack,
        Self::Forgotten,
    ];

    /// The decision as a word for people and programs: `commit`, `one_phase`, `none`, or why there is none to tell.
    pub fn decision(self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Live => "live",
            Self::Unsure => "unsure",
            Self::Anchor | Self::Anchored => "at_anchor",
            Self::Undecided | Self::Contradicted => "none",
            Self::Stale => "stale",
            Self::Decided | Self::Unnamed | Self::Finished => "commit",
            Self::OnePhase => "one_phase",
            Self::Incomplete => "lost",
            Self::ResolvedCommit => "resolved_commit",
            Self::ResolvedRollBack => "resolved_roll_back",
            Self::Forgotten => "forgotten",
        }
    }
}

/// What the scan of a branch's own participant shows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sighting {
    /// It is prepared.
    Listed,
    /// The list is complete, and it is not in it.
    NotListed,
    /// There is no complete list: never the same as an empty one.
    NotScanned,
    /// The branch's data is not where its participant's name leads now: the lineage is another, or only a
    /// participant of another name lists it.
    OtherData,
    /// The server that may have held it was given up, and no other lists it.
    GivenUp,
}

impl Sighting {
    /// All values, in order.
    pub const ALL: [Self; 5] = [Self::Listed, Self::NotListed, Self::NotScanned, Self::OtherData, Self::GivenUp];

    /// The sighting as a word for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "prepared",
            Self::NotListed => "not_prepared",
            Self::NotScanned => "not_scanned",
            Self::OtherData => "other_data",
            Self::GivenUp => "given_up",
        }
    }
}

/// What is proven of a branch by its witness, since the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Nobody asked and nobody wants to know.
    NotAsked,
    /// Nobody asked yet, and somebody wants to know: a coordinator left it, or its outcome was asked for.
    Wanted,
    /// It committed as a decided branch, by its witness or by the server's positive answer to our own commit.
    Committed,
    /// It committed as the only writer of its transaction, by its witness.
    CommittedAlone,
    /// It has not committed and never will: the fence stands.
    Never,
    /// No witness is visible. That may change.
    Nothing,
    /// The fence waits for a row that is neither committed nor gone: somebody holds the branch.
    Blocked,
    /// Its participant keeps no witness.
    Off,
}

impl Evidence {
    /// All values, in order.
    pub const ALL: [Self; 8] = [
        Self::NotAsked,
        Self::Wanted,
        Self::Committed,
        Self::CommittedAlone,
        Self::Never,
        Self::Nothing,
        Self::Blocked,
        Self::Off,
    ];

    /// Whether a witness proves a commit.
    pub fn is_commit(self) -> bool {
        matches!(self, Self::Committed | Self::CommittedAlone)
    }

    /// The evidence as a word for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotAsked | Self::Wanted => "not_asked",
            Self::Committed => "committed",
            Self::CommittedAlone => "committed_one_phase",
            Self::Never => "never_committed",
            Self::Nothing => "nothing",
            Self::Blocked => "blocked",
            Self::Off => "off",
        }
    }
}

/// What is to be done about a branch, the least pressing first: a transaction's action is the greatest of its
/// branches'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Nothing: as far as anybody can tell it has ended as it should.
    Nothing,
    /// Nothing: it is somebody else's.
    Leave,
    /// Take it for committed: that is proven.
    Finish,
    /// Take it for committed, and say that there is no proof: its participant keeps no witness.
    FinishUnproven,
    /// Roll it back, from the resolver's connection.
    RollBack,
    /// Commit it, from the resolver's connection.
    Commit,
    /// Insert the fence, and plan again with the answer.
    Ask,
    /// Look again later.
    Wait,
    /// Touch nothing until a person decides: what the journal knew was lost.
    Resolve,
    /// Touch nothing and tell a person: the facts contradict each other.
    Damage,
}

impl Action {
    /// All values, in order.
    pub const ALL: [Self; 10] = [
        Self::Nothing,
        Self::Leave,
        Self::Finish,
        Self::FinishUnproven,
        Self::RollBack,
        Self::Commit,
        Self::Ask,
        Self::Wait,
        Self::Resolve,
        Self::Damage,
    ];

    /// The action as a word for people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Leave => "leave",
            Self::Finish => "finish",
            Self::FinishUnproven => "finish_unproven",
            Self::RollBack => "roll_back",
            Self::Commit => "commit",
            Self::Ask => "ask",
            Self::Wait => "wait",
            Self::Resolve => "resolve",
            Self::Damage => "damage",
        }
    }

    /// Whether nobody need ask any more what became of the branch.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Nothing | Self::Finish | Self::FinishUnproven | Self::Damage)
    }

    /// Whether it sends something to a participant.
    pub fn is_work(self) -> bool {
        matches!(self, Self::RollBack | Self::Commit | Self::Ask)
    }
}

/// A row of the table. An empty column matches everything.
#[derive(Debug)]
pub struct Row {
    /// The row's name, unique.
    pub label: &'static str,
    /// The histories that it speaks of.
    pub history: &'static [History],
    /// The sightings that it speaks of.
    pub sighting: &'static [Sighting],
    /// The evidence that it speaks of.
    pub evidence: &'static [Evidence],
    /// What is to be done.
    pub action: Action,
    /// Why, in words that an operator can act on.
    pub why: &'static str,
}

impl Row {
    /// Whether the row speaks of this case.
    pub fn matches(&self, history: History, sighting: Sighting, evidence: Evidence) -> bool {
        fn holds<T: PartialEq>(column: &[T], value: &T) -> bool {
            column.is_empty() || column.contains(value)
        }
        holds(self.history, &history) && holds(self.sighting, &sighting) && holds(self.evidence, &evidence)
    }
}

use Action::{Ask, Commit, Damage, Finish, FinishUnproven, Leave, Nothing, Resolve, RollBack, Wait};
use Evidence as E;
use History as H;
use Sighting as S;

/// The decision table.
#[rustfmt::skip]
pub static TABLE: &[Row] = &[
    row("foreign",              &[H::Foreign],   &[],                             &[],         Leave,
        "it is not this journal's"),
    row("live",                 &[H::Live],      &[],                             &[],         Leave,
        "its coordinator is at work"),
    row("unsure",               &[H::Unsure],    &[],                             &[],         Wait,
        "its decision was written to the journal but is not known to be durable: the next opening (`handfast recover`, \
         or the application's) makes it so and commits, or finds that it is not there"),
    row("stale",                &[H::Stale],     &[],                             &[],         Damage,
        "a branch proves a decision that this journal does not hold: the journal is an older copy"),
    row("forgotten",            &[H::Forgotten], NOT_THERE,                       &[],         Nothing,
        "it was damaged, and a person has dealt with it"),
    row("forgotten, back",      &[H::Forgotten], &[S::Listed],                    &[],         Resolve,
        "it was damaged, a person has dealt with it, and it is prepared: only that person can tell which way it goes"),

    row("anchor, asked",        &[H::Anchor],    &[S::NotListed],                 OPEN,        Ask,
        "its row here would be the decision: the row tells, or the fence in its place"),
    row("anchor, held",         &[H::Anchor],    &[S::NotListed],                 &[E::Blocked], Wait,
        "a session is just deciding it"),
    row("anchor, answered",     &[H::Anchor],    &[S::NotListed],                 PROVEN,      Wait,
        "its row here has answered, and was not read"),
    row("anchor, silent",       &[H::Anchor],    &[S::NotListed],                 &[E::Off],   Resolve,
        "its row here would be the decision, and this participant keeps none: a person has to decide"),
    row("anchor, there",        &[H::Anchor],    &[S::Listed],                    &[],         Damage,
        "its own commit would be the decision, and it is prepared"),
    row("anchor, unseen",       &[H::Anchor],    &[S::NotScanned, S::OtherData],  &[],         Wait,
        "its row here would be the decision, and cannot be looked for"),
    row("anchor, given up",     &[H::Anchor],    &[S::GivenUp],                   &[],         Resolve,
        "its row would be the decision, and the server that may hold it was given up: a person has to decide"),
    row("anchored",             &[H::Anchored],  LOOKED_FOR,                      &[],         Wait,
        "its anchor has not said yet whether it is decided"),
    row("anchored, given up",   &[H::Anchored],  &[S::GivenUp],                   &[],         Nothing,
        "its anchor has not said yet whether it is decided, and the server that may have held it was given up"),

    row("decided, there",       &[H::Decided],   &[S::Listed],                    UNPROVEN,    Commit,
        "the decision is to commit"),
    row("decided, both",        &[H::Decided],   &[S::Listed],                    PROVEN,      Damage,
        "it is prepared, and its witness says that it has ended"),
    row("decided, gone",        &[H::Decided],   &[S::NotListed],                 OPEN,        Ask,
        "the decision is to commit and it is no longer prepared: its witness tells whether it committed"),
    row("decided, proven",      &[H::Decided],   &[S::NotListed],                 &[E::Committed], Finish,
        "it committed"),
    row("decided, against",     &[H::Decided],   &[S::NotListed],                 AGAINST,     Damage,
        "the decision is to commit, and it was rolled back by somebody else"),
    row("decided, held",        &[H::Decided],   &[S::NotListed],                 &[E::Blocked], Wait,
        "another session is just ending it"),
    row("decided, unprovable",  &[H::Decided],   &[S::NotListed],                 &[E::Off],   FinishUnproven,
        "it is no longer prepared; this participant keeps no witness to prove that it committed"),
    row("decided, unseen",      &[H::Decided],   &[S::NotScanned],                &[],         Wait,
        "the decision is to commit, and it cannot be seen whether it is there"),
    row("decided, elsewhere",   &[H::Decided],   &[S::OtherData],                 &[],         Wait,
        "the decision is to commit, and its participant's name leads to other data now"),
    row("decided, given up",    &[H::Decided],   &[S::GivenUp],                   &[],         Damage,
        "the decision is to commit, and the server that held it was given up: nobody can tell whether it committed"),

    row("unnamed, there",       &[H::Unnamed],   &[S::Listed],                    &[],         Damage,
        "its transaction was decided without it, and it is prepared"),
    row("unnamed, committed",   &[H::Unnamed],   &[S::NotListed],                 COMMITTED,   Damage,
        "its transaction was decided without it, and it committed"),
    row("unnamed, gone",        &[H::Unnamed],   &[S::NotListed],                 UNCOMMITTED, Nothing,
        "its transaction was decided without it, and it is not there"),
    row("unnamed, given up",    &[H::Unnamed],   &[S::GivenUp],                   &[],         Nothing,
        "its transaction was decided without it, and the server that may have held it was given up"),
    row("unnamed, unseen",      &[H::Unnamed],   &[S::NotScanned, S::OtherData],  &[],         Wait,
        "its transaction was decided without it, and it cannot be seen whether it is there"),

    row("finished, back",       &[H::Finished],  &[S::Listed],                    UNPROVEN,    Commit,
        "it was committed before, and its server has brought it back: the decision still holds"),
    row("finished, both",       &[H::Finished],  &[S::Listed],                    PROVEN,      Damage,
        "it is prepared, and its witness says that it has ended"),
    row("finished, against",    &[H::Finished],  &[S::NotListed],                 &[E::Never], Damage,
        "it was known to be committed, and its fence says that it never did"),
    row("finished",             &[H::Finished],  &[S::NotListed],                 NOT_NEVER,   Nothing,
        "it committed"),
    row("finished, unseen",     &[H::Finished],  &[S::NotScanned, S::GivenUp],    &[],         Nothing,
        "it committed"),
    row("finished, elsewhere",  &[H::Finished],  &[S::OtherData],                 &[],         Wait,
        "it was committed before, and a participant of another name lists it"),

    row("one phase, there",     &[H::OnePhase],  &[S::Listed],                    &[],         Damage,
        "its transaction was committed by one writer alone, and it is prepared"),
    row("one phase, decided",   &[H::OnePhase],  &[S::NotListed],                 &[E::Committed], Damage,
        "its transaction was committed by one writer alone, and its witness speaks of a decision"),
    row("one phase",            &[H::OnePhase],  &[S::NotListed],                 NOT_DECIDED, Nothing,
        "its transaction was committed by one writer alone"),
    row("one phase, unseen",    &[H::OnePhase],  &[S::NotScanned, S::GivenUp],    &[],         Nothing,
        "its transaction was committed by one writer alone"),
    row("one phase, elsewhere", &[H::OnePhase],  &[S::OtherData],                 &[],         Wait,
        "its transaction was committed by one writer alone, and a participant of another name lists it"),

    row("undecided, there",     &[H::Undecided], &[S::Listed],                    UNCOMMITTED, RollBack,
        "there is no decision to commit, and there will be none"),
    row("undecided, committed", &[H::Undecided], &[S::Listed, S::NotListed],      COMMITTED,   Damage,
        "there is no decision to commit, and it committed"),
    row("undecided, asked",     &[H::Undecided], &[S::NotListed],                 &[E::Wanted], Ask,
        "there is no decision to commit: its fence tells whether it can still come"),
    row("undecided, held",      &[H::Undecided], &[S::NotListed],                 &[E::Blocked], Wait,
        "a session still holds it"),
    row("undecided, gone",      &[H::Undecided], &[S::NotListed],                 AT_REST,     Nothing,
        "there is no decision to commit, and it is not there"),
    row("undecided, unseen",    &[H::Undecided], &[S::NotScanned, S::OtherData],  &[],         Wait,
        "there is no decision to commit, and it cannot be seen whether it is there"),
    row("undecided, given up",  &[H::Undecided], &[S::GivenUp],                   &[],         Nothing,
        "there is no decision to commit, and the server that may have held it was given up"),

    row("lost, there",          &[H::Incomplete], &[S::Listed],                   UNPROVEN,    Resolve,
        "its decision may have been lost with records of the journal: a person has to decide, by `handfast resolve`"),
    row("lost, both",           &[H::Incomplete], &[S::Listed],                   PROVEN,      Damage,
        "it is prepared, and its witness says that it has ended"),
    row("lost, asked",          &[H::Incomplete], &[S::NotListed],                &[E::Wanted], Ask,
        "its decision may have been lost with records of the journal: its witness tells whether it committed"),
    row("lost, held",           &[H::Incomplete], &[S::NotListed],                &[E::Blocked], Wait,
        "a session still holds it"),
    row("lost, gone",           &[H::Incomplete], &[S::NotListed],                ENDED,       Nothing,
        "it is not there; whether its transaction was decided is lost"),
    row("lost, unseen",         &[H::Incomplete], &[S::NotScanned, S::OtherData], &[],         Wait,
        "its decision may have been lost with records of the journal, and it cannot be seen whether it is there"),
    row("lost, given up",       &[H::Incomplete], &[S::GivenUp],                  &[],         Nothing,
        "the server that may have held it was given up; whether its transaction was decided is lost"),

    row("contradicted, there",  &[H::Contradicted], &[S::Listed],                 &[],         Resolve,
        "its transaction is damaged and no record decides it: a person has to, by `handfast resolve`"),
    row("contradicted, committed", &[H::Contradicted], &[S::NotListed],           COMMITTED,   Damage,
        "its transaction is damaged and no record decides it, and it committed"),
    row("contradicted, asked",  &[H::Contradicted], &[S::NotListed],              &[E::Wanted], Ask,
        "its transaction is damaged and no record decides it: its witness tells whether it committed"),
    row("contradicted, held",   &[H::Contradicted], &[S::NotListed],              &[E::Blocked], Wait,
        "a session still holds it"),
    row("contradicted, gone",   &[H::Contradicted], &[S::NotListed],              AT_REST,     Nothing,
        "its transaction is damaged and no record decides it, and it is not there"),
    row("contradicted, unseen", &[H::Contradicted], &[S::NotScanned, S::OtherData], &[],       Wait,
        "its transaction is damaged and no record decides it, and it cannot be seen whether it is there"),
    row("contradicted, given up", &[H::Contradicted], &[S::GivenUp],              &[],         Nothing,
        "its transaction is damaged, and the server that may have held it was given up"),

    row("resolved, to commit",  &[H::ResolvedCommit], &[S::Listed],               UNPROVEN,    Commit,
        "a person decided to commit it"),
    row("resolved, to roll back", &[H::ResolvedRollBack], &[S::Listed],           UNPROVEN,    RollBack,
        "a person decided to roll it back"),
    row("resolved, both",       RESOLVED,        &[S::Listed],                    PROVEN,      Damage,
        "it is prepared, and its witness says that it has ended"),
    row("resolved, never",      &[H::ResolvedCommit], &[S::NotListed],            &[E::Never], Damage,
        "a person decided to commit it, and it was rolled back"),
    row("resolved, committed",  &[H::ResolvedRollBack], &[S::NotListed],          COMMITTED,   Damage,
        "a person decided to roll it back, and it committed"),
    row("resolved to commit, gone", &[H::ResolvedCommit], &[S::NotListed],        NOT_NEVER,   Nothing,
        "a person decided to commit it, and it is not prepared any more"),
    row("resolved to roll back, gone", &[H::ResolvedRollBack], &[S::NotListed],   UNCOMMITTED, Nothing,
        "a person decided to roll it back, and it is not there"),
    row("resolved, unseen",     RESOLVED,        &[S::NotScanned, S::OtherData],  &[],         Wait,
        "a person has decided, and it cannot be seen whether it is there"),
    row("resolved, given up",   RESOLVED,        &[S::GivenUp],                   &[],         Nothing,
        "a person has decided, and the server that may have held it was given up"),
];

/// It is not known to be prepared.
const NOT_THERE: &[Sighting] = &[S::NotListed, S::NotScanned, S::OtherData, S::GivenUp];
/// It is somewhere, or may be.
const LOOKED_FOR: &[Sighting] = &[S::Listed, S::NotListed, S::NotScanned, S::OtherData];
const RESOLVED: &[History] = &[H::ResolvedCommit, H::ResolvedRollBack];

/// The witness has spoken.
const PROVEN: &[Evidence] = &[E::Committed, E::CommittedAlone, E::Never];
/// It has not.
const UNPROVEN: &[Evidence] = &[E::NotAsked, E::Wanted, E::Nothing, E::Blocked, E::Off];
/// A question can still be put.
const OPEN: &[Evidence] = &[E::NotAsked, E::Wanted, E::Nothing];
/// What a decided branch must not show.
const AGAINST: &[Evidence] = &[E::CommittedAlone, E::Never];
const COMMITTED: &[Evidence] = &[E::Committed, E::CommittedAlone];
const UNCOMMITTED: &[Evidence] = &[E::NotAsked, E::Wanted, E::Never, E::Nothing, E::Blocked, E::Off];
/// What only a decided branch shows is missing.
const NOT_DECIDED: &[Evidence] = &[E::NotAsked, E::Wanted, E::CommittedAlone, E::Never, E::Nothing, E::Blocked, E::Off];
const NOT_NEVER: &[Evidence] =
    &[E::NotAsked, E::Wanted, E::Committed, E::CommittedAlone, E::Nothing, E::Blocked, E::Off];
/// Whatever became of it, it is over.
const ENDED: &[Evidence] = &[E::NotAsked, E::Committed, E::CommittedAlone, E::Never, E::Nothing, E::Off];
/// Nobody waits for more.
const AT_REST: &[Evidence] = &[E::NotAsked, E::Never, E::Nothing, E::Off];

const fn row(
    label: &'static str,
    history: &'static [History],
    sighting: &'static [Sighting],
    evidence: &'static [Evidence],
    action: Action,
    why: &'static str,
) -> Row {
    Row { label, history, sighting, evidence, action, why }
}

/// The one row that speaks of this case.
pub fn decide(history: History, sighting: Sighting, evidence: Evidence) -> &'static Row {
    let mut matching = TABLE.iter().filter(|row| row.matches(history, sighting, evidence));
    let row = matching.next().expect("a test goes through all cases and finds a row for each");
    assert!(matching.next().is_none(), "two rows for {history:?}, {sighting:?}, {evidence:?}");
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn cases() -> impl Iterator<Item = (History, Sighting, Evidence)> {
        H::ALL
            .into_iter()
            .flat_map(|h| S::ALL.into_iter().flat_map(move |s| E::ALL.into_iter().map(move |e| (h, s, e))))
    }

    #[test]
    fn every_case_has_exactly_one_row_and_every_row_a_case() {
        let mut used = BTreeSet::new();
        for (history, sighting, evidence) in cases() {
            let rows: Vec<_> = TABLE.iter().filter(|row| row.matches(history, sighting, evidence)).collect();
            let labels: Vec<_> = rows.iter().map(|row| row.label).collect();
            assert_eq!(labels.len(), 1, "{history:?} {sighting:?} {evidence:?}: {labels:?}");
            used.insert(labels[0]);
        }
        assert_eq!(used.len(), TABLE.len(), "rows that nothing matches, or labels that come twice");
        assert_eq!(cases().count(), 16 * 5 * 8);
    }

    #[test]
    fn only_a_decision_commits_and_only_its_absence_rolls_back() {
        for (history, sighting, evidence) in cases() {
            let action = decide(history, sighting, evidence).action;
            match action {
                Commit => {
                    assert!(matches!(history, H::Decided | H::Finished | H::ResolvedCommit) && sighting == S::Listed);
                }
                RollBack => assert!(matches!(history, H::Undecided | H::ResolvedRollBack) && sighting == S::Listed),
                Ask => {
                    let open =
                        matches!(history, H::Anchor | H::Decided | H::Undecided | H::Incomplete | H::Contradicted);
                    assert!(open && sighting == S::NotListed);
                }
                Finish | FinishUnproven => assert!(history == H::Decided && sighting == S::NotListed),
                Nothing | Leave | Wait | Resolve | Damage => {}
            }
        }
    }

    #[test]
    fn what_is_not_ours_or_not_over_is_left_alone() {
        for (history, sighting, evidence) in cases() {
            if matches!(history, H::Foreign | H::Live | H::Unsure | H::Stale | H::Forgotten) {
                assert!(!decide(history, sighting, evidence).action.is_work());
            }
        }
    }

    /// Where nothing is known to decide, only a person does.
    #[test]
    fn without_a_valid_word_nothing_prepared_is_touched() {
        for (history, evidence) in H::ALL.into_iter().flat_map(|h| E::ALL.map(|e| (h, e))) {
            let action = decide(history, S::Listed, evidence).action;
            match history {
                H::Incomplete | H::Contradicted | H::Forgotten => assert!(matches!(action, Resolve | Damage)),
                H::Stale | H::Unnamed | H::OnePhase | H::Anchor => assert_eq!(action, Damage),
                H::Anchored => assert_eq!(action, Wait),
                _ => assert_ne!(action, Resolve),
            }
        }
    }

    /// What was given up comes to rest, or is damaged; nobody waits for it.
    #[test]
    fn given_up_is_the_end() {
        for (history, evidence) in H::ALL.into_iter().flat_map(|h| E::ALL.map(|e| (h, e))) {
            let action = decide(history, S::GivenUp, evidence).action;
            match history {
                H::Foreign | H::Live | H::Unsure => assert!(!action.is_work()),
                H::Decided | H::Stale => assert_eq!(action, Damage, "nobody can tell whether it committed"),
                H::Anchor => assert_eq!(action, Resolve, "nobody can tell whether it was decided"),
                _ => assert_eq!(action, Nothing),
            }
        }
    }

    /// D20: a scan that failed is not an empty list.
    #[test]
    fn nothing_is_done_about_a_branch_that_could_not_be_looked_for() {
        for (history, sighting, evidence) in cases() {
            if matches!(sighting, S::NotScanned | S::OtherData | S::GivenUp) {
                let action = decide(history, sighting, evidence).action;
                assert!(!action.is_work() && !matches!(action, Finish | FinishUnproven));
            }
        }
    }

    /// D03: *not found* is never taken for *committed*.
    #[test]
    fn a_decided_branch_finishes_only_with_proof_or_where_none_can_be_had() {
        for evidence in E::ALL {
            match decide(H::Decided, S::NotListed, evidence).action {
                Finish => assert_eq!(evidence, E::Committed),
                FinishUnproven => assert_eq!(evidence, E::Off),
                action => assert!(matches!(action, Ask | Wait | Damage)),
            }
        }
    }

    #[test]
    fn a_question_is_put_once() {
        for (history, sighting) in H::ALL.into_iter().flat_map(|h| S::ALL.map(|s| (h, s))) {
            for answer in [E::Committed, E::CommittedAlone, E::Never, E::Blocked, E::Off] {
                assert_ne!(decide(history, sighting, answer).action, Ask, "planning again would not end");
            }
        }
    }

    #[test]
    fn words_are_distinct() {
        let words: BTreeSet<_> = Action::ALL.iter().map(|action| action.as_str()).collect();
        assert_eq!(words.len(), Action::ALL.len());
        assert!(H::ALL.iter().all(|history| !history.decision().is_empty()));
        assert!(S::ALL.iter().all(|sighting| !sighting.as_str().is_empty()));
        assert!(E::ALL.iter().all(|evidence| !evidence.as_str().is_empty()));
    }
}
