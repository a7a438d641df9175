//! `docs/guide/start.md`, followed word for word: a crate of its own, made from the page's blocks, built, run, killed and
//! recovered by the page's commands, on the databases that the page says how to start.

mod page;
mod reader;

use integration_tests::each_pair;
use page::{Step, steps};
use reader::Reader;
use tokio::sync::Mutex;

each_pair! {
    async fn a_reader_gets_where_the_page_says(other) {
        // One crate after the other: they are built in one place, so that what they need is compiled once.
        static ONE: Mutex<()> = Mutex::const_new(());
        let _one = ONE.lock().await;
        let text = std::fs::read_to_string(reader::root().join("docs/guide/start.md")).unwrap();
        let mut reader = Reader::new(other);
        let (mut sums, steps) = (Vec::new(), steps(&text));
        for step in &steps {
            match step {
                Step::Terminal(commands) => reader.types(commands).await,
                Step::File { name, text } => reader.writes(name, text),
                Step::Sql { participant, statements } => sums.extend(reader.runs(participant, statements).await),
            }
        }
        assert!(steps.len() > 12, "{}", steps.len());
        let [left, reached] = sums.as_slice() else { panic!("two sums: {sums:?}") };
        // Four times seven at least, by the first run.
        assert!(left == reached && left.parse::<i64>().unwrap() >= 28, "what left, and what has come: {sums:?}");
    }
}
