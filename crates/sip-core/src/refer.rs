//! REFER with the subscription that it implies (RFC 3515, RFC 7647), or, when
//! both sides can do without, with none (RFC 4488).
//!
//! [`Referee`] is the side that is asked and tells how it went, [`Referrer`]
//! the side that asks. Both stand beside the [`Dialog`](crate::dialog::Dialog)
//! that carries REFER and NOTIFY.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use sip_core::refer::{Notice, Progress, Referee, RefereeOutput, Referrer, ReferrerOutput};
//! use sip_core::{Message, Name, Writer};
//!
//! # fn example(now: Instant, refer: Message) -> Result<(), Box<dyn std::error::Error>> {
//! // The phone that is asked to call somebody else.
//! let mut referee = Referee::new(now, &refer, Duration::from_secs(180))?;
//! let accepted = referee.answer(&refer, b"tag");          // 202
//! let to = refer.refer_to().expect("`new` has checked it"); // Whom to call.
//! referee.report(486, b"Busy Here");                       // How that went.
//! while let Some(RefereeOutput::Notify(notice)) = referee.poll_output() {
//!     // `Dialog::request(Method::Notify, …)` starts the message.
//!     # let start = |_: &Notice| Writer::request(sip_core::Method::Notify, b"sip:ann@192.0.2.1");
//!     let notify = notice.write(start(&notice)).finish();
//!     // The phone that asked.
//!     # let mut referrer = Referrer::new(now, &refer, Duration::from_secs(32));
//!     referrer.handle_notify(now, &notify)?; // Answer it with 200.
//! }
//! # Ok(())
//! # }
//! ```

mod referee;
mod referrer;

pub use referee::{Notice, ReferError, Referee, RefereeOutput};
pub use referrer::{NotifyError, Progress, Referrer, ReferrerOutput};

use crate::{Message, Name};

/// The option tag of RFC 4488.
pub const NO_SUBSCRIPTION: &str = "norefersub";

/// True when a REFER asks for no subscription, or a 2xx to it agrees:
/// `Refer-Sub: false` (RFC 4488 §4).
fn declines_subscription(message: &Message) -> bool {
    message.header(Name::REFER_SUB).is_some_and(|value| {
        let end = memchr::memchr(b';', value).unwrap_or(value.len());
        crate::lex::trim(&value[..end]).eq_ignore_ascii_case(b"false")
    })
}

#[cfg(test)]
mod tests;
