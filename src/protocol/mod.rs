//! Two-phase commit with presumed abort, as values.
//!
//! This module decides what is done about a transaction over several databases, and does none of it. It knows no
//! clock, socket, file, runtime or random number: a [`Coordinator`] is told what happened and says what to do next,
//! [`recovery`] turns what was seen into a plan. Others act. So every schedule of votes, losses and crashes is a
//! sequence of function calls, and the tests here go through all of them.
//!
//! THE PROBLEM
//!
//! A transaction has a *branch* on each participant. Each database can commit or roll back its own branch, and after
//! either no power on earth can make it do the other. All branches must take the same way, though every process may
//! die between any two steps and every message may be lost, late, or heard by nobody.
//!
//! It cannot be done in one step. Whoever commits first, without knowing that the others can, may be alone with it.
//! So the databases are first asked for a promise: a *prepared* branch is durable and can still go either way, by
//! itself, after any crash. When all have promised, one durable fact, written in one place, decides for all; from
//! then on committing is only a matter of time.
//!
//! THE PROTOCOL
//!
//! 1. The application asks for commit. Every writing branch is told to prepare ([`Output::Prepare`]), all at once.
//! 2. Each answers with a [`Vote`]. `Prepared` is a proven promise; no answer is `Unknown`, and never a yes.
//! 3. When every vote is a yes, the decision is handed to the journal ([`Output::Append`]): one record that names every
//!    prepared branch, its participant and the lineage of its data. When the journal says [`Input::Durable`], the
//!    transaction *is* committed. Nothing before that moment has committed anything, nothing after it can abort.
//! 4. Every prepared branch is told to commit ([`Output::Commit`]), all at once. When all have said that they did, the
//!    record is noted as done ([`Output::Note`]), without forcing: if the note is lost, recovery finds out again.
//!
//! Anything but a yes before step 3, a deadline, or the application's own rollback aborts: every branch is told to
//! roll back ([`Output::RollBack`]), and nothing is written at all. *No record means abort.* That is the presumption
//! of *presumed abort* (Mohan, Lindsay, Obermarck, "Transaction Management in the R* Distributed Database Management
//! System", ACM TODS 11(4), 1986). It costs a forced write to commit and none to abort, and makes the coordinator
//! that died before step 3 indistinguishable from one that never began: recovery treats both alike, and is right.
//!
//! The answer to the application waits for as little as it can. That of an abort waits for nothing: once it is
//! certain that no decision will be made, nobody will ever commit, so `RolledBack` is true whether the branches have
//! heard of it or not. That of a commit waits for the decision, and by default ([`Acknowledge::Applied`]) for phase two
//! as well, so that the application reads what it wrote.
//!
//! WHEN ONE WRITER IS ENOUGH
//!
//! With a single writing branch the decision can be left to it: its own commit is atomic already. The coordinator
//! asks for [`Output::CommitOnePhase`], X/Open's `TMONEPHASE`, without prepare and without a record; the outcome is
//! noted afterwards, unforced. The price is the lost answer: nothing was promised, so nothing can be asked again, and
//! the outcome is [`InDoubt`](Outcome::InDoubt) until the writer's witness tells. It is never sent a second time.
//!
//! A branch that was *declared* read-only has nothing to promise. It ends in phase one with a checked commit
//! ([`Output::EndReadOnly`]), holds no locks through phase two and is not named in the record: R*'s READ vote, X/Open's
//! `XA_RDONLY`. Its commit can fail (a serialization failure shows what was read never was true), so all of them must
//! have ended well before the decision, and before a single writer is told to commit. Without any writer nothing was
//! written, and nothing is remembered.
//!
//! A [`Payload`] lives in the decision record and nowhere else. With one, even a single writer is prepared.
//!
//! WITHOUT A JOURNAL: THE ANCHOR
//!
//! The one durable fact may be kept by a participant, the *anchor* ([`Coordinator::anchored`]). All others prepare. When
//! every vote is a yes the anchor commits plainly, never having been prepared, with a row inside its transaction that
//! lists the branches ([`Output::CommitAnchor`]): that row is the decision, and what holds of a durable record holds of
//! it from then on. It is R*'s and X/Open's *last agent*: a single writer that decides, with others waiting for it. So
//! the coordinator treats it like one: a refusal rolls the others back, a lost answer leaves all to recovery, in doubt.
//!
//! No row is no decision yet. A record that is not in the journal of a dead process will never be; a row may still be on
//! its way. So recovery asks the anchor before it touches what is prepared: the row is there, and the others commit; or
//! the fence is put in its place, and they are rolled back. The primary key lets one of the two in, whoever comes first,
//! and were the coordinator alive: its commit then fails, which is a refusal. An anchor that is silent holds all of its
//! transactions, as a journal would that cannot be read.
//!
//! Coordinators of several processes may share an anchor, and a node's name. Each holds a lock there for its
//! incarnation, and recovery leaves alone what is locked ([`recovery::Memory::is_live`]). The lock saves work and lives;
//! truth rests on the key. The row goes when every participant has answered positively ([`Record::Done`]), and its
//! outcome is kept in its place: without either, a branch that came back would look undecided.
//!
//! THE TEXTBOOKS' WORDS
//!
//! | here | Bernstein, Hadzilacos, Goodman | R* | X/Open XA |
//! |---|---|---|---|
//! | [`Output::Prepare`] | VOTE_REQUEST | PREPARE | `xa_prepare` |
//! | [`Vote::Prepared`] | YES (VOTE_COMMIT) | YES VOTE | `XA_OK` |
//! | [`Vote::No`] | NO (VOTE_ABORT) | NO VOTE | `XA_RB*` |
//! | [`Output::EndReadOnly`], [`Vote::ReadOnly`] | - | READ VOTE | `XA_RDONLY` |
//! | [`Output::Append`] of [`Record::Commit`] | write *commit* to the log | force-write *commit* | - |
//! | [`Output::Commit`] | COMMIT (GLOBAL_COMMIT) | COMMIT | `xa_commit` |
//! | [`Output::RollBack`] | ABORT (GLOBAL_ABORT) | ABORT | `xa_rollback` |
//! | [`Finish::Done`] | - | ACK | `XA_OK` |
//! | [`Record::Done`] | - | write *end* | - |
//! | [`Output::CommitOnePhase`] | - | - | `xa_commit(TMONEPHASE)` |
//! | [`Output::CommitAnchor`] | - | last agent | last resource |
//! | [`Outcome::Damaged`] | - | heuristic damage | `XA_HEURHAZ`, `XA_HEURMIX` |
//! | [`recovery`]'s scans | termination protocol | recovery process | `xa_recover` |
//!
//! Gray and Lamport ("Consensus on Transaction Commit", ACM TODS 31(1), 2006) show what this is: Paxos Commit with
//! no fault tolerance of the decision. One coordinator, one log: cheapest in messages and writes, and the decision is
//! as available as that log.
//!
//! WHO REMEMBERS WHAT
//!
//! The coordinator lives in memory and dies with its process. What outlives it: the journal's records, the prepared
//! branches on the servers, and the *witness*, a row that each writing branch inserts into its own database within its
//! own transaction, so that it is there if and only if the branch has committed. A prepared branch says what is still
//! to be done, a record says which way, and a witness says what was done by somebody who did not live to tell.
//!
//! The witness also ends waiting. Recovery may insert the row itself, with the word *never*: a *fence*. The key can
//! exist once only, so either the branch has committed and the insert fails, or the fence is there first and the
//! branch never will, not even by a request that is still on its way.
//!
//! INVARIANTS
//!
//! The tests check these in every state that can be reached; `explorer` says what "can be reached" means.
//!
//! * **I1, atomicity.** No transaction ever has one branch committed and another rolled back. (AC1 and AC2 of
//!   Bernstein, Hadzilacos and Goodman, "Concurrency Control and Recovery in Database Systems", 1987, chapter 7.)
//! * **I2, the decision comes first.** Nobody, coordinator or recovery, tells a prepared branch to commit before its
//!   record, or the anchor's row, is durable; and neither is written before every branch has promised, the anchor
//!   excepted. (AC3.)
//! * **I3, no answer lies.** `Committed` is said only of what is durably decided, and so survives every crash;
//!   `RolledBack` only of what will never be committed anywhere. What was said stays true. Each transaction is
//!   answered at most once.
//! * **I4, the books are right.** What is noted as done has committed, every branch of it. While the process lives, what
//!   is prepared and undecided is a live coordinator's or on recovery's list.
//! * **I5, it ends.** When faults have stopped, every transaction settles, from every state: nothing stays prepared, no
//!   decision stays open. (AC5.)
//! * **I6, hands off.** Recovery touches no branch of a live transaction, none of an incarnation that is locked, and none
//!   of another journal.
//! * **I7, no false alarm.** Damage is reported only where somebody else has ended a branch.
//! * **I8, yes is possible.** When nothing fails, nobody refuses and nobody gives up, the answer is `Committed`. (AC4.)
//! * **I9, damage is remembered before it is told.** What a coordinator or a pass finds to contradict itself is durable
//!   before anybody hears of it, or the journal has failed. It is told again until a person has dealt with it. What no
//!   record decides and is damaged is touched by nobody but a person.
//!
//! The coordinator asserts its part of them after every input, in release builds too.
//!
//! A DRIVER'S DUTIES
//!
//! * After each input, poll until `None`; start the outputs in that order. There is no other order to keep.
//! * Begin branches, and hand inputs in, for one transaction from one task at a time.
//! * Answer every request, if only with `Unknown`. `Unknown` may be said in a branch's place at any time, when
//!   patience ends; then the session is closed at [`Output::Leave`], since its real answer may still come.
//! * [`Output::RollBack`] may come while the application's statement is still running, when the deadline ends the
//!   transaction: end the session then, or wait, as you like. The answer has been given.
//! * The row of [`Output::CommitAnchor`] is inserted by the anchor's own transaction, under the key of its witness: where a
//!   fence is there before it, the commit fails. It lists every branch that it is given. Note its [`Record::Done`] where the
//!   rows are, in one transaction with the row's end.
//! * Never reuse a session that was left. What is sent on it may still be carried out.
//! * Answer [`Output::Damage`] with [`Input::Remembered`] when the record is durable, or cannot be: the application must
//!   not wait for a journal that has failed.
//! * Say [`Vote::Prepared`] only while every participant's lease has been held since before the first branch was asked. Once
//!   one was lost, that it is held again is not enough: a copy of the journal may have rolled the branch back meanwhile. Then it is
//!   `Unknown`; or `Prepared`, if the branch was listed after the lease was regained.
//! * Say [`Input::Durable`] only when a power failure could not take the record back, and [`Input::AppendFailed`] for
//!   every other end of the write: the record may survive a failure that was reported.
//! * Call a transaction live from before its first branch begins until its coordinator is finished
//!   ([`recovery::Memory::is_live`]).
//!
//! CAVEATS: WHAT IS LEFT OUT, AND WHAT HAPPENS THEN
//!
//! * **It blocks.** Between its promise and the decision's arrival a branch can do nothing but wait and hold its locks
//!   (chapter 7.4 there). If the process dies in between, that lasts until it runs again, or recovery does with its
//!   journal. Three-phase commit would not block, but only where no network ever parts; Paxos Commit would need
//!   several journals. Neither is here. Participants cannot ask each other either: databases do not talk.
//! * **The journal is the decision's only home**, where there is no anchor. With it gone, a prepared branch cannot be told from one whose sibling
//!   has committed. Recovery with another journal finds such branches foreign, and leaves them to a person.
//! * **An older copy of the journal lacks decisions.** Registries and witnesses [give it away](recovery::Stale), and are
//!   looked at before the first rollback. A participant that is down then shows nothing, and what it would have shown is
//!   missed: branches of the missing decisions may be rolled back elsewhere.
//! * **A copy of the journal beside its original** is kept out by the lease. A lease that a server has lost says nothing
//!   to whoever held it until they look. What the copy rolls back between that look and the first branch's commit, whose
//!   witness would stop it, is lost.
//! * **Where records were lost**, no record means nothing, and a person decides. A witness that was pruned since cannot
//!   tell any more: a decision whose `Done` was lost may then be called damaged, though it was carried out.
//! * **The application may end a branch by itself**, with a `COMMIT` of its own. That is found when the branch is asked
//!   for its vote, and the outcome is [`Damaged`](Outcome::Damaged). If the transaction is aborted before that vote was
//!   heard (another branch said No, the deadline came, the application rolled back), it is answered `RolledBack`, and
//!   of that one branch this may be untrue. Should the vote come after all, whoever asks later hears `Damaged`. The
//!   other branches are rolled back by the coordinator; one that it has to leave waits for a person.
//! * **People may end a prepared branch**, as XA's heuristic decisions. With a witness that is found and reported;
//!   nothing is done to even it out.
//! * **Without a witness** a decided branch that is no longer prepared is taken for committed, and said to be unproven.
//!   One that a late request prepares is found only when somebody looks again.
//! * **No record is not yet *rolled back* for who asks by id.** It may be one writer's commit whose note was lost.
//!   Certainty needs a prepared branch in sight, the fence's answer from every participant of the incarnation, or that
//!   the incarnation is [settled](recovery::Settling).
//! * **Read-only branches are declared, not detected.** One that was not declared is prepared like any other.
//! * **Isolation is each database's own.** During phase two a reader can see one branch's commit before another's.
//! * **No trees.** One coordinator speaks to all participants, and commit is transferred to nobody but the anchor.
//! * **The anchor is the decision's only home**, where there is one. With its data gone a person decides; with older data
//!   under the same lineage, its fence says *never* of what was committed elsewhere.

pub mod coordinator;
pub mod message;
pub mod recovery;

#[cfg(test)]
mod explorer;
#[cfg(test)]
mod transcripts;

pub use coordinator::Coordinator;
pub use message::*;
