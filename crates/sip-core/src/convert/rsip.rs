//! Messages and URIs of rsip 0.4.
//!
//! rsip holds less than SIP has: no IPv6 address in a URI, no method, transport
//! or reason phrase of its own, no scheme but `sip` and `sips`. A converted
//! message is the same in other words: names in their long form, lines
//! unfolded, one Via, Contact, Route or Record-Route a line, Content-Length last.

use ::rsip::headers::header::Tokenizer;
use ::rsip::{Host, Request, Response, SipMessage, StatusCode, Version};

use crate::lex::{self, Elements};
use crate::{
    Defect, DefectKind, Message, Method, Name, Scheme, Uri, Writer, reason_phrase, unfold,
};

/// What a message holds that the other side cannot. Nothing was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRepresentable {
    /// The message is not acceptable; this is the first reason.
    #[error("the message has a defect: {} at byte {}", .0.kind, .0.offset)]
    Defect(Defect),
    /// The method is none that rsip knows.
    #[error("the method")]
    Method,
    /// The URI has an IPv6 address, another scheme than `sip` or `sips`, a
    /// transport that rsip does not know, or headers; or it is no URI at all.
    #[error("the uri")]
    Uri,
    /// The version is not SIP/2.0.
    #[error("the version")]
    Version,
    /// The status is not from 100 to 699, or its reason phrase is not the
    /// usual one, for which rsip has no room.
    #[error("the status")]
    Status,
    /// The header of this number, counted from 0, is no text, has line breaks
    /// in it, or contradicts the body's length.
    #[error("header number {0}")]
    Header(usize),
}

impl TryFrom<&Message> for SipMessage {
    type Error = NotRepresentable;

    /// # Errors
    /// See [`NotRepresentable`].
    fn try_from(message: &Message) -> Result<Self, NotRepresentable> {
        check(message)?;
        let mut headers = Vec::new();
        for (index, line) in message.lines().enumerate() {
            let name = line.name().ok_or(NotRepresentable::Header(index))?;
            if name == Name::CONTENT_LENGTH {
                continue;
            }
            let is_list =
                [Name::VIA, Name::CONTACT, Name::ROUTE, Name::RECORD_ROUTE].contains(&name);
            let mut push = |value: &[u8]| {
                let value = unfold(value);
                let header = Tokenizer::from((name.as_bytes(), &*value)).try_into();
                headers.push(header.map_err(|_| NotRepresentable::Header(index))?);
                Ok::<(), NotRepresentable>(())
            };
            if is_list {
                Elements::new(line.value()).try_for_each(&mut push)?;
            } else {
                push(line.value())?;
            }
        }
        let body = message.body().to_vec();
        headers.push(
            ::rsip::headers::ContentLength::from(u32::try_from(body.len()).unwrap_or(u32::MAX))
                .into(),
        );
        let headers = headers.into();
        let version = Version::V2;
        if let Some(uri) = message.request_uri() {
            let uri = Uri::parse(uri).map_err(|_| NotRepresentable::Uri)?;
            let (method, uri) = (method(message.method())?, (&uri).try_into()?);
            return Ok(Self::Request(Request { method, uri, version, headers, body }));
        }
        let status_code = status(message)?;
        Ok(Self::Response(Response { status_code, version, headers, body }))
    }
}

impl TryFrom<&Uri<'_>> for ::rsip::Uri {
    type Error = NotRepresentable;

    /// # Errors
    /// [`NotRepresentable::Uri`].
    fn try_from(uri: &Uri<'_>) -> Result<Self, NotRepresentable> {
        convert_uri(uri).ok_or(NotRepresentable::Uri)
    }
}

impl TryFrom<&SipMessage> for Message {
    type Error = NotRepresentable;

