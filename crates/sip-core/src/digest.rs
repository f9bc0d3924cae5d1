//! Digest authentication (RFC 7616, RFC 3261 §22, RFC 8760), as client and as
//! server.
//!
//! A server makes its nonces out of time and a key, so it keeps no table of
//! them, and every server with the same key knows the nonces of all others.
//!
//! ```
//! use std::time::Duration;
//! use sip_core::digest::{Client, Password, Server, ServerConfig};
//! use sip_core::{Edit, Message, Method, Name, Writer};
//!
//! let server = Server::new(ServerConfig::new("example.com"), [7; 16]);
//! let mut client = Client::new("ann", Password::new("secret"), 0x5eed);
//!
//! let register = Writer::request(Method::Register, b"sip:example.com")
//!     .header(Name::VIA, "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1")
//!     .header(Name::FROM, "<sip:ann@example.com>;tag=1")
//!     .header(Name::TO, "<sip:ann@example.com>")
//!     .header(Name::CALL_ID, "1@192.0.2.1")
//!     .header(Name::CSEQ, "1 REGISTER")
//!     .finish();
//! // Time since any moment that all servers with this key count from.
//! let now = Duration::from_secs(1_700_000_000);
//!
//! // Without credentials it is refused with one challenge per algorithm.
//! assert!(server.credentials(&register).is_none());
//! let mut refusal = Writer::answer(&register, 401, b"Unauthorized", Some(b"2"));
//! for challenge in server.challenges(now, b"192.0.2.1", false) {
//!     refusal = refusal.header(Name::WWW_AUTHENTICATE, challenge);
//! }
//! client.handle_challenge(&refusal.finish())?;
//!
//! // The client answers, in a request of its own: a new branch and CSeq.
//! let mut edit = Edit::new(&register).set(Name::CSEQ, "2 REGISTER");
//! for (name, credentials) in client.authorize(&register) {
//!     edit = edit.append(name, credentials);
//! }
//! let register = Message::parse(edit.finish()).expect("it is a message");
//!
//! // The server looks the user up and checks.
//! let credentials = server.credentials(&register).expect("they are for this realm");
//! assert_eq!(&*credentials.username, b"ann");
//! let verified = server.verify(now, b"192.0.2.1", &register, &credentials, &Password::new("secret"))?;
//! assert_eq!(verified.nonce_count, Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod algorithm;
mod client;
mod header;
mod response;
mod server;

pub use algorithm::{Algorithm, Hash};
pub use client::{ChallengeError, Client};
pub use header::{AuthenticationInfo, Challenge, Credentials, Qop, Qops};
pub use response::Password;
pub use server::{Server, ServerConfig, Verified, VerifyError};

#[cfg(test)]
mod tests;
