//! Carries out a schedule.

use super::client::{Client, End};
use super::schedule::{ARMS, Fault, STATEMENTS, Schedule, StopAt, statement};
use super::stage::{CLIENTS, Stage};
use crate::proxy::Rule;
use crate::torture::Dice;
use crate::world::{PATIENCE, Side};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// For how many faults a fault of the network stays in force, and what it holds is held.
const LASTS: usize = 4;

/// What was done in a round.
pub struct Done {
    /// The faults in order, with the moment of each.
    pub log: Vec<String>,
    /// How many of each kind, in one line.
    pub summary: String,
    /// What a client must not have done.
    pub violations: Vec<String>,
}

/// Starts a server again whenever it was killed.
async fn nurse(side: &Side, down: &watch::Sender<Option<Duration>>) {
    let mut told = down.subscribe();
    while let Ok(rest) = told.wait_for(Option::is_some).await.map(|rest| rest.unwrap_or_default()) {
        sleep(rest).await;
        side.server.restart().await.unwrap_or_else(|error| panic!("{}", error.chain()));
        down.send_replace(None);
    }
}

/// One round of faults.
pub struct Chaos<'a> {
    stage: &'a Stage,
    schedule: Schedule,
    /// What the clients are given; apart, so that a client that died by itself changes nothing of the schedule.
    seeds: Dice,
    clients: Vec<Client>,
    rules: Vec<Rule>,
    start: Instant,
    /// Which server is down, and for how long.
    down: [watch::Sender<Option<Duration>>; 2],
    counts: BTreeMap<&'static str, u32>,
    fired: u32,
    stopped: u32,
    log: Vec<String>,
    violations: Vec<String>,
}

