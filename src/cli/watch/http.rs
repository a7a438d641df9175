//! The three pages: `/health`, `/ready`, `/metrics`. They say what the last look showed, and ask nobody.

use super::seen::Seen;
use crate::error::{Error, ErrorKind, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// A request is a line, and so is most of the answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers in the background for as long as the program runs: the address, with the port that the system gave.
///
/// # Errors
/// [`ErrorKind::Setup`] when the address is not to be had.
pub(super) async fn serve(address: SocketAddr, seen: Arc<Seen>) -> Result<SocketAddr> {
    let refused = |error| Error::new(ErrorKind::Setup, format!("cannot listen on {address}")).because(error);
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(answer(stream, seen.clone()))),
                // Too many open files, say: they are closed within the time that a request has.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(bound)
}

async fn answer(stream: TcpStream, seen: Arc<Seen>) {
    let service = service_fn(|request| {
        let response = page(&request, &seen);
        async { Ok::<_, Infallible>(response) }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    // Who sends no whole request in time is not answered; neither that nor a broken one is anything to tell.
    let _ = timeout(PATIENCE, connection).await;
}

fn page(request: &Request<Incoming>, seen: &Seen) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
    }
    let said = |(is_good, word): (bool, &str)| {
        text(if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &format!("{word}\n"))
    };
    match request.uri().path() {
        "/health" => said(seen.health()),
        "/ready" => said(seen.readiness()),
        "/metrics" => text(StatusCode::OK, &seen.figures()),
        _ => text(StatusCode::NOT_FOUND, "there are /health, /ready and /metrics\n"),
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_owned())));
    *response.status_mut() = status;
    // The version is that of Prometheus' text format, and harmless elsewhere.
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
