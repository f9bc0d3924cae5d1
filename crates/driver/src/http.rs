//! `/healthz`, `/metrics` and orders, on a thread of their own.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use parking_lot::Mutex;
use tracing::warn;

use crate::metrics::Metrics;
use crate::node::{Reply, Request};
use crate::run::clock;
use api::Desk;
use door::Door;

mod api;
mod client;
mod door;
#[cfg(test)]
mod tests;
mod token;

pub use client::{OrderError, drain, put};
pub use token::{TOKEN_MAX, TOKEN_MIN, Token, TokenError};

/// Where a node is told to drain.
pub(crate) const DRAIN_PATH: &str = "/api/v1/drain";

/// A loop that has posted nothing for this long is not well.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// A connection that is not done by then is closed.
const VISIT_MAX: Duration = Duration::from_secs(5);

/// Where the loop posts copies of its figures for the HTTP thread, and finds the orders that came.
pub(crate) struct Board {
    posted: Mutex<Posted>,
    token: Option<Token>,
    /// An order to drain came.
    drains: AtomicBool,
    desk: Desk,
    waker: Waker,
}

struct Posted {
    at: Instant,
    metrics: Metrics,
    unready: Option<&'static str>,
}

impl Board {
    pub(crate) fn post(&self, at: Instant, metrics: Metrics, unready: Option<&'static str>) {
        *self.posted.lock() = Posted { at, metrics, unready };
    }

    /// Returns whether the node was told to drain since the last time.
    pub(crate) fn take_drain(&self) -> bool {
        self.drains.swap(false, Ordering::Relaxed)
    }

    /// Returns what the node was asked since the last time.
    pub(crate) fn take_requests(&self) -> VecDeque<(u64, Request)> {
        self.desk.take()
    }

    /// Answers who asked.
    pub(crate) fn reply(&self, id: u64, reply: Reply) {
        self.desk.reply(id, reply);
    }
}

/// Starts to serve what will be posted on the returned board, and to take orders from who knows the
/// token; each wakes the loop. With `api` the node itself answers what else is asked.
///
/// The thread ends with the process.
pub(crate) fn serve(
    addr: SocketAddr,
    token: Option<Token>,
    api: bool,
    waker: Waker,
) -> io::Result<Arc<Board>> {
    serve_visits(addr, VISIT_MAX, token, api, waker).map(|(board, _)| board)
}

fn serve_visits(
    addr: SocketAddr,
    visit_max: Duration,
    token: Option<Token>,
    api: bool,
    waker: Waker,
) -> io::Result<(Arc<Board>, SocketAddr)> {
    let nothing = Posted { at: clock(), metrics: Metrics::default(), unready: Some("starting") };
    let posted = Mutex::new(nothing);
    let (drains, desk) = (AtomicBool::new(false), Desk::default());
    let board = Arc::new(Board { posted, token, drains, desk, waker });
    let listener = TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    let local = listener.local_addr()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let router = router(board.clone(), api);
    std::thread::Builder::new().name("http".into()).spawn(move || {
        let served =
            runtime.block_on(async { axum::serve(Door::new(listener, visit_max)?, router).await });
        if let Err(error) = served {
            warn!(%error, "HTTP ended");
        }
    })?;
    Ok((board, local))
}

fn router(board: Arc<Board>, api: bool) -> Router {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route(DRAIN_PATH, post(take_order));
    let router = if api { router.route("/api/v1/{*path}", api::route()) } else { router };
    router.with_state(board)
}

async fn healthz(State(board): State<Arc<Board>>) -> impl IntoResponse {
    let (at, unready) = {
        let posted = board.posted.lock();
        (posted.at, posted.unready)
    };
    let turns = clock().saturating_duration_since(at) < STALE_AFTER;
    let why = if turns { unready } else { Some("the loop does not turn") };
    let (status, text) = match why {
        None => (StatusCode::OK, "ok"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    (status, [(header::CONNECTION, "close")], format!("{text}\n"))
}

async fn metrics(State(board): State<Arc<Board>>) -> impl IntoResponse {
    let metrics = board.posted.lock().metrics.clone();
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4");
    ([kind, (header::CONNECTION, "close")], metrics.text())
}

async fn take_order(State(board): State<Arc<Board>>, headers: HeaderMap) -> Response {
    if let Err(refusal) = orderer(&board, &headers) {
        return refusal;
    }
    board.drains.store(true, Ordering::Relaxed);
    board.waker.wake_by_ref();
    let kind = (header::CONTENT_TYPE, "application/json");
    (StatusCode::ACCEPTED, [kind], "{\"draining\":true}\n").into_response()
}

/// Lets through who may give orders; the others get this answer.
#[expect(clippy::result_large_err, reason = "it is the answer")]
fn orderer(board: &Board, headers: &HeaderMap) -> Result<(), Response> {
    let Some(token) = &board.token else {
        return Err((StatusCode::FORBIDDEN, "no token is configured\n").into_response());
    };
    // RFC 6750 §2.1, §3: the scheme's name in any case, then the token.
    let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.split_at_checked(7));
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    let challenge = match given {
        Some((_, word)) if token.is(word.trim_ascii()) => return Ok(()),
        Some(_) => "Bearer error=\"invalid_token\"",
        None => "Bearer",
    };
    let challenge = (header::WWW_AUTHENTICATE, challenge);
    let text = "the token is missing or wrong\n";
    Err((StatusCode::UNAUTHORIZED, [challenge], text).into_response())
}
