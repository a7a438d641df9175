//! An HTTP service that moves money from accounts in PostgreSQL to wallets in MySQL or MariaDB: a request that may be sent
//! again, an outcome that can be asked for, readiness, and an end on SIGTERM that loses and leaves nothing.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --example axum_service -- POSTGRES_URL MYSQL_URL    # makes databases to try it on, until Ctrl-C
//! curl -d '{"key":"k1","account":1,"wallet":1,"cents":700}' -H content-type:application/json localhost:8080/transfers
//! ```
//!
//! `axum_service serve CONFIG` is the service alone, as it is deployed: on databases that are there, one journal and one
//! `node` for each replica. `LISTEN` (127.0.0.1:8080) says where, `NOTICE_MS` how long load balancers are given to leave.

mod common;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use common::{Result, Stage};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Config, Error, ErrorKind, Transaction, TransactionId};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// What every request can use. A bridge is cheap to clone.
#[derive(Clone)]
struct Service {
    bridge: Bridge,
    is_leaving: watch::Receiver<bool>,
}

#[derive(Clone, Deserialize)]
struct Transfer {
    /// Chosen by the client. However often it has to send a transfer, under one key it is done once.
    key: String,
    account: i32,
    wallet: i32,
    cents: i64,
}

#[derive(Serialize)]
struct Told {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

type Answer = (StatusCode, Json<Told>);

fn answer(status: StatusCode, outcome: &'static str, id: Option<String>, why: Option<String>) -> Answer {
    (status, Json(Told { outcome, id, why }))
}

/// A no of the application's own. In a transaction's closure it is the cause of an error, so that all is rolled back.
#[derive(Debug)]
enum Refusal {
    NotEnough,
    NoSuchWallet,
    /// Done before, by this transaction.
    Done(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotEnough => f.write_str("there is not enough in the account"),
            Self::NoSuchWallet => f.write_str("there is no such wallet"),
            Self::Done(id) => write!(f, "{id} has done it before"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Error::new(ErrorKind::Statement, "the transfer is refused").because(refusal)
    }
}

/// The key goes in with the money: when one is there, so is the other.
async fn move_money(tx: &Transaction, transfer: &Transfer) -> handfast::Result<TransactionId> {
    let Transfer { key, account, wallet, cents } = transfer;
    let ledger = tx.postgres("ledger").await?;
    let insert = "INSERT INTO transfer (key, id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    if ledger.execute(insert, &[key, &tx.id().to_string()]).await? == 0 {
        let done = ledger.query_one("SELECT id FROM transfer WHERE key = $1", &[key]).await?;
        return Err(Refusal::Done(done.get(0)).into());
    }
    let debit = "UPDATE account SET cents = cents - $1 WHERE id = $2 AND cents >= $1";
    if ledger.execute(debit, &[cents, account]).await? == 0 {
        return Err(Refusal::NotEnough.into());
    }
    let mut orders = tx.mysql("orders").await?;
    let credit = "UPDATE wallet SET cents = cents + ? WHERE id = ?";
    if orders.exec_iter(credit, (cents, wallet)).await?.affected_rows() == 0 {
        return Err(Refusal::NoSuchWallet.into());
    }
    Ok(tx.id())
}

/// `POST /transfers`. A client that hangs up drops this: before the commit that rolls back, during it the commit goes on.
async fn transfer(State(service): State<Service>, Json(transfer): Json<Transfer>) -> Answer {
    if transfer.cents <= 0 {
        return answer(StatusCode::UNPROCESSABLE_ENTITY, "rolled_back", None, Some("cents must be above 0".into()));
    }
    let done = service.bridge.transaction(async move |tx| move_money(tx, &transfer).await).await;
    let error = match done {
        Ok(id) => return answer(StatusCode::OK, "committed", Some(id.to_string()), None),
        Err(error) => error,
    };
    let refusal = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<Refusal>());
    match (refusal, error.kind()) {
        (Some(Refusal::Done(id)), _) => answer(StatusCode::OK, "committed", Some(id.clone()), None),
        (Some(no), _) => answer(StatusCode::UNPROCESSABLE_ENTITY, "rolled_back", None, Some(no.to_string())),
        // It may be committed. The client sends it again, under the same key, or asks for the outcome.
        (None, ErrorKind::InDoubt | ErrorKind::Damaged) => {
            eprintln!("{}", error.chain());
            answer(StatusCode::SERVICE_UNAVAILABLE, "in_doubt", error.transaction().map(|id| id.to_string()), None)
        }
        // Certainly nowhere: to be sent again. What went wrong is the log's, not the client's.
        (None, _) => {
            eprintln!("{}", error.chain());
            answer(StatusCode::SERVICE_UNAVAILABLE, "rolled_back", None, None)
        }
    }
}

