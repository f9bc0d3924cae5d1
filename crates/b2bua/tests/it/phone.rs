//! A scripted phone: it does what it is told, message by message, and writes its messages as a
//! phone would, without any code of the machine under test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// One end of one dialog, or of one about to be.
pub(crate) struct Phone {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    pub(crate) rtp: u16,
    /// The gate it signals to.
    gate: SocketAddr,
    call_id: String,
    local: String,
    remote: String,
    local_tag: String,
    remote_tag: String,
    target: String,
    cseq: u32,
    branches: u32,
    sdp_version: u32,
    pub(crate) direction: &'static str,
    pub(crate) codecs: &'static str,
    /// What its INVITEs and UPDATEs, and its 2xx to ours, say of session timers.
    pub(crate) timer: String,
    /// Their Allow header.
    pub(crate) allow: String,
    /// The request it answers next.
    pub(crate) asked: Option<Text>,
    /// The CANCEL it got last.
    cancel: Option<Text>,
    /// The INVITE it sent last: its branch and CSeq.
    invite: Option<(String, u32)>,
    /// What it sent last.
    pub(crate) last: Option<String>,
    /// Every message that is new to it, in order.
    pub(crate) inbox: Vec<Text>,
    /// The ACKs it got, by CSeq.
    pub(crate) acks: Vec<u32>,
    /// Requests without a final answer, in order.
    pub(crate) todo: Vec<Text>,
    /// CSeq of the newest INVITE of its own that it acknowledged.
    acked: u32,
    offerless: bool,
    /// How many dialogs it had before.
    calls: u32,
    /// How it answered, by method.
    answers: BTreeMap<String, u16>,
    /// What it answered, by branch.
    answered: BTreeSet<String>,
}

/// A message, as lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl Text {
    pub(crate) fn start(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    pub(crate) fn is_request(&self) -> bool {
        !self.start().starts_with("SIP/2.0")
    }

    pub(crate) fn status(&self) -> u16 {
        self.start().split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn method(&self) -> &str {
        match self.is_request() {
            true => self.start().split(' ').next().unwrap_or_default(),
            false => self.header("CSeq").split(' ').nth(1).unwrap_or_default(),
        }
    }

    pub(crate) fn headers<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let name = name.to_owned();
        self.0.lines().skip(1).take_while(|line| !line.is_empty()).filter_map(move |line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(&name).then_some(value.trim())
        })
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers(name).next().unwrap_or_default()
    }

    pub(crate) fn cseq(&self) -> u32 {
        self.header("CSeq").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn branch(&self) -> &str {
        param(self.header("Via"), "branch")
    }

    pub(crate) fn tag(&self, name: &str) -> &str {
        param(self.header(name), "tag")
    }

    pub(crate) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default()
    }

    /// Returns the value of the first line of the SDP that starts so.
    pub(crate) fn sdp(&self, start: &str) -> &str {
        self.body().lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default()
    }

    pub(crate) fn direction(&self) -> &str {
        ["sendrecv", "sendonly", "recvonly", "inactive"]
            .into_iter()
            .find(|direction| self.body().contains(&format!("a={direction}")))
            .unwrap_or("sendrecv")
    }

    /// The version in the o= line.
    pub(crate) fn version(&self) -> u64 {
        self.sdp("o=").split(' ').nth(2).and_then(|v| v.parse().ok()).unwrap_or(0)
    }
}

fn param<'a>(value: &'a str, name: &str) -> &'a str {
    value
        .split(';')
        .skip(1)
        .find_map(|param| param.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_default()
}

fn uri(value: &str) -> &str {
    value.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or(value, |(uri, _)| uri)
}

