//! The phone's registration (RFC 3261 §10.2).

use std::time::Duration;

use crate::fleet::Desk;
use crate::journal::Event;
use crate::phone::client::{Client, Purpose};
use crate::phone::{Phone, Reaction, contact, via};
use crate::sip::{Draft, Sip};

#[derive(Debug)]
pub(crate) struct Registration {
    call_id: String,
    cseq: u32,
    /// What the last REGISTER asked for, in seconds.
    expires: u32,
}

impl Phone {
    pub(crate) fn register(&mut self, desk: &mut Desk<'_>, expires: u32) {
        let Some(server) = desk.config.server_of(desk.phone) else { return };
        let (branch, tag) = (self.new_branch(desk), self.new_tag(desk));
        let call_id = format!("{:016x}@{}", desk.random.next(), desk.config.ip);
        let registration =
            self.registration.get_or_insert(Registration { call_id, cseq: 0, expires });
        registration.cseq += 1;
        registration.expires = expires;
        let (cseq, aor) = (registration.cseq, desk.config.aor(self.id));
        let register = Draft::request("REGISTER", &format!("sip:{}", desk.config.domain))
            .header("Via", &via(desk, &branch))
            .header("Max-Forwards", "70")
            .header("From", &format!("<{aor}>;tag={tag}"))
            .header("To", &format!("<{aor}>"))
            .header("Call-ID", &registration.call_id)
            .header("CSeq", &format!("{cseq} REGISTER"))
            .header("Contact", &contact(desk))
            .header("Expires", &expires.to_string())
            .finish(None);
        self.send_request(
            desk,
            Client::new("REGISTER", branch, cseq, Purpose::Register, register, server),
        );
    }

    pub(crate) fn registered(&mut self, desk: &mut Desk<'_>, sip: &Sip, status: u16) {
        self.reactions.retain(|_, reaction| !matches!(reaction, Reaction::Refresh));
        let wait = if (200..300).contains(&status) {
            desk.event(Event::Registered);
            let expires = self.registration.as_ref().map_or(0, |registration| registration.expires);
            (expires != 0).then_some(Duration::from_secs(u64::from(expires)) / 2)
        } else {
            desk.event(Event::NotRegistered(status));
            sip.retry_after().map(|seconds| Duration::from_secs(u64::from(seconds)))
        };
        if let Some(wait) = wait {
            self.react(desk.now + wait, Reaction::Refresh);
        }
    }
}
