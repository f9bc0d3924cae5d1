//! The next version of `rm`: it keeps records in another form, and has news of which nobody knows.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use driver::{Class, Input, Metrics, Node, Output};
use failover::replica::{Batch, Item};
use rm::Rm;
use rm::frames::Frame as _;

/// How this version marks records, from here on one number for each form.
const PRESENT: u16 = 0x0210;
/// How the next one does; it reads both.
const NEXT: u16 = 0x02f0;
/// A frame that this version does not know.
const NEWS: u16 = 0x02ff;

pub(crate) struct Next {
    pub(crate) rm: Box<Rm>,
    news: VecDeque<Output>,
}

impl Next {
    pub(crate) fn new(rm: Rm) -> Self {
        Self { rm: Box::new(rm), news: VecDeque::new() }
    }
}

impl Node for Next {
    fn handle_input(&mut self, now: Instant, input: Input) {
        if let Input::LinkUp { peer, class: Class::Control, .. } = input {
            let payload = Bytes::from_static(b"news");
            let news = Output::Frame { peer, class: Class::Control, kind: NEWS, payload };
            self.news.push_back(news);
        }
        let Input::Frame { peer, class, kind, payload } = input else {
            return self.rm.handle_input(now, input);
        };
        let payload = marked((class, kind), payload, NEXT, PRESENT);
        self.rm.handle_input(now, Input::Frame { peer, class, kind, payload });
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.rm.handle_timeout(now);
    }

    fn end_turn(&mut self, now: Instant) {
        self.rm.end_turn(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        let output = self.news.pop_front().or_else(|| self.rm.poll_output())?;
        let Output::Frame { peer, class, kind, payload } = output else { return Some(output) };
        let payload = marked((class, kind), payload, PRESENT, NEXT);
        Some(Output::Frame { peer, class, kind, payload })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.rm.poll_timeout()
    }

    fn metrics(&self, out: &mut Metrics) {
        self.rm.metrics(out);
    }
}

/// Returns the payload with records marked from `to` on where they were marked from `from` on.
fn marked(frame: (Class, u16), payload: Bytes, from: u16, to: u16) -> Bytes {
    if frame != (Class::Bulk, Batch::KIND) {
        return payload;
    }
    let mut batch: Batch = driver::codec::decode(&payload).expect("a batch");
    for item in &mut batch.items {
        let Item::Record { value: Some(value), .. } = item else { continue };
        let Some((mark, rest)) = value.split_first_chunk() else { continue };
        let form = u16::from_be_bytes(*mark).checked_sub(from).filter(|form| *form < 0x10);
        if let Some(form) = form {
            *value = [&(to + form).to_be_bytes(), rest].concat().into();
        }
    }
    driver::codec::encode(&batch)
}
