//! The conformance suite, run for every kind of participant.

use integration_tests::conformance::{Harness, MariaDb, MemoryHarness, MySql, MysqlHarness, PostgresHarness, cases};
use integration_tests::servers::{Flavor, is_available, runtime};

/// One test for each case and kind: `case::kind`; behind `on servers`, only of those kinds that have connections.
macro_rules! conformance {
    ($($case:ident)*; on servers: $($with_connections:ident)*) => {
        $(mod $case {
            use super::*;

            #[test]
            fn memory() {
                runtime().block_on(async { cases::$case(&MemoryHarness::new().await).await });
            }

            on_servers! { $case }
        })*
        $(mod $with_connections {
            use super::*;

            on_servers! { $with_connections }
        })*
    };
}

macro_rules! on_servers {
    ($case:ident) => {
        #[test]
        fn postgres() {
            if is_available(Flavor::Postgres) {
                runtime().block_on(async { cases::$case(&PostgresHarness::new().await).await });
            }
        }

        #[test]
        fn mariadb() {
            if is_available(Flavor::MariaDb) {
                runtime().block_on(async { cases::$case(&MysqlHarness::<MariaDb>::new().await).await });
            }
        }

        #[test]
        fn mysql() {
            if is_available(Flavor::MySql) {
                runtime().block_on(async { cases::$case(&MysqlHarness::<MySql>::new().await).await });
            }
        }
    };
}

conformance! {
    prepared_then_committed
    prepared_then_rolled_back
    rolled_back_unprepared
    an_empty_branch_is_a_branch
    a_failed_statement_votes_no
    one_phase_commits
    one_phase_of_a_failed_branch_is_rolled_back
    read_only_branches_end_in_phase_one
    read_only_branches_cannot_write
    calls_out_of_order_are_unknown
    without_a_witness
    the_application_ended_the_transaction
    killed_before_prepare
    killed_after_prepare
    finished_by_hand
    a_dropped_prepare_is_rolled_back
    ids_survive_the_list
    foreign_branches_are_left_alone
    the_truth_table_of_evidence
    a_missing_witness_accuses_nobody
    a_fence_stops_a_late_branch
    a_fence_and_a_branch_have_one_winner
    finished_from_outside
    finishing_what_is_gone_disturbs_nobody
    many_are_finished_at_once
    unknown_branches_are_unknown
    sessions_are_ended_by_name
    an_ended_session_leaves_its_promise
    the_lineage_is_made_once
    opened_at_once_they_agree
    made_an_anchor_at_once
    another_lineage_is_refused
    nothing_begins_unregistered
    two_participants_share_a_server
    sessions_are_clean_when_reused
    a_dropped_begin_leaves_nothing
    a_dropped_branch_frees_its_locks
    a_dropped_branch_frees_its_locks_while_it_waits
    a_session_lost_in_the_pool_is_replaced
    a_deadlock_is_to_be_retried
    a_wait_for_a_lock_ends
    close_leaves_no_session
    sessions_of_an_incarnation_are_ended
    witnesses_are_read_in_order
    one_program_works_in_a_nodes_name
    leases_of_others_do_not_meet
    a_lost_lease_is_regained
    a_holder_is_named_without_tables
    the_registry_tells_who_was_there
    witnesses_are_pruned_below
    a_settled_incarnation_is_pruned_whole
    pruning_is_bounded
    a_person_finishes_what_the_statement_names;

    on servers:
    a_lost_worker_keeps_the_lease
    who_is_at_work_keeps_others_out
}
