//! What an operator asks over HTTP.

use std::time::Instant;

use driver::{Output, Request};

use super::Rm;
use crate::membership;

impl Rm {
    /// Answers a request, now or later.
    pub(super) fn asked(&mut self, now: Instant, id: u64, request: &Request) {
        let reply = match &mut self.membership {
            Some(membership) => membership.asked(now, id, request),
            None => Some(membership::nothing(request)),
        };
        self.outputs.extend(reply.map(|reply| Output::Reply { id, reply }));
    }
}

#[cfg(test)]
mod tests;
