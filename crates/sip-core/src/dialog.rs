//! Dialogs (RFC 3261 §12), as the caller's and as the callee's side sees them.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use crate::{Message, Method, Name, NameAddr, Scheme, Uri, Writer};

mod exchange;
mod replacement;

pub use exchange::{Busy, Exchange, Glare};
pub use replacement::{Phase, Refusal, Replacement, Target};

/// One dialog, early or confirmed.
///
/// Every field is what RFC 3261 §12.1 calls part of a dialog's state. The
/// bytes are compact copies that keep no message alive. With the feature
/// `serde` the value can be stored and read back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Dialog {
    /// Call-ID.
    pub call_id: Bytes,
    /// Our tag: in From of what we send, in To of what we get.
    pub local_tag: Bytes,
    /// The peer's tag; empty for an RFC 2543 peer that gives none.
    pub remote_tag: Bytes,
    /// Our display name and URI in angle brackets, without a tag.
    pub local: Bytes,
    /// The peer's display name and URI in angle brackets, without a tag.
    pub remote: Bytes,
    /// The CSeq number of the newest request that we sent; 0 before the first.
    pub local_cseq: u32,
    /// The CSeq number of the newest request that the peer sent.
    pub remote_cseq: Option<u32>,
    /// What goes into Route, in order, each in angle brackets.
    pub route_set: Vec<Bytes>,
    /// The peer's Contact URI, where requests go in the end.
    pub remote_target: Bytes,
    /// Whether the dialog was made with a `sips` Request-URI.
    pub secure: bool,
    /// Whether a 2xx was sent or received. Early before.
    pub confirmed: bool,
}

/// Why a message makes no dialog. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialogError {
    /// From, To or CSeq cannot be read, or Call-ID is missing.
    #[error("from, to, call-id or cseq cannot be read")]
    Unreadable,
    /// The request has no Contact, so no later request could reach the peer.
    #[error("the request has no contact with a SIP URI")]
    NoContact,
    /// The response is a 100, a provisional one without a To tag, or a refusal.
    #[error("the response makes no dialog")]
    NoDialog,
}

/// The CSeq number of a request is lower than that of one before. The peer is
/// at fault; the answer is 500 (RFC 3261 §12.2.2). Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cseq number is lower than the newest one")]
pub struct OutOfOrder;

impl Dialog {
    /// Makes the callee's side of the dialog that `request` asks for, early
    /// until the owner sets `confirmed`. `local_tag` is what the answers carry
    /// in To.
    ///
    /// # Errors
    ///
    /// See [`DialogError`]; the answer is 400.
    pub fn uas(request: &Message, local_tag: &[u8]) -> Result<Self, DialogError> {
        let from = request.from().ok_or(DialogError::Unreadable)?;
        let to = request.to().ok_or(DialogError::Unreadable)?;
        let cseq = request.cseq().ok_or(DialogError::Unreadable)?;
        let contact = target(request).ok_or(DialogError::NoContact)?;
        let uri = request.request_uri().ok_or(DialogError::NoDialog)?;
        let mut copy = Copy::default();
        let call_id = copy.add(request.call_id());
        let local_tag = copy.add(local_tag);
        let remote_tag = copy.add(from.tag().unwrap_or_default());
        let local = copy.add_address(&to);
        let remote = copy.add_address(&from);
        let remote_target = copy.add(contact);
        let routes = copy.add_routes(request);
        let copy = copy.finish();
        Ok(Self {
            call_id: copy.slice(call_id),
            local_tag: copy.slice(local_tag),
            remote_tag: copy.slice(remote_tag),
            local: copy.slice(local),
            remote: copy.slice(remote),
            local_cseq: 0,
            remote_cseq: Some(cseq.number),
            route_set: routes.into_iter().map(|route| copy.slice(route)).collect(),
            remote_target: copy.slice(remote_target),
            secure: is_secure(uri),
            confirmed: false,
        })
    }

    /// Makes what the caller knows before anything came back: no remote tag, no
    /// route set, and the Request-URI as the remote target. It is no dialog
    /// yet; [`Dialog::answered`] makes one of it for each answer.
    ///
    /// # Errors
    ///
    /// [`DialogError::Unreadable`]: the caller wrote no such request.
    pub fn calling(request: &Message) -> Result<Self, DialogError> {
        let from = request.from().ok_or(DialogError::Unreadable)?;
        let to = request.to().ok_or(DialogError::Unreadable)?;
        let cseq = request.cseq().ok_or(DialogError::Unreadable)?;
        let uri = request.request_uri().ok_or(DialogError::Unreadable)?;
        let mut copy = Copy::default();
        let call_id = copy.add(request.call_id());
        let local_tag = copy.add(from.tag().unwrap_or_default());
        let local = copy.add_address(&from);
        let remote = copy.add_address(&to);
        let remote_target = copy.add(uri);
        let copy = copy.finish();
        Ok(Self {
            call_id: copy.slice(call_id),
            local_tag: copy.slice(local_tag),
            remote_tag: Bytes::new(),
            local: copy.slice(local),
            remote: copy.slice(remote),
            local_cseq: cseq.number,
            remote_cseq: None,
            route_set: Vec::new(),
            remote_target: copy.slice(remote_target),
            secure: is_secure(uri),
            confirmed: false,
        })
    }

