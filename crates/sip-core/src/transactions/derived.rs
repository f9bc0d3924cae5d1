//! Messages that a transaction writes by itself.

use bytes::Bytes;

use crate::{Message, Method, Name, Writer};

/// The ACK of a final response other than 2xx (RFC 3261 §17.1.1.3): the
/// INVITE's topmost Via, From, Call-ID, CSeq number and Route, and the To of
/// the response.
pub(super) fn ack(invite: &Bytes, response: &Message) -> Option<Bytes> {
    let to = response.header(Name::TO)?;
    Some(derive(invite, Method::Ack, Some(to))?.bytes().clone())
}

/// The CANCEL of an INVITE (RFC 3261 §9.1).
pub(super) fn cancel(invite: &Bytes) -> Option<Message> {
    derive(invite, Method::Cancel, None)
}

/// The 100 of a request whose owner is slow.
pub(super) fn trying(request: &Bytes) -> Bytes {
    let request = Message::parse(request.clone()).expect("it was parsed when it arrived");
    Writer::answer(&request, 100, b"Trying", None).finish().bytes().clone()
}

fn derive(invite: &Bytes, method: Method<'_>, to: Option<&[u8]>) -> Option<Message> {
    let invite = Message::parse(invite.clone()).ok()?;
    let cseq = [invite.cseq()?.number.to_string().as_bytes(), b" ", method.as_bytes()].concat();
    let mut writer = Writer::request(method, invite.request_uri()?)
        .header(Name::VIA, invite.elements(Name::VIA).next()?)
        .header(Name::FROM, invite.header(Name::FROM)?)
        .header(Name::TO, to.or_else(|| invite.header(Name::TO))?)
        .header(Name::CALL_ID, invite.call_id())
        .header(Name::CSEQ, cseq)
        .number(Name::MAX_FORWARDS, 70);
    for route in invite.headers(Name::ROUTE) {
        writer = writer.header(Name::ROUTE, route);
    }
    Some(writer.finish())
}
