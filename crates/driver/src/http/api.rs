//! What a node itself is asked, and answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Board, orderer};
use crate::node::{Reply, Request, Verb};

/// The longest body of a request.
const BODY_MAX: usize = 16 << 20;

/// Requests that wait for the node at one time.
const WAITING_MAX: usize = 16;

/// The requests between the HTTP thread and the loop.
#[derive(Default)]
pub(super) struct Desk(Mutex<Papers>);

#[derive(Default)]
struct Papers {
    next: u64,
    asked: VecDeque<(u64, Request)>,
    waiting: BTreeMap<u64, oneshot::Sender<Reply>>,
}

/// Who waits for an answer; gone with the connection.
struct Visitor<'a> {
    desk: &'a Desk,
    id: u64,
}

impl Desk {
    pub(super) fn take(&self) -> VecDeque<(u64, Request)> {
        std::mem::take(&mut self.0.lock().asked)
    }

    pub(super) fn reply(&self, id: u64, reply: Reply) {
        if let Some(visitor) = self.0.lock().waiting.remove(&id) {
            // Who asked may have left.
            let _ = visitor.send(reply);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Hands a request in, unless too many wait.
    fn ask(&self, request: Request) -> Option<(Visitor<'_>, oneshot::Receiver<Reply>)> {
        let mut papers = self.0.lock();
        if WAITING_MAX <= papers.waiting.len() {
            return None;
        }
        let id = papers.next;
        papers.next += 1;
        let (sender, receiver) = oneshot::channel();
        papers.waiting.insert(id, sender);
        papers.asked.push_back((id, request));
        Some((Visitor { desk: self, id }, receiver))
    }
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        let mut papers = self.desk.0.lock();
        papers.waiting.remove(&self.id);
        papers.asked.retain(|(id, _)| *id != self.id);
    }
}

pub(super) fn route() -> MethodRouter<Arc<Board>> {
    get(ask).put(ask).post(ask).layer(DefaultBodyLimit::max(BODY_MAX))
}

async fn ask(
    State(board): State<Arc<Board>>,
    method: Method,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let verb = match method {
        Method::PUT => Verb::Put,
        Method::POST => Verb::Post,
        _ => Verb::Get,
    };
    if verb != Verb::Get
        && let Err(refusal) = orderer(&board, &headers)
    {
        return refusal;
    }
    let request = Request { verb, path, query: query.unwrap_or_default(), body };
    let Some((_visitor, answer)) = board.desk.ask(request) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many requests wait\n").into_response();
    };
    board.waker.wake_by_ref();
    let Ok(Reply { status, body }) = answer.await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the node stops\n").into_response();
    };
    let kind = if status == 200 { "application/json" } else { "text/plain; charset=utf-8" };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, kind), (header::CONNECTION, "close")], body.into_text())
        .into_response()
}
