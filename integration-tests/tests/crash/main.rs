//! Crashes: of the application, of its servers, of recovery itself, at every point at which a process can be stopped.
//!
//! What an application does is a [script](script::Script); at which points it passes is found out by running it once. A
//! case is a script, a point of it, and a kind of crash there. Each has a journal, a node name and keys of its own, in
//! databases that all share, so that many run at once. When all are over, both databases are compared with each other,
//! with every answer that was given, and with every outcome that recovery found.

mod application;
mod ground;
mod panics;
mod reach;
mod recovery;
mod script;
mod servers;
mod trial;

use ground::Ground;
use handfast::torture::{Point, Request};
use integration_tests::each_pair;
use integration_tests::world::{LEDGER, ORDERS};

/// Whether only an anchor is asked for it.
fn is_anchors(point: Point) -> bool {
    matches!(point, Point::Request(Request::CommitAnchor | Request::Keep | Request::Clear, _))
}

each_pair! {
    /// The application is killed, and recovery after it; and no point is named at which nobody comes along.
    async fn application_and_recovery_are_killed(other) {
        let ground = Ground::shared(other).await;
        let mut reached = application::all(&ground).await;
        reached.extend(recovery::all(&ground).await);
        let missed = Point::all().filter(|point| !reached.contains(point) && !is_anchors(*point));
        let missed: Vec<_> = missed.map(|point| point.to_string()).collect();
        assert!(missed.is_empty(), "no process was ever stopped at {missed:?}");
    }

    /// The same with a participant that decides, either of them.
    async fn application_and_recovery_are_killed_where_a_participant_decides(other) {
        for anchor in [LEDGER, ORDERS] {
            let ground = Ground::shared(other).await.anchored(anchor);
            let mut reached = application::all(&ground).await;
            reached.extend(recovery::all(&ground).await);
            let missed = Point::all().filter(|point| is_anchors(*point) && !reached.contains(point));
            let missed: Vec<_> = missed.map(|point| point.to_string()).collect();
            assert!(missed.is_empty(), "no process was ever stopped at {missed:?}");
        }
    }

    async fn servers_are_killed(other) {
        servers::all(other).await;
    }

    async fn a_server_that_decides_is_killed(other) {
        for anchor in [LEDGER, ORDERS] {
            servers::all_anchored(other, anchor).await;
        }
    }

    /// A bug in a task of the bridge is the end of a transaction, or of a pass of what goes on for ever, and of nothing
    /// else.
    async fn tasks_panic(other) {
        let ground = Ground::shared(other).await;
        panics::all(&ground).await;
        recovery::panics(&ground).await;
        panics::upkeep(&ground).await;
    }

    async fn tasks_panic_where_a_participant_decides(other) {
        for anchor in [LEDGER, ORDERS] {
            let ground = Ground::shared(other).await.anchored(anchor);
            panics::all(&ground).await;
            recovery::panics(&ground).await;
        }
    }
}
