//! How the cost grows with the number of databases: the two servers in turn, each time another database.

use crate::bridged;
use crate::direct;
use crate::group_commit::GroupCommit;
use crate::spread::Spread;
use crate::stage::{Access, DATABASE, Stage, furnish, update};
use futures_util::future::join_all;
use handfast::mysql_async::Conn;
use handfast::mysql_async::prelude::Queryable;
use handfast::tokio_postgres::Client;
use handfast::{Bridge, Transaction};
use hdrhistogram::Histogram;
use integration_tests::servers::{self, Flavor};
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, Instant};

/// How many there are, least first.
const MANY: [usize; 4] = [2, 3, 4, 8];

/// The latency at the median of each round in milliseconds, by hand and through Handfast, for each of [`MANY`].
pub struct Participants([[Vec<f64>; 2]; MANY.len()]);

pub async fn measure(stage: &Stage, rounds: usize, slice: Duration) -> Participants {
    let most = MANY[MANY.len() - 1];
    for place in 2..most {
        let server = if is_postgres(place) { &stage.postgres } else { &stage.mysql };
        furnish(server, &database(place), 1).await;
    }
    let access = Access { workers: 1, ..stage.access() };
    let mut ways = Vec::new();
    for many in MANY {
        ways.push((ByHand::connect(stage, &access, many).await, ByHandfast::open(stage, &access, many).await));
    }
    let mut participants = Participants(Default::default());
    // The first round opens sessions and fills caches: it is not kept.
    for round in 0..=rounds {
        for ((by_hand, handfast), figures) in ways.iter_mut().zip(&mut participants.0) {
            let by_hand = repeat(slice, async |number| by_hand.transact(number).await).await;
            let handfast = repeat(slice, async |number| handfast.transact(number).await).await;
            if round > 0 {
                figures[0].push(by_hand);
                figures[1].push(handfast);
            }
        }
    }
    for (_, handfast) in ways {
        handfast.bridge.close().await.expect("nothing is left to do");
    }
    stage.check().await;
    participants
}

fn is_postgres(place: usize) -> bool {
    place.is_multiple_of(2)
}

fn database(place: usize) -> String {
    if place < 2 { DATABASE.to_owned() } else { format!("{DATABASE}{place}") }
}

fn url(stage: &Stage, place: usize) -> String {
    let server = if is_postgres(place) { &stage.postgres } else { &stage.mysql };
    server.url(&database(place))
}

/// One transaction after the other: the median latency in milliseconds.
async fn repeat(slice: Duration, mut transact: impl AsyncFnMut(usize)) -> f64 {
    let until = Instant::now() + slice;
    let mut latencies = Histogram::<u64>::new(3).expect("three digits are possible");
    for number in 0.. {
        let start = Instant::now();
        if start >= until && number > 0 {
            break;
        }
        transact(number).await;
        let micros = u64::try_from(start.elapsed().as_micros()).expect("a transaction does not take that long");
        latencies.record(micros.max(1)).expect("the histogram grows");
    }
    latencies.value_at_quantile(0.5) as f64 / 1000.0
}

enum Session {
    Postgres(Client),
    Mysql(Conn),
}

impl Session {
    async fn connect(url: &str, place: usize) -> Self {
        if is_postgres(place) {
            Self::Postgres(direct::postgres(url).await)
        } else {
            Self::Mysql(direct::mysql(url).await)
        }
    }

    async fn run(&mut self, postgres: &str, mysql: &str) {
        match self {
            Self::Postgres(client) => client.batch_execute(postgres).await.expect("work"),
            Self::Mysql(session) => session.query_drop(mysql).await.expect("work"),
        }
    }
}

/// The floor with proofs, over more than two.
struct ByHand {
    sessions: Vec<Session>,
    log: GroupCommit,
    next: u64,
    many: usize,
}

impl ByHand {
    async fn connect(stage: &Stage, access: &Access, many: usize) -> Self {
        let mut sessions = Vec::new();
        for place in 0..many {
            sessions.push(Session::connect(&url(stage, place), place).await);
        }
        let log = GroupCommit::create(&access.directory.join(servers::unique("decisions")));
        Self { sessions, log, next: 0, many }
    }

