//! What an operator asks over HTTP.

use driver::{Output, Reply, Request};

use super::Rm;

impl Rm {
    /// Answers a request.
    pub(super) fn asked(&mut self, id: u64, request: &Request) {
        let reply = Reply { status: 404, body: format!("there is no {}\n", request.path) };
        self.outputs.push_back(Output::Reply { id, reply });
    }
}
