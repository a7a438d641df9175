//! An application of which a safeguard may be switched off: `watched bridge CONFIG` or `watched resolver CONFIG`, with the
//! names of what is to be off in `HANDFAST_OFF`. It does what it is told on standard input and says on standard output
//! what came of it, a line each.
//!
//! | told | does | says |
//! |---|---|---|
//! | (start) | opens a bridge, or a resolver of a stopped application | `open`, or `refused CAUSE` and ends |
//! | `begin` | begins a transaction | `begun ID` |
//! | `ledger SQL`, `orders SQL` | runs it in its branch there | `ok`, or `failed CAUSE` |
//! | `drop SQL` | begins to run it on `orders` | |
//! | `now` | drops that call | `dropped` |
//! | `xid` | | `xid X'..',X'..',N` of its branch on `orders` |
//! | `commit` | commits it, in the background | `told OUTCOME` |
//! | `freeze POINT AT` | stops there who passes that point next | `armed` |
//! | `frozen` | waits until somebody stands there | `frozen` |
//! | `open` | lets it go on | |
//! | `pass` | makes one pass | `recovered complete`, `recovered damaged`, `recovered some`, or `refused CAUSE` |
//! | `recover` | makes passes as long as they recover some | as the last one |
//! | `outcome ID` | asks for it | `outcome OUTCOME` |
//! | (end of input) | closes all | |

use handfast::mysql_async::prelude::Queryable;
use handfast::resolver::Resolver;
use handfast::{Bridge, Config, Outcome, Transaction};
use integration_tests::torture::switch_off_as_told;
use integration_tests::world::{LEDGER, ORDERS, PATIENCE};
use std::io::Write;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::Instant;

/// One line, at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", line.replace('\n', " ")).and_then(|()| out.flush()).expect("somebody listens");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    switch_off_as_told();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, config] = arguments.as_slice() else { panic!("bridge|resolver CONFIG") };
    let config = Config::load(config).expect("a configuration");
    let done = if role == "bridge" { bridge(config).await } else { resolver(config).await };
    if let Err(error) = done {
        say(&format!("refused {}", error.chain()));
    }
}

async fn bridge(config: Config) -> handfast::Result<()> {
    let bridge = Bridge::open(config).await?;
    say("open");
    let mut told = BufReader::new(tokio::io::stdin()).lines();
    let mut begun: Option<Transaction> = None;
    let mut stop = Stopping::default();
    while let Some(line) = told.next_line().await.expect("standard input can be read") {
        let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match what {
            "begin" => {
                let tx = bridge.begin().await?;
                say(&format!("begun {}", tx.id()));
                begun = Some(tx);
            }
            "commit" => {
                let tx = begun.take().expect("begun");
                tokio::spawn(async move {
                    let outcome = tx.commit().await.map_or_else(|error| error.outcome(), |_| Outcome::Committed);
                    say(&format!("told {outcome:?}"));
                });
            }
            "freeze" | "frozen" => say(stop.does(what, rest).await),
            "open" => stop.end(),
            "drop" => {
                let tx = begun.as_ref().expect("begun");
                tokio::select! {
                    biased;
                    done = work(tx, ORDERS, rest) => panic!("its answer is withheld: {done:?}"),
                    _ = told.next_line() => say("dropped"),
                }
            }
            "outcome" => say(&format!("outcome {:?}", bridge.outcome(rest.parse().expect("an id")).await?)),
            _ => {
                let done = work(begun.as_ref().expect("begun"), what, rest).await;
                say(&done.unwrap_or_else(|error| format!("failed {}", error.chain())));
            }
        }
    }
    drop(begun);
    bridge.close().await
}

/// Where somebody is stopped.
#[derive(Default)]
struct Stopping {
    #[cfg(feature = "torture")]
    gate: Option<std::sync::Arc<handfast::torture::Gate>>,
}

impl Stopping {
    #[cfg(feature = "torture")]
    async fn does(&mut self, what: &str, rest: &str) -> &'static str {
        use handfast::torture::{Action, Stop, arm};
        match (what, &self.gate) {
            ("frozen", Some(gate)) => {
                gate.reached().await;
                "frozen"
            }
            _ => {
                let (point, at) = rest.split_once(' ').expect("a point and a participant");
                let (point, at) = (point.parse().expect("a point"), at.parse().expect("a participant"));
                self.gate = Some(arm(Stop { point, at: Some(at), nth: 1, action: Action::Freeze }));
                "armed"
            }
        }
    }

    fn end(&self) {
        #[cfg(feature = "torture")]
        self.gate.as_ref().expect("somebody stands there").open();
    }

    #[cfg(not(feature = "torture"))]
    async fn does(&mut self, what: &str, _: &str) -> &'static str {
        panic!("{what}: the feature `torture` is not there");
    }
}

async fn work(tx: &Transaction, what: &str, sql: &str) -> handfast::Result<String> {
    match what {
        LEDGER => tx.postgres(LEDGER).await?.batch_execute(sql).await?,
        ORDERS => tx.mysql(ORDERS).await?.query_drop(sql).await?,
        "xid" => return xid(tx).await,
        _ => panic!("what is {what:?}?"),
    }
    Ok("ok".into())
}

/// The name of the branch on `orders`, whose slot an application has to guess: ends its work by it.
async fn xid(tx: &Transaction) -> handfast::Result<String> {
    let mut orders = tx.mysql(ORDERS).await?;
    for xid in (0..8).map(|slot| tx.id().branch(1, slot).xid_sql()) {
        if orders.query_drop(format!("XA END {xid}")).await.is_ok() {
            return Ok(format!("xid {xid}"));
        }
    }
    panic!("there is no such branch");
}

async fn resolver(config: Config) -> handfast::Result<()> {
    let resolver = Resolver::open(config)?;
    say("open");
    let mut told = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = told.next_line().await.expect("standard input can be read") {
        match line.split_once(' ') {
            Some(("outcome", id)) => {
                say(&format!("outcome {:?}", resolver.outcome(id.parse().expect("an id")).await?));
            }
            _ if line == "pass" => say(&pass(&resolver).await),
            _ if line == "recover" => say(&recover(&resolver).await),
            _ => panic!("what is {line:?}?"),
        }
    }
    resolver.close().await
}

async fn recover(resolver: &Resolver) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = pass(resolver).await;
        if said != SOME || Instant::now() > deadline {
            return said;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A pass that leaves something to the next one.
const SOME: &str = "recovered some";

async fn pass(resolver: &Resolver) -> String {
    let pass = resolver.sweep(&|_| {}).await;
    match &pass.refused {
        Some(refused) => format!("refused {}", refused.chain()),
        None if pass.left.transactions.iter().any(|one| one.outcome == Outcome::Damaged) => "recovered damaged".into(),
        None if pass.is_complete() => "recovered complete".into(),
        None => SOME.into(),
    }
}
