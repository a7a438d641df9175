//! A client of the soak: moves money in some tasks until its standard input ends.
//!
//! `soak-client CONFIG ANSWERS SEED [POINT:PARTICIPANT:NTH]`: with the last one it aborts where it comes to that point
//! the n-th time; the participant may be `any`.

use handfast::cli::demo::answers::Notebook;
use handfast::torture::{Action, Stop, arm};
use handfast::{Bridge, Config, ErrorKind};
use integration_tests::soak::client::COULD_NOT_OPEN;
use integration_tests::soak::teller::Teller;
use integration_tests::torture::Dice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::AsyncReadExt;

/// Tasks of one client.
const TASKS: u64 = 4;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, answers, seed, stop @ ..] = arguments.as_slice() else { panic!("CONFIG ANSWERS SEED [STOP]") };
    stop.iter().for_each(|stop| stop_at(stop));
    let mut dice = Dice::new(seed.parse().expect("a number"));
    let bridge = match Bridge::open(Config::load(config).expect("a configuration")).await {
        Ok(bridge) => bridge,
        Err(error) => {
            println!("failed {:?} {}", error.kind(), error.chain());
            let passes = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Refused | ErrorKind::TimedOut);
            std::process::exit(if passes { COULD_NOT_OPEN } else { 1 });
        }
    };
    println!("open");
    let notebook = Arc::new(Notebook::open(Path::new(answers)).expect("a file"));
    let stopping = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (bridge, notebook, dice) = (bridge.clone(), notebook.clone(), Dice::new(dice.roll()));
            tokio::spawn(Teller { bridge, notebook, dice }.work(stopping.clone()))
        })
        .collect();
    // Its end is the end of the round, or of whoever started this.
    let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    stopping.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("a teller does not panic");
    }
    bridge.close().await.expect("the journal closes");
    println!("closed");
}

fn stop_at(text: &str) {
    let words: Vec<&str> = text.split(':').collect();
    let [point, at, nth] = words.as_slice() else { panic!("POINT:PARTICIPANT:NTH, not {text}") };
    arm(Stop {
        point: point.parse().expect("a point"),
        at: (*at != "any").then(|| at.parse().expect("a participant")),
        nth: nth.parse().expect("a number"),
        action: Action::Abort,
    });
}