    /// Makes the caller's dialog that `response` to the call began: early for
    /// a provisional response with a To tag, confirmed for a 2xx. Each To tag
    /// of a fork makes a dialog of its own, also out of another fork's. A
    /// response without Contact leaves the remote target as it is.
    ///
    /// # Errors
    ///
    /// [`DialogError::NoDialog`]: a 100, a provisional response without a
    /// tag, or a refusal. [`DialogError::Unreadable`]: To cannot be read.
    pub fn answered(&self, response: &Message) -> Result<Self, DialogError> {
        let tag = response.to_tag();
        let confirmed = match response.status() {
            Some(101..=199) if tag.is_some() => false,
            Some(200..=299) => true,
            _ => return Err(DialogError::NoDialog),
        };
        let to = response.to().ok_or(DialogError::Unreadable)?;
        let contact = target(response);
        let mut copy = Copy::default();
        let remote_tag = copy.add(tag.unwrap_or_default());
        let remote = copy.add_address(&to);
        let target = contact.map(|contact| copy.add(contact));
        let routes = copy.add_routes(response);
        let copy = copy.finish();
        Ok(Self {
            remote_tag: copy.slice(remote_tag),
            remote: copy.slice(remote),
            remote_cseq: None,
            // RFC 3261 §12.1.2: the caller goes the recorded way backwards.
            route_set: routes.into_iter().rev().map(|route| copy.slice(route)).collect(),
            remote_target: target
                .map_or_else(|| self.remote_target.clone(), |target| copy.slice(target)),
            confirmed,
            ..self.clone()
        })
    }

    /// Makes the caller's side of the dialog that `response` to `request`
    /// began, as [`Dialog::calling`] and [`Dialog::answered`] do together.
    ///
    /// # Errors
    ///
    /// As those two.
    pub fn uac(request: &Message, response: &Message) -> Result<Self, DialogError> {
        Self::calling(request)?.answered(response)
    }

    /// Confirms the caller's early dialog with its 2xx, whose Record-Route and
    /// Contact replace those of the provisional response (RFC 3261 §13.2.2.4).
    /// Of a confirmed dialog this refreshes the target only.
    pub fn confirm(&mut self, response: &Message) {
        if !self.confirmed {
            let mut copy = Copy::default();
            let routes = copy.add_routes(response);
            let copy = copy.finish();
            self.route_set = routes.into_iter().rev().map(|route| copy.slice(route)).collect();
            self.confirmed = true;
        }
        self.refresh(response);
    }

    /// Takes over the Contact of a target refresh: a re-INVITE or UPDATE that
    /// is being accepted, or a 2xx to ours (RFC 3261 §12.2). A message without
    /// a Contact that is a SIP URI changes nothing. The route set never changes.
    pub fn refresh(&mut self, message: &Message) {
        if let Some(contact) = target(message)
            && contact != self.remote_target
        {
            self.remote_target = Bytes::copy_from_slice(contact);
        }
    }

    /// Checks the order of a request inside the dialog and takes its CSeq
    /// number over. ACK and CANCEL carry the number of their INVITE and pass.
    ///
    /// # Errors
    ///
    /// See [`OutOfOrder`].
    pub fn accept(&mut self, request: &Message) -> Result<(), OutOfOrder> {
        if matches!(request.method(), Method::Ack | Method::Cancel) {
            return Ok(());
        }
        let number = request.cseq().ok_or(OutOfOrder)?.number;
        if self.remote_cseq.is_some_and(|newest| number < newest) {
            return Err(OutOfOrder);
        }
        self.remote_cseq = Some(number);
        Ok(())
    }

    /// Tells whether `message`, which the peer sent, belongs to this dialog.
    #[must_use]
    pub fn owns(&self, message: &Message) -> bool {
        let (ours, theirs) = match message.is_request() {
            true => (message.to_tag(), message.from_tag()),
            false => (message.from_tag(), message.to_tag()),
        };
        message.call_id() == self.call_id
            && ours.unwrap_or_default() == self.local_tag
            && theirs.unwrap_or_default() == self.remote_tag
    }

    /// Starts a request inside the dialog and counts it. `via` is the value of
    /// its Via, with a branch that no other request has. The owner adds what
    /// else it needs, such as Contact and a body. Not for ACK and CANCEL.
    #[must_use]
    pub fn request(&mut self, method: Method<'_>, via: &[u8]) -> Writer {
        self.local_cseq += 1;
        self.write(method, self.local_cseq, via)
    }

