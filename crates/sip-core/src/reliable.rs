//! Provisional responses that are repeated until they are acknowledged: PRACK
//! and `100rel` (RFC 3262).
//!
//! One [`Server`] belongs to each INVITE that is answered, one [`Client`] to
//! each that is sent. Both stand beside the transaction of their INVITE.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use sip_core::reliable::{Arrival, Client, Output, Server, Support};
//! use sip_core::{Message, Method, Name, Writer};
//!
//! # fn example(now: Instant, invite: Message) -> Result<(), Box<dyn std::error::Error>> {
//! assert_eq!(Support::of(&invite), Support::Wanted);
//! let mut server = Server::new(&invite, Duration::from_millis(500), 0x5eed);
//! server.respond(now, Writer::answer(&invite, 180, b"Ringing", Some(b"tag")))?;
//! // Give it to `Transactions::respond`; it comes again until it is acknowledged.
//! let Some(Output::Respond(ringing)) = server.poll_output() else { panic!("it is sent at once") };
//!
//! let mut client = Client::new(&invite);
//! let Arrival::New { rack } = client.handle_response(&ringing) else { panic!("it is new") };
//! assert_eq!(client.handle_response(&ringing), Arrival::Copy);
//! // A PRACK is a request of the early dialog: `Dialog::request`.
//! let prack = Writer::request(Method::Prack, b"sip:bob@192.0.2.4").header(Name::RACK, rack).finish();
//!
//! server.acknowledge(now, &prack)?; // Answer the PRACK with 200.
//! assert_eq!(server.poll_timeout(), None);
//! # Ok(())
//! # }
//! ```

mod client;
mod server;

pub use client::{Arrival, Client};
pub use server::{Output, PrackError, RespondError, Server};

use crate::{Message, Name};

/// The option tag of RFC 3262.
pub const OPTION: &str = "100rel";

/// What an INVITE says about reliable provisional responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Every one but 100 must be reliable (`Require: 100rel`).
    Required,
    /// Any may be (`Supported: 100rel`).
    Wanted,
    /// None may be.
    None,
}

impl Support {
    /// Reads an INVITE.
    #[must_use]
    pub fn of(invite: &Message) -> Self {
        if invite.lists(Name::REQUIRE, OPTION.as_bytes()) {
            Self::Required
        } else if invite.lists(Name::SUPPORTED, OPTION.as_bytes()) {
            Self::Wanted
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests;
