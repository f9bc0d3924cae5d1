//! Messages for tests, made line by line so that each test shows only what is
//! unusual about its own.

use bytes::Bytes;
use sip_core::{DefectKind, Message, Verdict};

/// A description of one audio stream.
pub(crate) const SDP: &str = "v=0\r\n\
    o=nina 81 82 IN IP4 198.51.100.7\r\n\
    s=-\r\n\
    c=IN IP4 198.51.100.7\r\n\
    t=0 0\r\n\
    m=audio 30000 RTP/AVP 0 8\r\n\
    a=sendrecv\r\n";

/// The lines of a message.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    start: String,
    lines: Vec<Vec<u8>>,
    body: Vec<u8>,
}

impl Sample {
    /// An ordinary request, from Nina to Omar.
    pub(crate) fn request(method: &str) -> Self {
        Self::new(&format!("{method} sip:omar@example.org SIP/2.0"), method)
    }

    /// The answer to it, which takes the place of its start line.
    pub(crate) fn response(status: &str) -> Self {
        Self::new(&format!("SIP/2.0 {status}"), "INVITE").without("Max-Forwards")
    }

    fn new(start: &str, method: &str) -> Self {
        let lines = [
            "Via: SIP/2.0/UDP a.example.com;branch=z9hG4bK-nina-1",
            "Max-Forwards: 70",
            "From: Nina <sip:nina@example.com>;tag=n1",
            "To: <sip:omar@example.org>",
            "Call-ID: call-1@a.example.com",
            &format!("CSeq: 17 {method}"),
            "Content-Length: 0",
        ];
        let lines = lines.iter().map(|line| line.as_bytes().to_vec()).collect();
        Self { start: start.to_owned(), lines, body: Vec::new() }
    }

    pub(crate) fn start(mut self, line: &str) -> Self {
        line.clone_into(&mut self.start);
        self
    }

    /// Puts `line` in place of the first header called `name`.
    pub(crate) fn set(mut self, name: &str, line: impl AsRef<[u8]>) -> Self {
        let at = self.lines.iter().position(|line| has_name(line, name)).expect("there is one");
        self.lines[at] = line.as_ref().to_vec();
        self
    }

    pub(crate) fn with(mut self, line: impl AsRef<[u8]>) -> Self {
        self.lines.push(line.as_ref().to_vec());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.lines.retain(|line| !has_name(line, name));
        self
    }

    /// Sets the body, and Content-Length if there is one.
    pub(crate) fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        if self.lines.iter().any(|line| has_name(line, "Content-Length")) {
            let length = format!("Content-Length: {}", self.body.len());
            return self.set("Content-Length", length);
        }
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = self.start.clone().into_bytes();
        out.extend_from_slice(b"\r\n");
        for line in &self.lines {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }

    /// Parses the message, which must come out as it went in.
    pub(crate) fn parse(&self) -> Message {
        let bytes = Bytes::from(self.bytes());
        let message = Message::parse(bytes.clone()).expect("it can be read");
        assert_eq!(message.bytes(), &bytes);
        message
    }

    /// Parses the message, which must be right.
    pub(crate) fn accepted(&self) -> Message {
        let message = self.parse();
        assert_eq!(message.verdict(), Verdict::Ok, "{:?}", message.defects());
        message
    }

    /// Parses the message, which must be refused with `status`.
    pub(crate) fn refused(&self, status: u16) -> Message {
        let message = self.parse();
        assert_eq!(message.verdict(), Verdict::Answer(status), "{:?}", message.defects());
        message
    }

    /// Parses the message, which must be dropped.
    pub(crate) fn dropped(&self) -> Message {
        let message = self.parse();
        assert_eq!(message.verdict(), Verdict::Discard, "{:?}", message.defects());
        message
    }
}

fn has_name(line: &[u8], name: &str) -> bool {
    line.len() > name.len()
        && line[..name.len()].eq_ignore_ascii_case(name.as_bytes())
        && line[name.len()] == b':'
}

/// The kinds of all defects, with their headers.
pub(crate) fn defects(message: &Message) -> Vec<(String, DefectKind)> {
    let name =
        |defect: &sip_core::Defect| defect.header.map_or_else(String::new, |h| h.to_string());
    message.defects().iter().map(|defect| (name(defect), defect.kind)).collect()
}

/// Bytes as text, for assertions that people read.
pub(crate) fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}
