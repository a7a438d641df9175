//! An application as tests know it: it works through the public API alone, does what it is told on standard input, one
//! thing after the other, says on standard output what it was answered, and is there to be killed.
//!
//! | told | does | says |
//! |---|---|---|
//! | `open` | opens the bridge | `open`, or `failed KIND` and ends |
//! | `write KEY SIDE..` | begins a transaction and inserts the key on each side, see [`work::write`] | `begun KEY ID`, or `refused KEY CAUSE` |
//! | `entry KEY` | the same in the tables of the tests of the tool | `begun KEY ID` |
//! | `commit`, `rollback` | ends that transaction, in the background | `Committed KEY ID`, or `RolledBack KEY ID CAUSE` and the like |
//! | `load FIRST TASKS LIMIT` | commits so many transactions by so many tasks at once, in the background; 0: for ever | as above, for each |
//! | `wait` | waits for all answers | |
//! | `know KEY ID` | is told of a transaction of an earlier process | |
//! | `settle` | waits until the bridge calls nothing unsettled or in doubt | `found KEY ID OUTCOME` for each known transaction, `settled`, or `unsettled WHY` |
//! | `recover` | the same by a resolver, without a bridge | the same, or `failed KIND` and ends |
//! | `arm POINT SIDE NTH ACTION` | at once: arms a stop, at any side with `-` | `reached POINT` when somebody freezes there |
//! | `release` | at once: lets all go on that are frozen | |
//! | `until POINT SIDE` | waits until that was passed | |
//! | `arrived` | | `arrived POINT SIDE TIMES` of each that was passed, and `so far` |
//! | (end of input) | closes the bridge, and ends | `arrived POINT SIDE TIMES`, where anything was armed |

mod stops;
mod work;

use handfast::resolver::{Pass, Resolver};
use handfast::{Bridge, Config, Error, Outcome, Transaction, TransactionId};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How often something is looked at that is waited for.
const GLANCE: Duration = Duration::from_millis(5);

/// How long anything is waited for that may have to wait for a server to come back.
const SERVERS_PATIENCE: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let config = std::env::args().nth(1).expect("the argument is a configuration file");
    let config = Config::load(config).unwrap_or_else(|error| panic!("{}", error.chain()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (queue, told) = unbounded_channel();
    let handle = runtime.handle().clone();
    // Not a task: a stop may hold one of the runtime's threads, and whatever waits behind it there.
    std::thread::spawn(move || read(queue, &handle));
    let (bridge, begun, ending, known) = (None, None, JoinSet::new(), BTreeMap::new());
    let program = Program { config, bridge, begun, ending, known };
    match runtime.block_on(program.run(told)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("failed {:?}", error.kind()));
            eprintln!("{}", error.chain());
            ExitCode::FAILURE
        }
    }
}

/// What is about stops is done at once, the rest when its turn comes.
fn read(queue: UnboundedSender<String>, runtime: &tokio::runtime::Handle) {
    for line in std::io::stdin().lines() {
        let line = line.expect("standard input can be read");
        match line.split_once(' ') {
            Some(("arm", stop)) => stops::arm(stop, runtime),
            None if line == "release" => stops::release(),
            // Nobody listens any more: it is about to end.
            _ => drop(queue.send(line)),
        }
    }
    drop(queue);
    // Whoever told it is gone, perhaps by a kill, and may have left it frozen.
    std::thread::sleep(2 * SERVERS_PATIENCE);
    std::process::exit(1);
}

/// One line in one write, so that none is half there when this is killed.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
}

struct Program {
    config: Config,
    bridge: Option<Bridge>,
    /// What is neither committed nor rolled back yet, and its key.
    begun: Option<(i32, Transaction)>,
    ending: JoinSet<()>,
    known: BTreeMap<i32, TransactionId>,
}

impl Program {
    async fn run(mut self, mut told: UnboundedReceiver<String>) -> handfast::Result<()> {
        while let Some(line) = told.recv().await {
            let words: Vec<&str> = line.split(' ').collect();
            self.obey(words[0], &words[1..]).await?;
        }
        drop(self.begun);
        if let Some(bridge) = self.bridge {
            bridge.close().await?;
        }
        self.ending.join_all().await;
        stops::tell();
        Ok(())
    }