impl<'a> Chaos<'a> {
    /// A round in which nothing was done yet.
    pub fn new(stage: &'a Stage, seed: u64) -> Self {
        Self {
            stage,
            schedule: Schedule::new(seed),
            seeds: Dice::new(!seed),
            clients: Vec::new(),
            rules: Vec::new(),
            start: Instant::now(),
            down: [watch::Sender::new(None), watch::Sender::new(None)],
            counts: BTreeMap::new(),
            fired: 0,
            stopped: 0,
            log: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// Starts the clients, and makes faults for so long.
    pub async fn run(&mut self, length: Duration) {
        let ([ledger, orders], [one, two]) = (self.stage.sides(), self.down.clone());
        tokio::select! {
            () = self.strike_for(length) => {}
            () = nurse(ledger, &one) => {}
            () = nurse(orders, &two) => {}
        }
    }

    async fn strike_for(&mut self, length: Duration) {
        self.start_all().await;
        let end = Instant::now() + length;
        while Instant::now() < end && self.violations.is_empty() {
            let (pause, fault) = self.schedule.next().expect("it has no end");
            sleep(pause).await;
            self.revive();
            self.log.push(format!("{:6} ms {fault:?}", self.start.elapsed().as_millis()));
            *self.counts.entry(fault.kind()).or_default() += 1;
            self.strike(fault).await;
            self.stage.sides().iter().for_each(|side| side.proxy.forget());
        }
        self.is_up(0).await;
        self.is_up(1).await;
    }

    async fn is_up(&self, server: usize) {
        let mut down = self.down[server].subscribe();
        down.wait_for(Option::is_none).await.expect("its sender is here");
    }

    /// With nothing broken every client opens.
    async fn start_all(&mut self) {
        for client in 0..CLIENTS {
            let started = self.stage.start(client, self.seeds.roll(), None);
            self.clients.push(started);
        }
        let deadline = Instant::now() + PATIENCE;
        for client in 0..CLIENTS {
            while !self.clients[client].is_open() {
                // One that could not open after a hard round is started again; what it says is kept.
                self.revive();
                if Instant::now() > deadline {
                    let said = self.clients[client].said();
                    return self
                        .violations
                        .push(format!("client {client} does not open, and nothing is broken: {said}"));
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Starts again what ended by itself.
    fn revive(&mut self) {
        for client in 0..CLIENTS {
            match self.clients[client].ended() {
                None => {}
                Some(end) => {
                    self.stopped += u32::from(end == End::Stopped);
                    if let End::Wrong(violation) = end {
                        self.violations.push(violation);
                    }
                    self.start_again(client, None);
                }
            }
        }
    }

    fn start_again(&mut self, client: usize, stop: Option<&StopAt>) {
        self.clients[client] = self.stage.start(client, self.seeds.roll(), stop);
    }

    async fn kill(&mut self, client: usize, stop: Option<&StopAt>) {
        self.clients[client].kill().await;
        self.start_again(client, stop);
    }

    async fn strike(&mut self, fault: Fault) {
        let sides = self.stage.sides();
        match fault {
            Fault::KillClient(client, stop) => self.kill(client, stop.as_ref()).await,
            Fault::KillClients => {
                for client in 0..CLIENTS {
                    self.clients[client].kill().await;
                }
                for client in 0..CLIENTS {
                    self.start_again(client, None);
                }
            }
            Fault::FreezeClient(client, ms) => {
                self.clients[client].signal("STOP").await;
                sleep(Duration::from_millis(ms)).await;
                self.clients[client].signal("CONT").await;
            }
            Fault::KillServer(server, ms) => self.kill_server(server, ms).await,
            Fault::KillAll => self.kill_all().await,
            Fault::FreezeServer(server, ms) => {
                self.is_up(server).await;
                sides[server].server.suspend().await.expect("a server can be stopped");
                sleep(Duration::from_millis(ms)).await;
                sides[server].server.resume().await.expect("a server goes on");
            }
            Fault::Sever(server) => sides[server].proxy.sever(),
            Fault::Down(server, ms) => {
                sides[server].proxy.down();
                sleep(Duration::from_millis(ms)).await;
                sides[server].proxy.up();
            }
            Fault::Wire(server, which, nth, arm) => self.arm(server, which, nth, arm),
        }
    }

    async fn kill_server(&mut self, server: usize, ms: u64) {
        self.is_up(server).await;
        self.stage.sides()[server].server.kill().await.expect("a server can be killed");
        self.down[server].send_replace(Some(Duration::from_millis(ms)));
    }

    async fn kill_all(&mut self) {
        for client in 0..CLIENTS {
            self.clients[client].kill().await;
        }
        self.kill_server(0, 0).await;
        self.kill_server(1, 0).await;
        for client in 0..CLIENTS {
            self.start_again(client, None);
        }
    }

    fn arm(&mut self, server: usize, which: usize, nth: u32, arm: usize) {
        debug_assert!(which < STATEMENTS);
        let side = self.stage.sides()[server];
        self.rules.push(ARMS[arm].1(side.proxy.on(statement(side.flavor(), which)).nth(nth)));
        if self.rules.len() > LASTS {
            let oldest = self.rules.remove(0);
            self.lift(&oldest);
        }
    }

    fn lift(&mut self, rule: &Rule) {
        rule.release();
        rule.disarm();
        self.fired += u32::from(rule.times() > 0);
    }

    /// Mends what is broken, and lets the clients end, in good order or not.
    pub async fn end(mut self) -> Done {
        for rule in std::mem::take(&mut self.rules) {
            self.lift(&rule);
        }
        for mut client in std::mem::take(&mut self.clients) {
            let in_order = self.seeds.below(2) == 0;
            self.log.push(format!("{:6} ms end, in order: {in_order}", self.start.elapsed().as_millis()));
            if in_order {
                self.violations.extend(client.finish().await.err());
            } else {
                client.kill().await;
            }
        }
        let counts: Vec<_> = self.counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let (fired, stopped) = (self.fired, self.stopped);
        let summary =
            format!("{} (of which {fired} struck); clients that stopped by themselves {stopped}", counts.join(", "));
        Done { log: self.log, summary, violations: self.violations }
    }
}