    /// Starts the ACK of the 2xx to the INVITE whose CSeq number is `cseq`.
    #[must_use]
    pub fn ack(&self, cseq: u32, via: &[u8]) -> Writer {
        self.write(Method::Ack, cseq, via)
    }

    /// Returns the URI of the next hop: the first route or the remote target.
    #[must_use]
    pub fn next_hop(&self) -> &[u8] {
        let route = self.route_set.first().and_then(|route| NameAddr::parse(route).ok());
        route.map_or(&self.remote_target, |route| route.uri())
    }

    /// RFC 3261 §12.2.1.1.
    fn write(&self, method: Method<'_>, cseq: u32, via: &[u8]) -> Writer {
        let first = self.route_set.first().and_then(|route| NameAddr::parse(route).ok());
        let strict = first.filter(|route| !is_loose(route.uri()));
        let uri = request_uri(strict.map_or(&self.remote_target, |route| route.uri()));
        let mut writer = Writer::request(method, &uri).header(Name::VIA, via);
        for route in self.route_set.iter().skip(usize::from(strict.is_some())) {
            writer = writer.header(Name::ROUTE, route);
        }
        if strict.is_some() {
            let target = [b"<", &*self.remote_target, b">"].concat();
            writer = writer.header(Name::ROUTE, &target);
        }
        let number = cseq.to_string();
        writer
            .number(Name::MAX_FORWARDS, 70)
            .header(Name::FROM, tagged(&self.local, &self.local_tag))
            .header(Name::TO, tagged(&self.remote, &self.remote_tag))
            .header(Name::CALL_ID, &self.call_id)
            .header(Name::CSEQ, [number.as_bytes(), b" ", method.as_bytes()].concat())
    }
}

/// Gathers texts into one buffer, so that a dialog is one allocation.
#[derive(Default)]
struct Copy {
    text: Vec<u8>,
}

impl Copy {
    fn add(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        start..self.text.len()
    }

    /// Adds a display name and a URI, without parameters.
    fn add_address(&mut self, address: &NameAddr<'_>) -> Range<usize> {
        let start = self.text.len();
        if let Some(display) = address.display_raw() {
            self.text.extend_from_slice(display);
            self.text.push(b' ');
        }
        self.add_uri(address);
        start..self.text.len()
    }

    /// Adds every Record-Route, URI and header parameters, in order.
    fn add_routes(&mut self, message: &Message) -> Vec<Range<usize>> {
        let add = |route: NameAddr<'_>| {
            let start = self.text.len();
            self.add_uri(&route);
            self.text.extend_from_slice(route.params().as_bytes());
            start..self.text.len()
        };
        message.record_routes().map(add).collect()
    }

    fn add_uri(&mut self, address: &NameAddr<'_>) {
        self.text.push(b'<');
        self.text.extend_from_slice(address.uri());
        self.text.push(b'>');
    }

    fn finish(self) -> Bytes {
        Bytes::from(self.text.into_boxed_slice())
    }
}

fn tagged<'a>(address: &'a [u8], tag: &[u8]) -> Cow<'a, [u8]> {
    match tag {
        [] => Cow::Borrowed(address),
        tag => Cow::Owned([address, b";tag=", tag].concat()),
    }
}

/// Returns where a party wants requests inside the dialog: its Contact, which
/// has to be a SIP URI (RFC 3261 §8.1.1.8), without the headers that no
/// Request-URI may have (§19.1.1).
fn target(message: &Message) -> Option<&[u8]> {
    let uri = Uri::parse(message.contact()?.uri()).ok()?;
    if !matches!(uri.scheme(), Scheme::Sip | Scheme::Sips) {
        return None;
    }
    let text = uri.as_bytes();
    let headers_len = uri.headers().map_or(0, |headers| 1 + headers.len());
    Some(&text[..text.len() - headers_len])
}

fn is_secure(uri: &[u8]) -> bool {
    Uri::parse(uri).is_ok_and(|uri| uri.scheme() == Scheme::Sips)
}

fn is_loose(uri: &[u8]) -> bool {
    Uri::parse(uri).is_ok_and(|uri| uri.param(b"lr").is_some())
}

/// Takes off what a Request-URI must not have (RFC 3261 §19.1.1): headers and
/// the method parameter.
fn request_uri(text: &[u8]) -> Cow<'_, [u8]> {
    let Ok(uri) = Uri::parse(text) else { return Cow::Borrowed(text) };
    let bare = match uri.headers() {
        Some(headers) => &text[..text.len() - headers.len() - 1],
        None => text,
    };
    if uri.param(b"method").is_none() {
        return Cow::Borrowed(bare);
    }
    let mut kept = bare[..bare.len() - uri.params().as_bytes().len()].to_vec();
    for param in uri.params().into_iter().filter(|p| !p.name.eq_ignore_ascii_case(b"method")) {
        kept.push(b';');
        kept.extend_from_slice(param.name);
        if let Some(value) = param.value {
            kept.push(b'=');
            kept.extend_from_slice(value);
        }
    }
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests;