    async fn obey(&mut self, what: &str, of: &[&str]) -> handfast::Result<()> {
        match (what, of) {
            ("open", []) => {
                self.bridge = Some(Bridge::open(self.config.clone()).await?);
                say("open");
            }
            ("write", [key, sides @ ..]) => self.begin(key, work::write(self.bridge(), number(key), sides).await),
            ("entry", [key]) => self.begin(key, work::entry(self.bridge(), number(key)).await),
            ("commit", []) => self.end(work::commit),
            ("rollback", []) => self.end(work::roll_back),
            ("load", [first, tasks, limit]) => {
                let load = work::load(self.bridge().clone(), number(first), number(tasks), number(limit));
                self.ending.spawn(load);
            }
            ("wait", []) => while self.ending.join_next().await.is_some() {},
            ("know", [key, id]) => drop(self.known.insert(number(key), id.parse().expect("an id"))),
            ("settle", []) => self.settle().await?,
            ("recover", []) => self.recover().await?,
            ("until", [point, side]) => stops::passed(point, side).await,
            ("arrived", []) => {
                stops::tell();
                say("so far");
            }
            _ => panic!("what is {what} {of:?}?"),
        }
        Ok(())
    }

    fn bridge(&self) -> &Bridge {
        self.bridge.as_ref().expect("it was told to open")
    }

    fn begin(&mut self, key: &str, begun: handfast::Result<Transaction>) {
        match begun {
            Ok(tx) => {
                say(&format!("begun {key} {}", tx.id()));
                self.known.insert(number(key), tx.id());
                self.begun = Some((number(key), tx));
            }
            Err(error) => say(&format!("refused {key} {}", error.chain())),
        }
    }

    fn end<F: Future<Output = ()> + Send + 'static>(&mut self, how: fn(i32, Transaction) -> F) {
        // What was refused has nothing to end.
        if let Some((key, tx)) = self.begun.take() {
            self.ending.spawn(how(key, tx));
        }
    }

    async fn settle(&self) -> handfast::Result<()> {
        let bridge = self.bridge();
        let mut deadline = Instant::now() + SERVERS_PATIENCE;
        loop {
            if stops::is_held() {
                // Its time begins when it goes on.
                deadline = Instant::now() + SERVERS_PATIENCE;
            }
            let status = bridge.status();
            if status.running + status.in_doubt + status.unsettled == 0 {
                break;
            }
            if Instant::now() > deadline {
                say(&format!("unsettled {status:?}"));
                return Ok(());
            }
            sleep(GLANCE).await;
        }
        for (key, id) in &self.known {
            tell(*key, *id, bridge.outcome(*id).await?);
        }
        let damaged = bridge.status().damaged;
        say(&if damaged == 0 { "settled".into() } else { format!("unsettled: {damaged} damaged") });
        Ok(())
    }

    async fn recover(&self) -> handfast::Result<()> {
        let resolver = Resolver::open(self.config.clone())?;
        let deadline = Instant::now() + SERVERS_PATIENCE;
        let pass = loop {
            let pass = resolver.sweep(&|_| {}).await;
            if pass.is_complete() || Instant::now() > deadline {
                break pass;
            }
            sleep(GLANCE).await;
        };
        for (key, id) in &self.known {
            tell(*key, *id, resolver.outcome(*id).await?);
        }
        say(&match trouble(&pass) {
            None => String::from("settled"),
            Some(trouble) => format!("unsettled {}", trouble.replace('\n', " ")),
        });
        resolver.close().await
    }
}

/// Why a pass is not the last one, or not a good one.
fn trouble(pass: &Pass) -> Option<String> {
    let damaged = pass.left.transactions.iter().find(|one| one.outcome == Outcome::Damaged);
    match (&pass.refused, damaged, pass.is_complete()) {
        (None, None, true) => None,
        (None, Some(damaged), _) => Some(format!("damaged: {damaged:?}")),
        (refused, None, _) => {
            let refused = refused.as_ref().map(Error::chain);
            Some(format!("{refused:?} {:?} {:?} {:?}", pass.left.transactions, pass.left.unscanned, pass.unsettled))
        }
        (Some(refused), Some(_), _) => Some(refused.chain()),
    }
}

fn tell(key: i32, id: TransactionId, outcome: Outcome) {
    say(&format!("found {key} {id} {outcome:?}"));
}

fn number(text: &str) -> i32 {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}