impl Phone {
    pub(crate) fn new(name: &str, addr: SocketAddr, gate: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            addr,
            rtp: 4000 + 2 * addr.port() % 1000,
            gate,
            call_id: String::new(),
            local: format!("<sip:{name}@{}>", gate.ip()),
            remote: String::new(),
            local_tag: String::new(),
            remote_tag: String::new(),
            target: String::new(),
            cseq: 0,
            branches: 0,
            sdp_version: 1,
            direction: "sendrecv",
            codecs: "0 8 101",
            timer: String::new(),
            allow: String::new(),
            asked: None,
            cancel: None,
            invite: None,
            last: None,
            inbox: Vec::new(),
            acks: Vec::new(),
            todo: Vec::new(),
            offerless: false,
            calls: 0,
            acked: 0,
            answers: BTreeMap::new(),
            answered: BTreeSet::new(),
        }
    }

    fn tag(&self) -> String {
        format!("t-{}-{}", self.name, self.calls)
    }

    fn branch(&mut self) -> String {
        self.branches += 1;
        format!("z9hG4bK-{}-{}", self.name, self.branches)
    }

    /// Writes its SDP; `new` counts the version up.
    pub(crate) fn sdp(&mut self, new: bool) -> String {
        self.sdp_version += u32::from(new);
        let ip = self.addr.ip();
        format!(
            "v=0\r\no={} 7 {} IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
             m=audio {} RTP/AVP {}\r\na=rtpmap:101 telephone-event/8000\r\na={}\r\n",
            self.name, self.sdp_version, self.rtp, self.codecs, self.direction
        )
    }

    fn request(&mut self, method: &str, cseq: u32, branch: &str, body: Option<String>) -> String {
        let target = if self.target.is_empty() { uri(&self.remote) } else { &self.target };
        let to_tag = match self.remote_tag.as_str() {
            "" => String::new(),
            tag => format!(";tag={tag}"),
        };
        let body = body.unwrap_or_default();
        let kind = match body.get(..3) {
            None | Some("") => "",
            Some("v=0") => "Content-Type: application/sdp\r\n",
            Some(_) => "Content-Type: text/plain\r\n",
        };
        let extra = match method {
            "INVITE" | "UPDATE" => format!("{}{}", self.timer, self.allow),
            _ => String::new(),
        };
        let text = format!(
            "{method} {target} SIP/2.0\r\nVia: SIP/2.0/UDP {};branch={branch};rport\r\n\
             Max-Forwards: 70\r\nFrom: {};tag={}\r\nTo: {}{to_tag}\r\nCall-ID: {}\r\n\
             CSeq: {cseq} {method}\r\nContact: <sip:{}@{}>\r\n{extra}{kind}Content-Length: {}\r\n\r\n{body}",
            self.addr,
            self.local,
            self.local_tag,
            self.remote,
            self.call_id,
            self.name,
            self.addr,
            body.len()
        );
        self.last = Some(text.clone());
        text
    }

    pub(crate) fn register(&mut self, expires: u32) -> String {
        let (remote, tag) = (self.local.clone(), self.local_tag.clone());
        let kept = std::mem::replace(&mut self.remote, remote);
        self.local_tag = format!("reg-{}", self.name);
        let call_id = std::mem::replace(&mut self.call_id, format!("reg-{}", self.name));
        self.cseq += 1;
        let (cseq, branch) = (self.cseq, self.branch());
        let text = self.request("REGISTER", cseq, &branch, None);
        self.remote = kept;
        self.local_tag = tag;
        self.call_id = call_id;
        let text = text
            .replacen(
                &format!("REGISTER {} ", uri(&self.local)),
                &format!("REGISTER sip:{} ", self.gate),
                1,
            )
            .replacen("Content-Length", &format!("Expires: {expires}\r\nContent-Length"), 1);
        self.last = Some(text.clone());
        text
    }

    /// Registers for somebody else, whose phones are several.
    pub(crate) fn register_as(&mut self, user: &str) -> String {
        let own = format!("sip:{}@{}", self.name, self.gate.ip());
        let text = self.register(3600).replace(&own, &format!("sip:{user}@{}", self.gate.ip()));
        self.last = Some(text.clone());
        text
    }

    pub(crate) fn call(&mut self, user: &str, with_sdp: bool) -> String {
        self.call_id = format!("call-{}-{}", self.name, self.cseq);
        self.local_tag = self.tag();
        self.remote = format!("<sip:{user}@{}>", self.gate);
        self.invite(with_sdp, false)
    }

    pub(crate) fn invite(&mut self, with_sdp: bool, new_sdp: bool) -> String {
        self.cseq += 1;
        let (cseq, branch) = (self.cseq, self.branch());
        self.invite = Some((branch.clone(), cseq));
        self.offerless = !with_sdp;
        let sdp = with_sdp.then(|| self.sdp(new_sdp));
        self.request("INVITE", cseq, &branch, sdp)
    }

    pub(crate) fn cancel(&mut self) -> String {
        let (branch, cseq) = self.invite.clone().expect("there is an invite");
        let tag = std::mem::take(&mut self.remote_tag);
        let target = std::mem::take(&mut self.target);
        let text = self.request("CANCEL", cseq, &branch, None);
        self.remote_tag = tag;
        self.target = target;
        text
    }

    pub(crate) fn cancel_reinvite(&mut self) -> String {
        let (branch, cseq) = self.invite.clone().expect("there is an invite");
        self.request("CANCEL", cseq, &branch, None)
    }

    /// Acknowledges the newest final answer to its INVITE.
    pub(crate) fn ack(&mut self, with_sdp: bool) -> String {
        let (branch, cseq) = self.invite.clone().expect("there is an invite");
        let answer = self.final_answer().cloned().expect("there is a final answer");
        self.acked = cseq;
        let branch = if answer.status() < 300 { self.branch() } else { branch };
        let tag = self.remote_tag.clone();
        if 300 <= answer.status() {
            self.remote_tag = answer.tag("To").to_owned();
        }
        let sdp = with_sdp.then(|| self.sdp(false));
        let text = self.request("ACK", cseq, &branch, sdp);
        if 300 <= answer.status() {
            self.remote_tag = tag;
        }
        text
    }

    /// Returns the final answer to its newest INVITE.
    pub(crate) fn final_answer(&self) -> Option<&Text> {
        let (_, cseq) = self.invite.as_ref()?;
        self.inbox.iter().find(|m| {
            !m.is_request()
                && m.method() == "INVITE"
                && m.header("Call-ID") == self.call_id
                && m.cseq() == *cseq
                && 200 <= m.status()
        })
    }

    /// Returns whether it waits for an answer to an INVITE.
    pub(crate) fn is_inviting(&self) -> bool {
        self.invite.is_some() && self.final_answer().is_none()
    }

    /// Returns whether it has got a final answer that it has not acknowledged.
    pub(crate) fn owes_ack(&self) -> bool {
        self.final_answer().is_some_and(|answer| answer.cseq() != self.acked)
    }

    /// Returns whether a request belongs to another call than the one it is in.
    pub(crate) fn is_busy_for(&self, asked: &Text) -> bool {
        self.call_id != asked.header("Call-ID")
    }

    /// Returns whether its newest INVITE made no offer.
    pub(crate) fn invited_without_sdp(&self) -> bool {
        self.offerless
    }

    /// Returns whether any of its INVITEs, or of those it got, was accepted.
    pub(crate) fn talks_at_all(&self) -> bool {
        self.answers.get("INVITE") == Some(&200)
            || self.inbox.iter().any(|m| {
                !m.is_request() && m.method() == "INVITE" && (200..300).contains(&m.status())
            })
    }

    /// Goes on with the numbers of what it was before, so that nothing is mistaken for a copy.
    pub(crate) fn resume_numbers(&mut self, old: &Self) {
        self.cseq = old.cseq + 1000;
        self.branches = old.branches;
        self.calls = old.calls + 1;
    }

    /// Returns whether its dialog is confirmed.
    pub(crate) fn talks(&self) -> bool {
        !self.remote_tag.is_empty() && self.talks_at_all()
    }

    pub(crate) fn say(&mut self, method: &str, body: Option<&str>) -> String {
        self.cseq += 1;
        let (cseq, branch) = (self.cseq, self.branch());
        self.request(method, cseq, &branch, body.map(str::to_owned))
    }

    /// Answers the request it was asked last.
    pub(crate) fn answer(&mut self, status: u16, with_sdp: bool, extra: &str) -> String {
        let asked = self.asked.clone().expect("there is a request");
        self.answer_to(&asked, status, with_sdp, extra, None)
    }

    /// Answers a request of another call than the one it is in.
    pub(crate) fn answer_aside(&mut self, asked: &Text, status: u16) -> String {
        let answers = self.answers.clone();
        let text = self.answer_to(asked, status, false, "", Some("aside"));
        self.answers = answers;
        text
    }

    /// Answers the CANCEL it got last.
    pub(crate) fn answer_cancel(&mut self) -> String {
        let cancel = self.cancel.take().expect("there is a cancel");
        self.answer_to(&cancel, 200, false, "", None)
    }

    pub(crate) fn answer_to(
        &mut self,
        asked: &Text,
        status: u16,
        with_sdp: bool,
        extra: &str,
        tag: Option<&str>,
    ) -> String {
        if 200 <= status {
            self.answers.insert(asked.method().to_owned(), status);
            self.answered.insert(asked.branch().to_owned());
            self.todo.retain(|other| {
                other.branch() != asked.branch() || other.method() != asked.method()
            });
        }
        if self.local_tag.is_empty() {
            self.local_tag = self.tag();
        }
        let tag = tag.unwrap_or(&self.local_tag).to_owned();
        let vias: String = asked.headers("Via").map(|via| format!("Via: {via}\r\n")).collect();
        let to = asked.header("To").to_owned();
        let to = match asked.tag("To") {
            "" if status != 100 => format!("{to};tag={tag}"),
            _ => to,
        };
        let refreshes = matches!(asked.method(), "INVITE" | "UPDATE");
        let extra = match status {
            200 if refreshes => format!("{extra}{}{}", self.timer, self.allow),
            _ => extra.to_owned(),
        };
        let body = if with_sdp { self.sdp(true) } else { String::new() };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        let text = format!(
            "SIP/2.0 {status} Scripted\r\n{vias}From: {}\r\nTo: {to}\r\nCall-ID: {}\r\nCSeq: {}\r\n\
             Contact: <sip:{}@{}>\r\n{extra}{kind}Content-Length: {}\r\n\r\n{body}",
            asked.header("From"),
            asked.header("Call-ID"),
            asked.header("CSeq"),
            self.name,
            self.addr,
            body.len()
        );
        self.last = Some(text.clone());
        text
    }

    /// Returns its last request when nothing has come back for it, as after its timer E.
    pub(crate) fn unanswered(&self) -> Option<String> {
        let last = Text(self.last.clone()?);
        let silent = last.is_request()
            && !matches!(last.method(), "ACK" | "INVITE")
            && !self
                .inbox
                .iter()
                .any(|m| !m.is_request() && m.header("Via").contains(last.branch()));
        silent.then_some(last.0)
    }

    /// Answers a request other than INVITE as it answered one of that method before.
    pub(crate) fn answer_anew(&mut self) -> Option<String> {
        let asked = self.asked.clone()?;
        let status = *self.answers.get(asked.method())?;
        if asked.method() == "INVITE" || self.answered.contains(asked.branch()) {
            return None;
        }
        Some(self.answer_to(&asked, status, false, "", None))
    }

    /// Takes in a message; returns whether it is new to it.
    pub(crate) fn hear(&mut self, message: Text) -> bool {
        let is_new = !self.inbox.contains(&message);
        if message.is_request() {
            if is_new && message.method() != "ACK" {
                self.todo.push(message.clone());
            }
            if message.method() == "ACK" {
                self.acks.push(message.cseq());
            } else if message.method() == "CANCEL" {
                self.cancel = Some(message.clone());
            } else {
                self.learn_from_request(&message);
                self.asked = Some(message.clone());
            }
        } else if message.method() == "INVITE"
            && (101..300).contains(&message.status())
            && message.header("Call-ID") == self.call_id
        {
            self.remote_tag = message.tag("To").to_owned();
            self.target = uri(message.header("Contact")).to_owned();
        }
        if is_new {
            self.inbox.push(message);
        }
        is_new
    }

    fn learn_from_request(&mut self, request: &Text) {
        if !self.call_id.is_empty() && self.call_id != request.header("Call-ID") {
            return;
        }
        if request.tag("To").is_empty() && request.method() == "INVITE" {
            self.call_id = request.header("Call-ID").to_owned();
            self.local = request.header("To").to_owned();
            let from = request.header("From");
            self.remote = from.split(";tag=").next().unwrap_or_default().to_owned();
            self.remote_tag = request.tag("From").to_owned();
            self.local_tag = self.tag();
        }
        if request.method() == "INVITE" {
            self.target = uri(request.header("Contact")).to_owned();
        }
    }
}

/// Phones by name.
pub(crate) type Phones = BTreeMap<String, Phone>;