/// `GET /transactions/{id}`: how it ended, at any later time. The replica knows it whose node is in the id.
async fn outcome(State(service): State<Service>, Path(id): Path<String>) -> Answer {
    let Ok(parsed) = id.parse() else {
        return answer(StatusCode::BAD_REQUEST, "unknown", None, Some("that is no id".into()));
    };
    match service.bridge.outcome(parsed).await {
        Ok(outcome) => answer(StatusCode::OK, outcome.as_str(), Some(id), None),
        Err(error) if error.kind() == ErrorKind::Unknown => answer(StatusCode::NOT_FOUND, "unknown", Some(id), None),
        Err(error) => answer(StatusCode::SERVICE_UNAVAILABLE, "in_doubt", Some(id), Some(error.to_string())),
    }
}

/// `GET /ready`: whether to send requests here. `status` does not ask the databases, so it answers at once.
async fn ready(State(service): State<Service>) -> (StatusCode, String) {
    let status = service.bridge.status();
    let unreachable = status.participants.iter().find(|participant| !participant.reachable);
    if *service.is_leaving.borrow() {
        (StatusCode::SERVICE_UNAVAILABLE, "leaving\n".into())
    } else if let Some(cause) = status.journal_failed {
        (StatusCode::SERVICE_UNAVAILABLE, format!("the journal takes no more decisions: {cause}\n"))
    } else if let Some(participant) = unreachable {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{} cannot be used\n", participant.name))
    } else {
        (StatusCode::OK, format!("ready; in doubt: {}, damaged: {}\n", status.in_doubt, status.damaged))
    }
}

/// Who is told so does not send its next request here, into a connection that is about to be closed.
async fn say_goodbye(State(service): State<Service>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if *service.is_leaving.borrow() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Opens, serves, and ends in good order: a notice while everything is still served, then no new connections, then what
/// was begun is answered, then the bridge is closed.
async fn serve(config: Config) -> Result<()> {
    // Before the first signal could come.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // Before there is a port to connect to: whatever is accepted can be served. Settles what a crash left.
    let bridge = Bridge::open(config).await?;
    let (leave, is_leaving) = watch::channel(false);
    let service = Service { bridge: bridge.clone(), is_leaving: is_leaving.clone() };
    let routes = Router::new()
        .route("/transfers", post(transfer))
        .route("/transactions/{id}", get(outcome))
        .route("/ready", get(ready))
        .layer(middleware::from_fn_with_state(service.clone(), say_goodbye))
        .with_state(service);
    let listener = TcpListener::bind(setting("LISTEN", "127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);

    let notice = Duration::from_millis(setting("NOTICE_MS", "3000").parse()?);
    let until_told = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        leave.send_replace(true);
        println!("leaving");
        tokio::time::sleep(notice).await;
    };
    tokio::select! {
        served = axum::serve(listener, routes).with_graceful_shutdown(until_told) => served?,
        () = overdue(is_leaving, notice) => eprintln!("left with requests that did not end"),
    }
    bridge.close().await?;
    println!("closed");
    Ok(())
}

/// When a client that never finishes its request has been waited for long enough. Transactions end by their deadline.
async fn overdue(mut is_leaving: watch::Receiver<bool>, notice: Duration) {
    // An error: nobody can leave any more, since that has happened.
    let _ = is_leaving.wait_for(|leaving| *leaving).await;
    tokio::time::sleep(notice + Duration::from_secs(60)).await;
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.into())
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, config] = arguments.as_slice()
        && word == "serve"
    {
        return serve(Config::load(config)?).await;
    }
    let accounts = "CREATE TABLE account (id int PRIMARY KEY, cents bigint NOT NULL); \
                    INSERT INTO account VALUES (1, 5000), (2, 5000); \
                    CREATE TABLE transfer (key text PRIMARY KEY, id text NOT NULL)";
    let wallets = "CREATE TABLE wallet (id int PRIMARY KEY, cents bigint NOT NULL); \
                   INSERT INTO wallet VALUES (1, 0), (2, 0)";
    let stage = Stage::set("service", &[("ledger", accounts), ("orders", wallets)]).await?;
    serve(stage.config()?).await?;
    let accounts = stage.numbers("ledger", "SELECT cents FROM account ORDER BY id").await?;
    let wallets = stage.numbers("orders", "SELECT cents FROM wallet ORDER BY id").await?;
    println!("accounts hold {accounts:?} cents, wallets {wallets:?}");
    assert_eq!(accounts.iter().chain(&wallets).sum::<i64>(), 10_000);
    stage.clear().await
}
