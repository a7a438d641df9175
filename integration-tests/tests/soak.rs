//! Everything at once, at random: see `integration_tests::soak`. `make soak SECONDS=n SEED=s` runs it for longer.

use integration_tests::soak::stage::{Decided, Stage};
use integration_tests::soak::{self, audit};
use integration_tests::{each_pair, world};
use std::fs::OpenOptions;
use std::io::Write;

const CLIENT: &str = env!("CARGO_BIN_EXE_soak-client");

each_pair! {
    async fn money_and_answers_agree(other) {
        soak::run(CLIENT, other, Decided::ByJournals).await;
    }

    /// The same with clients whose decisions are rows of a participant, each of another.
    async fn money_and_answers_agree_where_participants_decide(other) {
        soak::run(CLIENT, other, Decided::ByParticipants).await;
    }

    /// Nothing is broken, then one thing after another is done to the databases and to the answers.
    async fn an_audit_sees_what_is_wrong(other) {
        let mut stage = Stage::set(CLIENT, other, Decided::ByJournals).await;
        let mut client = stage.start(0, 1, None);
        let answers = stage.answers(0);
        let committed = || {
            let text = std::fs::read_to_string(&answers).unwrap();
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("answer ")?.strip_suffix(" committed"));
            lines.nth(9).map(str::to_owned)
        };
        world::eventually("the client has committed", async || committed().is_some()).await;
        client.finish().await.unwrap();
        assert_eq!(violations(&mut stage).await, Vec::<String>::new());

        let ids = "SELECT DISTINCT tx FROM entry";
        let ledger = stage.ledger.query(ids).await;
        let mut orders = stage.orders.query(ids).await.into_iter();
        let id = orders.find(|row| ledger.contains(row)).and_then(|mut row| row.remove(0)).expect("one is on both");
        let mut file = OpenOptions::new().append(true).open(&answers).unwrap();
        writeln!(file, "answer {id} rolled_back").unwrap();
        let found = violations(&mut stage).await;
        assert!(found.len() == 1 && found[0].contains("answered Some(RolledBack), and it is Committed"), "{found:?}");

        stage.orders.query(&format!("DELETE FROM entry WHERE tx = '{id}'")).await;
        let found = violations(&mut stage).await;
        assert!(found.iter().any(|one| one.contains(&id) && one.contains("not whole")), "{found:?}");
        assert!(found.iter().any(|one| one.contains("at orders has not what its entries say")), "{found:?}");

        stage.ledger.query("UPDATE account SET cents = cents - 7 WHERE id = 0").await;
        stage.ledger.query("ROLLBACK PREPARED 'somebody-else'").await;
        stage.ledger.query("INSERT INTO entry VALUES ('hf1.soak-0.9f3c2a7b11d0e842.1', 0, 0, 0)").await;
        let found = violations(&mut stage).await;
        for what in ["7 cents are missing", "prepared at ledger", "nobody began it"] {
            assert!(found.iter().any(|one| one.contains(what)), "{what}: {found:?}");
        }
    }
}

async fn violations(stage: &mut Stage) -> Vec<String> {
    audit::audit(stage).await.violations
}
