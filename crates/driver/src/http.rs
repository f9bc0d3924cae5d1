//! `/healthz` and `/metrics`, on a thread of their own.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use parking_lot::Mutex;
use tracing::warn;

use crate::metrics::Metrics;
use crate::run::clock;
use door::Door;

mod door;

/// A loop that has posted nothing for this long is not well.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// A connection that is not done by then is closed.
const VISIT_MAX: Duration = Duration::from_secs(5);

/// Where the loop posts copies of its figures for the HTTP thread.
pub(crate) struct Board(Mutex<Posted>);

struct Posted {
    at: Instant,
    metrics: Metrics,
    unready: Option<&'static str>,
}

impl Board {
    pub(crate) fn post(&self, at: Instant, metrics: Metrics, unready: Option<&'static str>) {
        *self.0.lock() = Posted { at, metrics, unready };
    }
}

/// Starts to serve what will be posted on the returned board.
///
/// The thread ends with the process.
pub(crate) fn serve(addr: SocketAddr) -> io::Result<Arc<Board>> {
    serve_visits(addr, VISIT_MAX).map(|(board, _)| board)
}

fn serve_visits(addr: SocketAddr, visit_max: Duration) -> io::Result<(Arc<Board>, SocketAddr)> {
    let nothing = Posted { at: clock(), metrics: Metrics::default(), unready: Some("starting") };
    let board = Arc::new(Board(Mutex::new(nothing)));
    let listener = TcpListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    let local = listener.local_addr()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let router = router(board.clone());
    std::thread::Builder::new().name("http".into()).spawn(move || {
        let served =
            runtime.block_on(async { axum::serve(Door::new(listener, visit_max)?, router).await });
        if let Err(error) = served {
            warn!(%error, "HTTP ended");
        }
    })?;
    Ok((board, local))
}

fn router(board: Arc<Board>) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/metrics", get(metrics)).with_state(board)
}

async fn healthz(State(board): State<Arc<Board>>) -> impl IntoResponse {
    let (at, unready) = {
        let posted = board.0.lock();
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
    let metrics = board.0.lock().metrics.clone();
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4");
    ([kind, (header::CONNECTION, "close")], metrics.text())
}
