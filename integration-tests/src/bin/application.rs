//! An application for tests to kill: inserts a key on `ledger` and on `orders` in each transaction, and prints what it
//! began and what it was told, a line each.
//!
//! `application CONFIG FIRST_KEY TASKS LIMIT`: keys are counted up from the first one, by so many tasks at once, for so
//! many transactions. Then, or without a limit for ever, it waits for the end of its input.

use handfast::{Bridge, Config, Outcome};
use integration_tests::world::try_insert;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// One line in one write, so that none is half there when this is killed.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
}

async fn work(bridge: Bridge, next: Arc<AtomicI32>, end: i32) {
    loop {
        let key = next.fetch_add(1, Ordering::Relaxed);
        if key >= end {
            return;
        }
        let tx = match try_insert(&bridge, key).await {
            Ok(tx) => tx,
            Err(error) => {
                say(&format!("failed {key} {}", error.chain()));
                continue;
            }
        };
        let id = tx.id();
        say(&format!("begun {key} {id}"));
        let outcome = tx.commit().await.map_or_else(|error| error.outcome(), |_| Outcome::Committed);
        say(&format!("{outcome:?} {key} {id}"));
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, first, tasks, limit] = arguments.as_slice() else { panic!("CONFIG FIRST_KEY TASKS LIMIT") };
    let number = |text: &str| text.parse::<i32>().expect("a number");
    std::thread::spawn(|| {
        // The end of input is the end of the test, however that came.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let bridge = Bridge::open(Config::load(config).expect("a configuration")).await.expect("a bridge");
    say("open");
    let end = if number(limit) == 0 { i32::MAX } else { number(first) + number(limit) };
    let next = Arc::new(AtomicI32::new(number(first)));
    let workers = (0..number(tasks)).map(|_| tokio::spawn(work(bridge.clone(), next.clone(), end)));
    futures_util::future::join_all(workers).await;
    std::future::pending::<()>().await;
}