    async fn transact(&mut self, number: usize) {
        self.next += 1;
        let Self { sessions, log, next, many } = self;
        let work = update(0, number);
        // No two of the same server may have the same name.
        let name = |place: usize| format!("many{many}.{next}.{place}");
        let xid = |place: usize| format!("'{}','1',2147483647", name(place));
        let proof = |place: usize| format!("INSERT INTO proof VALUES (-{many}, {next}, {place}, 'decided')");
        let each = sessions.iter_mut().enumerate().map(async |(place, session)| {
            session.run(&format!("BEGIN; {work}"), &format!("XA START {}; {work}", xid(place))).await;
        });
        join_all(each).await;
        let each = sessions.iter_mut().enumerate().map(async |(place, session)| {
            let (proof, xid) = (proof(place), xid(place));
            let postgres = format!("{proof}; PREPARE TRANSACTION '{}'", name(place));
            session.run(&postgres, &format!("{proof}; XA END {xid}; XA PREPARE {xid}")).await;
        });
        join_all(each).await;
        log.decide().await;
        let each = sessions.iter_mut().enumerate().map(async |(place, session)| {
            session.run(&format!("COMMIT PREPARED '{}'", name(place)), &format!("XA COMMIT {}", xid(place))).await;
        });
        join_all(each).await;
    }
}

struct ByHandfast {
    bridge: Bridge,
    names: Vec<String>,
}

impl ByHandfast {
    async fn open(stage: &Stage, access: &Access, many: usize) -> Self {
        let names: Vec<_> = (0..many).map(|place| format!("p{place}")).collect();
        let mut config = bridged::empty_config(access);
        for (place, name) in names.iter().enumerate() {
            let flavor = if is_postgres(place) { Flavor::Postgres } else { access.flavor };
            config = config.participant_at(name, flavor, &url(stage, place));
        }
        let bridge = Bridge::open(config.build()).await.expect("a bridge");
        Self { bridge, names }
    }

    async fn transact(&self, number: usize) {
        let tx = self.bridge.begin().await.expect("a transaction");
        let work = update(0, number);
        let each = self.names.iter().enumerate().map(|(place, name)| branch(&tx, place, name, &work));
        join_all(each).await;
        let committed = tx.commit().await.expect("a commit");
        assert!(committed.pending.is_empty(), "it is applied everywhere");
    }
}

async fn branch(tx: &Transaction, place: usize, name: &str, work: &str) {
    if is_postgres(place) {
        tx.postgres(name).await.expect("a branch").batch_execute(work).await.expect("work");
    } else {
        tx.mysql(name).await.expect("a branch").query_drop(work).await.expect("work");
    }
}

impl Participants {
    /// The latency at the median with eight, in that with two.
    pub fn eight_to_two(&self) -> Spread {
        let [two, .., eight] = &self.0;
        Spread::of_ratios(&eight[1], &two[1])
    }

    fn lines(&self) -> impl Iterator<Item = (usize, [(Spread, Spread); 2])> + '_ {
        MANY.iter().zip(&self.0).map(|(many, figures)| {
            let of = |who: usize| (Spread::of(figures[who].clone()), Spread::of_ratios(&figures[who], &self.0[0][who]));
            (*many, [of(0), of(1)])
        })
    }

    pub fn json(&self) -> Value {
        let line = |(many, [by_hand, handfast]): (usize, [(Spread, Spread); 2])| {
            json!({
                "participants": many,
                "by_hand_p50_ms": by_hand.0.json(),
                "by_hand_of_two": by_hand.1.json(),
                "handfast_p50_ms": handfast.0.json(),
                "handfast_of_two": handfast.1.json(),
            })
        };
        json!(self.lines().map(line).collect::<Vec<_>>())
    }
}

impl fmt::Display for Participants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "participants, one transaction at a time: p50 ms, and in that of two")?;
        for (many, [by_hand, handfast]) in self.lines() {
            writeln!(
                f,
                "{many}   floor+proof {:.2}: {:.2} x   handfast {:.2}: {:.2} x",
                by_hand.0, by_hand.1, handfast.0, handfast.1
            )?;
        }
        Ok(())
    }
}
