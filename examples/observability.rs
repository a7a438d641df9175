//! What a transaction tells: its span with the phases inside, in the log of `tracing`; its figures, as Prometheus scrapes
//! them over HTTP; and the caller's span around it, by which a request is followed into its commit.
//!
//! ```sh
//! make servers                                                  # in another terminal; prints the URLs
//! cargo run --features metrics --example observability -- POSTGRES_URL MYSQL_URL
//! ```
//!
//! `RUST_LOG` says what is shown, `info,handfast::transaction=debug` if it says nothing. What the names mean is in
//! `docs/guide/observability.md` and `docs/metrics.md`, with OpenTelemetry, a dashboard and alert rules.

mod common;

use axum::{Router, routing::get};
use common::{ENTRY, Result, Stage};
use handfast::mysql_async::prelude::Queryable;
use handfast::{Bridge, Error, ErrorKind};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::Instrument;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// A line for each span that closes, with the time that it took.
fn trace() {
    let filter = EnvFilter::try_from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new("info,handfast::transaction=debug")))
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(std::io::stdout().is_terminal())
        .init();
}

/// Before the bridge is opened: what happens before there is a recorder is not counted.
fn measure() -> Result<PrometheusHandle> {
    let seconds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0];
    let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &seconds)?;
    Ok(builder.install_recorder()?)
}

/// `/metrics`, as the application's own routes would have it.
async fn expose(handle: PrometheusHandle) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new().route("/metrics", get(async move || handle.render()));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(address)
}

/// What Prometheus does every few seconds.
async fn scrape(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// A request of somebody's: the transaction's span is inside of its span, and what `work` traces inside of both.
async fn handle(bridge: &Bridge, request: i64) -> handfast::Result<()> {
    let work = bridge.transaction(async move |tx| {
        tx.postgres("ledger").await?.execute("INSERT INTO entry VALUES ($1)", &[&request]).await?;
        tx.mysql("orders").await?.exec_drop("INSERT INTO entry VALUES (?)", (request,)).await?;
        tracing::info!("entered on both");
        if request == 4 { Err(Error::new(ErrorKind::Statement, "four is refused")) } else { Ok(()) }
    });
    work.instrument(tracing::info_span!("request", number = request)).await
}

#[tokio::main]
async fn main() -> Result<()> {
    trace();
    let address = expose(measure()?).await?;
    let stage = Stage::set("observed", &[("ledger", ENTRY), ("orders", ENTRY)]).await?;
    let bridge = Bridge::open(stage.config()?).await?;
    for request in 1..=4 {
        let done = handle(&bridge, request).await;
        assert_eq!(done.is_err(), request == 4, "{done:?}");
    }

    // Counters are there at once, gauges from the next `recovery.lease_interval` on.
    let told = async {
        loop {
            let text = scrape(address).await?;
            if text.contains("handfast_participant_reachable") {
                return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(text);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let text = tokio::time::timeout(Duration::from_secs(60), told).await??;
    println!("\nscraped from http://{address}/metrics:");
    let shown = ["_total", "_seconds_count", "_seconds_sum", "_in_doubt", "_damaged", "_reachable", "_free"];
    for line in text.lines().filter(|line| line.starts_with("handfast_")) {
        if shown.iter().any(|part| line.split('{').next().is_some_and(|name| name.ends_with(part))) {
            println!("  {line}");
        }
    }
    for (outcome, many) in [("committed", 3), ("rolled_back", 1)] {
        let line = format!("handfast_transactions_total{{outcome=\"{outcome}\"}} {many}");
        assert!(text.contains(&line), "{line}");
    }
    bridge.close().await?;
    stage.clear().await
}
