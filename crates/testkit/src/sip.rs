//! SIP messages as phones read and write them: plain text.
//!
//! Written from RFC 3261 §7 and apart from `sip_core`, so that a misreading
//! there shows here. Allocates freely; a phone sees a few messages a call.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

/// A message that was read.
#[derive(Clone, Debug)]
pub(crate) struct Sip {
    start: String,
    /// Full lower-case names and unfolded values, in order.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Sip {
    /// Reads one datagram; `None` if it is no SIP message with the headers
    /// that each must have (RFC 3261 §8.1.1).
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let start = lines.next()?.to_owned();
        let mut headers: Vec<(String, String)> = Vec::new();
        for line in lines {
            if line.starts_with([' ', '\t']) {
                let (_, value) = headers.last_mut()?;
                value.push(' ');
                value.push_str(line.trim());
            } else {
                let (name, value) = line.split_once(':')?;
                headers.push((full_name(name.trim()), value.trim().to_owned()));
            }
        }
        let mut sip = Self { start, headers, body: Vec::new() };
        let rest = &bytes[end + 4..];
        let length =
            sip.get("content-length").map_or(Some(rest.len()), |text| text.parse().ok())?;
        sip.body = rest.get(..length)?.to_vec();
        let complete = ["via", "from", "to", "call-id"].iter().all(|name| sip.get(name).is_some());
        (complete && sip.cseq().is_some()).then_some(sip)
    }

    /// Returns the method; of an answer, that of its request.
    pub(crate) fn method(&self) -> &str {
        match self.status() {
            None => self.start.split(' ').next().unwrap_or_default(),
            Some(_) => self.cseq().map_or("", |(_, method)| method),
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.start.strip_prefix("SIP/2.0 ")?.get(..3)?.parse().ok()
    }

    pub(crate) fn request_uri(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the first value of a header, by its full lower-case name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns every value of a list header, cut at its commas.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(found, _)| found == name)
            .flat_map(|(_, value)| split_list(value))
            .collect()
    }

    pub(crate) fn cseq(&self) -> Option<(u32, &str)> {
        let (number, method) = self.get("cseq")?.split_once(' ')?;
        Some((number.parse().ok()?, method.trim()))
    }

    pub(crate) fn call_id(&self) -> &str {
        self.get("call-id").unwrap_or_default()
    }

    /// Returns the tag of `from` or `to`.
    pub(crate) fn tag(&self, name: &str) -> Option<&str> {
        param(self.get(name)?, "tag")
    }

    /// Returns the branch of the top Via.
    pub(crate) fn branch(&self) -> Option<&str> {
        param(self.all("via").first()?, "branch")
    }

    /// Names the transaction at its server: branch and sent-by (RFC 3261
    /// §17.2.3).
    pub(crate) fn server_key(&self) -> String {
        let top = self.all("via").first().copied().unwrap_or_default().to_owned();
        let sent_by = top.split(';').next().unwrap_or_default().split(' ').nth(1);
        format!("{}|{}", param(&top, "branch").unwrap_or_default(), sent_by.unwrap_or_default())
    }

    /// Returns the URI of the first Contact.
    pub(crate) fn contact(&self) -> Option<&str> {
        self.all("contact").first().map(|contact| uri_of(contact))
    }

    /// Returns the Retry-After header in seconds.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        let value = self.get("retry-after")?;
        value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Returns the session description, if there is one.
    pub(crate) fn description(&self) -> Option<&[u8]> {
        let kind = self.get("content-type")?.to_ascii_lowercase();
        (kind.starts_with("application/sdp") && !self.body.is_empty()).then_some(&self.body[..])
    }
}

/// A message that is being written.
pub(crate) struct Draft(String);

impl Draft {
    pub(crate) fn request(method: &str, uri: &str) -> Self {
        Self(format!("{method} {uri} SIP/2.0\r\n"))
    }