    /// # Errors
    /// See [`NotRepresentable`].
    fn try_from(message: &SipMessage) -> Result<Self, NotRepresentable> {
        let (writer, version, headers, body) = match message {
            SipMessage::Request(Request { method, uri, version, headers, body }) => {
                let (method, text) = (method.to_string(), uri.to_string());
                let again = Uri::parse(text.as_bytes()).ok().and_then(|uri| convert_uri(&uri));
                if again.as_ref() != Some(uri) {
                    return Err(NotRepresentable::Uri);
                }
                let method = Method::new(method.as_bytes());
                (Writer::request(method, text.as_bytes()), version, headers, body)
            }
            SipMessage::Response(Response { status_code, version, headers, body }) => {
                let status = status_code.code();
                let reason = if let StatusCode::Other(_, reason) = status_code {
                    reason
                } else {
                    reason_phrase(status)
                };
                if !(100..700).contains(&status) || !is_line(reason) {
                    return Err(NotRepresentable::Status);
                }
                (Writer::response(status, reason.as_bytes()), version, headers, body)
            }
        };
        if *version != Version::V2 {
            return Err(NotRepresentable::Version);
        }
        let mut writer = writer;
        for (index, header) in headers.iter().enumerate() {
            let text = header.to_string();
            let (name, value) = text.split_once(':').ok_or(NotRepresentable::Header(index))?;
            let name = Name::new(name.as_bytes());
            let is_wrong_length = name == Name::CONTENT_LENGTH
                && lex::number(lex::trim(value.as_bytes())).map(|len| len as usize)
                    != Some(body.len());
            if !lex::is_token(name.as_bytes()) || !is_line(value) || is_wrong_length {
                return Err(NotRepresentable::Header(index));
            }
            writer = writer.header(name, value);
        }
        let message = writer.raw_body(body.clone()).finish();
        check(&message)?;
        Ok(message)
    }
}

fn check(message: &Message) -> Result<(), NotRepresentable> {
    let mut defects = message.defects().iter();
    match defects.find(|defect| defect.kind != DefectKind::Odd) {
        Some(defect) => Err(NotRepresentable::Defect(*defect)),
        None => Ok(()),
    }
}

fn method(method: Method<'_>) -> Result<::rsip::Method, NotRepresentable> {
    let known = ::rsip::Method::all();
    let found = known.into_iter().find(|known| known.to_string().as_bytes() == method.as_bytes());
    found.ok_or(NotRepresentable::Method)
}

fn status(message: &Message) -> Result<StatusCode, NotRepresentable> {
    let status = message.status().ok_or(NotRepresentable::Status)?;
    let reason = std::str::from_utf8(message.reason()).map_err(|_| NotRepresentable::Status)?;
    let known = StatusCode::from(status);
    if let StatusCode::Other(..) = known {
        return Ok(StatusCode::Other(status, reason.to_owned()));
    }
    if reason == reason_phrase(status) { Ok(known) } else { Err(NotRepresentable::Status) }
}

/// Takes a URI over part by part, and makes sure that it says the same.
fn convert_uri(uri: &Uri<'_>) -> Option<::rsip::Uri> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let scheme = match uri.scheme() {
        Scheme::Sip => ::rsip::Scheme::Sip,
        Scheme::Sips => ::rsip::Scheme::Sips,
        Scheme::Tel | Scheme::Other => return None,
    };
    if uri.headers().is_some() {
        return None;
    }
    let auth = match uri.user() {
        Some(user) => {
            let password = match uri.password() {
                Some(password) => Some(text(password)?),
                None => None,
            };
            Some((text(user)?, password).into())
        }
        None => None,
    };
    let host = match uri.host()?.ip() {
        Some(std::net::IpAddr::V6(_)) => return None,
        Some(ip) => Host::IpAddr(ip),
        None => Host::Domain(text(uri.host()?.as_bytes())?.into()),
    };
    let params = uri.params().into_iter().map(|param| {
        let value = match param.value {
            Some(value) => Some(text(value)?),
            None => None,
        };
        ::rsip::Param::try_from((text(param.name)?, value)).ok()
    });
    let converted = ::rsip::Uri {
        scheme: Some(scheme),
        auth,
        host_with_port: ::rsip::HostWithPort { host, port: uri.port().map(Into::into) },
        params: params.collect::<Option<_>>()?,
        headers: Vec::new(),
    };
    let printed = converted.to_string();
    let same = Uri::parse(printed.as_bytes()).is_ok_and(|again| {
        again.as_bytes() == uri.as_bytes()
            || again.is_equivalent(uri)
                && again.params().into_iter().count() == uri.params().into_iter().count()
    });
    same.then_some(converted)
}

fn is_line(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}