    /// Begins the answer to `request` (RFC 3261 §8.2.6.2).
    pub(crate) fn answer(request: &Sip, status: u16, to_tag: &str) -> Self {
        let mut draft = Self(format!("SIP/2.0 {status} {}\r\n", reason(status)));
        for (name, value) in &request.headers {
            match name.as_str() {
                "via" => draft.0.push_str(&format!("Via: {value}\r\n")),
                "record-route" if (101..300).contains(&status) => {
                    draft.0.push_str(&format!("Record-Route: {value}\r\n"));
                }
                "to" if status != 100 && param(value, "tag").is_none() => {
                    draft.0.push_str(&format!("To: {value};tag={to_tag}\r\n"));
                }
                "from" | "to" | "call-id" | "cseq" => {
                    let written = match name.as_str() {
                        "from" => "From",
                        "to" => "To",
                        "call-id" => "Call-ID",
                        _ => "CSeq",
                    };
                    draft.0.push_str(&format!("{written}: {value}\r\n"));
                }
                _ => {}
            }
        }
        draft
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.0.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn finish(self, description: Option<&str>) -> Bytes {
        let mut text = self.0;
        match description {
            Some(body) => {
                text.push_str(&format!(
                    "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ));
            }
            None => text.push_str("Content-Length: 0\r\n\r\n"),
        }
        Bytes::from(text)
    }
}

/// Returns the URI in a name-addr or addr-spec.
pub(crate) fn uri_of(value: &str) -> &str {
    match value.split_once('<') {
        Some((_, rest)) => rest.split('>').next().unwrap_or_default(),
        None => value.split(';').next().unwrap_or_default().trim(),
    }
}

/// Returns a header parameter, those inside `<>` and quotes not counted.
pub(crate) fn param<'a>(value: &'a str, name: &str) -> Option<&'a str> {
    let after = value.rfind('>').map_or(value, |end| &value[end + 1..]);
    after.split(';').skip(1).find_map(|word| {
        let (found, value) = word.split_once('=').unwrap_or((word, ""));
        found.trim().eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// Returns the user part of a SIP URI.
pub(crate) fn user_of(uri: &str) -> &str {
    let rest = uri.split_once(':').map_or(uri, |(_, rest)| rest);
    rest.split_once('@').map_or("", |(user, _)| user)
}

/// Returns where a URI with an IP address leads; `None` if it has a name.
pub(crate) fn address_of(uri: &str) -> Option<SocketAddr> {
    let rest = uri.split_once(':')?.1;
    let rest = rest.split(['?', ';']).next()?;
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if let Ok(address) = host.parse() {
        return Some(address);
    }
    let ip: IpAddr = host.trim_matches(['[', ']']).parse().ok()?;
    Some(SocketAddr::new(ip, 5060))
}

fn split_list(value: &str) -> Vec<&str> {
    let (mut quoted, mut depth, mut from) = (false, 0, 0);
    let mut parts = Vec::new();
    for (at, c) in value.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '<' if !quoted => depth += 1,
            '>' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(value[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(value[from..].trim());
    parts
}

/// RFC 3261 §7.3.3 and the registry: one letter for a name.
fn full_name(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "c" => "content-type".to_owned(),
        "f" => "from".to_owned(),
        "i" => "call-id".to_owned(),
        "k" => "supported".to_owned(),
        "l" => "content-length".to_owned(),
        "m" => "contact".to_owned(),
        "t" => "to".to_owned(),
        "v" => "via".to_owned(),
        _ => lower,
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Trying",
        180 => "Ringing",
        183 => "Session Progress",
        200 => "OK",
        408 => "Request Timeout",
        480 => "Temporarily Unavailable",
        481 => "Call/Transaction Does Not Exist",
        486 => "Busy Here",
        487 => "Request Terminated",
        488 => "Not Acceptable Here",
        491 => "Request Pending",
        500 => "Server Internal Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        603 => "Decline",
        _ => "Because",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &str = "INVITE sip:1001@127.0.0.9:5061 SIP/2.0\r\n\
        v: SIP/2.0/UDP 127.0.0.1:5060;branch=z9hG4bKa,\r\n SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKb\r\n\
        f: \"A, B\" <sip:a@b;tag=no>;tag=x\r\nT: sip:c@d\r\ni: 1\r\nCSeq: 7 INVITE\r\n\
        Record-Route: <sip:1.1.1.1;lr>, <sip:2.2.2.2;lr>\r\nContact: <sip:a@1.2.3.4:5070>;q=1\r\n\
        l: 3\r\n\r\nabcTRAILING";

    #[test]
    fn compact_folded_and_listed_headers_are_read() {
        let sip = Sip::read(INVITE.as_bytes()).unwrap();

        assert_eq!((sip.method(), sip.status(), sip.cseq()), ("INVITE", None, Some((7, "INVITE"))));
        assert_eq!(sip.branch(), Some("z9hG4bKa"));
        assert_eq!(sip.server_key(), "z9hG4bKa|127.0.0.1:5060");
        assert_eq!((sip.tag("from"), sip.tag("to")), (Some("x"), None));
        assert_eq!(sip.all("record-route"), ["<sip:1.1.1.1;lr>", "<sip:2.2.2.2;lr>"]);
        assert_eq!(sip.contact(), Some("sip:a@1.2.3.4:5070"));
        assert_eq!(sip.body, b"abc");
    }

    #[test]
    fn an_answer_takes_over_what_it_must() {
        let request = Sip::read(INVITE.as_bytes()).unwrap();
        let answer = Draft::answer(&request, 200, "y").finish(Some("v=0\r\n"));
        let answer = Sip::read(&answer).unwrap();

        assert_eq!((answer.status(), answer.method()), (Some(200), "INVITE"));
        assert_eq!((answer.tag("to"), answer.tag("from")), (Some("y"), Some("x")));
        assert_eq!(answer.all("via").len(), 2);
        assert_eq!(answer.all("record-route").len(), 2);
    }

    #[test]
    fn uris_lead_to_addresses() {
        let address = |text: &str| Some(text.parse().unwrap());
        assert_eq!(address_of("sip:a@127.0.0.1:5062;lr"), address("127.0.0.1:5062"));
        assert_eq!(address_of("sip:127.0.0.1"), address("127.0.0.1:5060"));
        assert_eq!(address_of("sip:a@[::1]:5062"), address("[::1]:5062"));
        assert_eq!(address_of("sip:a@example.org"), None);
        assert_eq!(user_of("sip:1001@x"), "1001");
    }

    #[test]
    fn what_is_no_message_is_not_read() {
        assert!(Sip::read(b"\r\n\r\n").is_none());
        assert!(Sip::read(b"INVITE sip:a@b SIP/2.0\r\nVia: x\r\n\r\n").is_none());
    }
}
