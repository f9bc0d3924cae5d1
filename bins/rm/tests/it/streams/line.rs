//! A phone of a few lines, over UDP, TCP or TLS, that shares no code with the product.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

/// Every wait ends with what is waited for, or fails after this time.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Line {
    ip: String,
    gate: String,
    /// What it says its address is.
    seen_at: String,
    /// As a Via says it.
    transport: &'static str,
    udp: Option<UdpSocket>,
    listener: Option<TcpListener>,
    stream: Option<Box<dyn Talk>>,
    client: Option<Arc<ClientConfig>>,
    server: Option<Arc<ServerConfig>>,
    buffer: Vec<u8>,
    accepted: usize,
    sent: u32,
    is_verbose: bool,
}

/// A connection, with TLS or without.
trait Talk: Read + Write {}

impl<T: Read + Write> Talk for T {}

/// One end of a call.
pub(super) struct Dialog {
    call_id: String,
    local: String,
    remote: String,
    target: String,
    cseq: Cell<u32>,
}

impl Line {
    /// A phone that makes a connection when it has something to say, and takes others at port 5060.
    pub(super) fn tcp(ip: String, gate: String) -> Self {
        let listener = TcpListener::bind(format!("{ip}:5060")).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener: Some(listener), ..Self::new(ip, gate, "TCP") }
    }

    /// A phone that makes a connection with TLS when it has something to say, and takes none.
    pub(super) fn tls(ip: String, gate: String, client: Arc<ClientConfig>) -> Self {
        Self { client: Some(client), ..Self::new(ip, gate, "TLS") }
    }

    /// A trunk that takes connections with TLS at port 5061.
    pub(super) fn trunk(ip: String, gate: String, server: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind(format!("{ip}:5061")).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener: Some(listener), server: Some(server), ..Self::new(ip, gate, "TLS") }
    }

    pub(super) fn udp(ip: String, gate: String) -> Self {
        let udp = UdpSocket::bind(format!("{ip}:5060")).unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        Self { udp: Some(udp), ..Self::new(ip, gate, "UDP") }
    }

    fn new(ip: String, gate: String, transport: &'static str) -> Self {
        let seen_at = ip.clone();
        let (udp, listener, stream, client, server) = (None, None, None, None, None);
        let (accepted, sent, is_verbose) = (0, 0, false);
        Self {
            ip,
            gate,
            seen_at,
            transport,
            udp,
            listener,
            stream,
            client,
            server,
            buffer: vec![],
            accepted,
            sent,
            is_verbose,
        }
    }

    /// Says another address from now on, as who is behind a NAT does.
    pub(super) fn pretend(&mut self, seen_at: &str) {
        self.seen_at = seen_at.to_owned();
    }

    /// Says from now on more about its media than a datagram should carry.
    pub(super) fn talk_at_length(&mut self) {
        self.is_verbose = true;
    }

    /// Loses its connection.
    pub(super) fn lose(&mut self) {
        self.stream = None;
        self.buffer.clear();
    }

    /// How many connections were made to it.
    pub(super) fn accepted(&self) -> usize {
        self.accepted
    }

    pub(super) fn register(&mut self, user: &str) {
        let begun = now();
        loop {
            let who = format!("<sip:{user}@example.org>");
            let head = self.head("REGISTER", "sip:example.org", "1", &who);
            let text = format!(
                "{head}To: {who}\r\nCall-ID: register-{user}-{}\r\nContact: {}\r\n\
                 Content-Length: 0\r\n\r\n",
                self.ip,
                self.contact()
            );
            self.send(&text);
            if self.expect("SIP/2.0 ").starts_with("SIP/2.0 200 ") {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{user} cannot register");
        }
    }

    /// Calls another phone, which answers; returns both ends of the call, its own first.
    pub(super) fn call(&mut self, callee: &mut Self, user: &str, number: u32) -> [Dialog; 2] {
        let (call_id, who) = self.begin(user, number);
        let invite = callee.accept();
        let answer = self.expect("SIP/2.0 2");
        let target = uri(&header(&answer, "Contact"));
        let own = Dialog {
            call_id,
            local: who,
            remote: header(&answer, "To"),
            target,
            cseq: Cell::new(1),
        };
        let ack = self.in_dialog("ACK", &own);
        self.send(&ack);
        callee.expect("ACK ");
        let theirs = Dialog {
            call_id: header(&invite, "Call-ID"),
            local: format!("{};tag=callee", header(&invite, "To")),
            remote: header(&invite, "From"),
            target: uri(&header(&invite, "Contact")),
            cseq: Cell::new(1),
        };
        [own, theirs]
    }

    /// Accepts a call; returns its INVITE.
    pub(super) fn accept(&mut self) -> String {
        let invite = self.expect("INVITE ");
        assert!(invite.contains(&format!("SIP/2.0/{} ", self.transport)), "{invite}");
        let is_tls = header(&invite, "Contact").contains(":5061;transport=tls");
        assert_eq!(is_tls, self.transport == "TLS", "{invite}");
        let (sdp, contact) = (self.sdp(), self.contact());
        self.answer(&invite, &format!("Contact: {contact}\r\n"), &sdp);
        invite
    }

    /// Calls a user; returns the final status.
    pub(super) fn invite(&mut self, user: &str, number: u32) -> u16 {
        self.begin(user, number);
        loop {
            let answer = self.expect("SIP/2.0 ");
            let status = answer[8..11].parse().unwrap();
            if 200 <= status {
                return status;
            }
        }
    }

    /// Ends a call; the other end of it hears that.
    pub(super) fn hang_up(&mut self, other: &mut Self, call: &Dialog) {
        self.bye(call);
        let bye = other.expect("BYE ");
        other.answer(&bye, "", "");
    }

    pub(super) fn bye(&mut self, call: &Dialog) {
        let bye = self.in_dialog("BYE", call);
        self.send(&bye);
        self.expect("SIP/2.0 200 ");
    }

    /// Asks inside a call what the other side can do; returns how long the answer took.
    pub(super) fn options(&mut self, call: &Dialog) -> Duration {
        let options = self.in_dialog("OPTIONS", call);
        let begun = now();
        self.send(&options);
        self.expect("SIP/2.0 200 ");
        begun.elapsed()
    }

    /// Sends an INVITE; returns its Call-ID and From.
    fn begin(&mut self, user: &str, number: u32) -> (String, String) {
        let uri = format!("sip:{user}@example.org");
        let call_id = format!("{}-{user}-{number}", self.ip);
        let who = format!("<sip:{}@example.org>;tag=caller", self.ip);
        let (head, sdp) = (self.head("INVITE", &uri, "1", &who), self.sdp());
        let text = format!(
            "{head}To: <{uri}>\r\nCall-ID: {call_id}\r\nContact: {}\r\n\
             Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}",
            self.contact(),
            sdp.len()
        );
        self.send(&text);
        (call_id, who)
    }

    fn in_dialog(&mut self, method: &str, call: &Dialog) -> String {
        if method != "ACK" {
            call.cseq.set(call.cseq.get() + 1);
        }
        let head = self.head(method, &call.target, &call.cseq.get().to_string(), &call.local);
        let (remote, call_id) = (&call.remote, &call.call_id);
        format!("{head}To: {remote}\r\nCall-ID: {call_id}\r\nContent-Length: 0\r\n\r\n")
    }

    fn head(&mut self, method: &str, uri: &str, cseq: &str, from: &str) -> String {
        self.sent += 1;
        let transport = self.transport;
        let (at, sent) = (&self.seen_at, self.sent);
        let branch = format!("z9hG4bK{}-{sent}", self.ip);
        let from = if from.contains(";tag=") { from.to_owned() } else { format!("{from};tag=own") };
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/{transport} {at}:5060;branch={branch};rport\r\n\
             Max-Forwards: 70\r\nFrom: {from}\r\nCSeq: {cseq} {method}\r\n"
        )
    }

    pub(super) fn answer(&mut self, request: &str, extra: &str, sdp: &str) {
        let kept = ["Via: ", "From: ", "Call-ID: ", "CSeq: "];
        let mut text = "SIP/2.0 200 OK\r\n".to_owned();
        for line in request.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))) {
            text += &format!("{line}\r\n");
        }
        let to = header(request, "To");
        let tag = if to.contains(";tag=") { "" } else { ";tag=callee" };
        let kind = if sdp.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
        let len = sdp.len();
        self.send(&format!(
            "{text}To: {to}{tag}\r\n{extra}{kind}Content-Length: {len}\r\n\r\n{sdp}"
        ));
    }

    fn contact(&self) -> String {
        let at = &self.seen_at;
        match self.transport {
            "UDP" => format!("<sip:phone@{at}:5060>"),
            "TCP" => format!("<sip:phone@{at}:5060;transport=tcp>"),
            _ => format!("<sip:phone@{at}:5061;transport=tls>"),
        }
    }

    fn sdp(&self) -> String {
        let ip = &self.ip;
        let more = if self.is_verbose {
            format!("a=x-more:{}\r\n", "x".repeat(1000))
        } else {
            String::new()
        };
        format!(
            "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n\
             m=audio 40000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n{more}"
        )
    }

    fn send(&mut self, text: &str) {
        if let Some(udp) = &self.udp {
            udp.send_to(text.as_bytes(), &self.gate).unwrap();
            return;
        }
        let (ip, gate) = (&self.ip, &self.gate);
        let stream = self.stream.get_or_insert_with(|| match &self.client {
            None => Box::new(connect(ip, gate)),
            Some(client) => Box::new(secure(connect(ip, gate), client.clone())),
        });
        stream.write_all(text.as_bytes()).unwrap();
        stream.flush().unwrap();
    }

    /// Waits for a message that starts so; others are passed over.
    pub(super) fn expect(&mut self, start: &str) -> String {
        let begun = now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "{} never hears {start}", self.ip);
            if let Some(text) = self.next().filter(|text| text.starts_with(start)) {
                return text;
            }
        }
    }

    fn next(&mut self) -> Option<String> {
        let mut bytes = [0; 8192];
        if let Some(udp) = &self.udp {
            let len = udp.recv(&mut bytes).ok()?;
            return String::from_utf8(bytes[..len].to_vec()).ok();
        }
        if let Some(text) = self.cut() {
            return Some(text);
        }
        if let Some(Ok((stream, _))) = self.listener.as_ref().map(TcpListener::accept) {
            self.accepted += 1;
            self.buffer.clear();
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            self.stream = Some(match &self.server {
                None => Box::new(stream),
                Some(server) => {
                    let session = ServerConnection::new(server.clone()).unwrap();
                    Box::new(StreamOwned::new(session, stream))
                }
            });
        }
        let Some(stream) = &mut self.stream else {
            std::thread::yield_now();
            return None;
        };
        match stream.read(&mut bytes) {
            Ok(0) => panic!("the connection of {} ended", self.ip),
            Ok(len) => self.buffer.extend_from_slice(&bytes[..len]),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock), "{error}"),
        }
        self.cut()
    }

    /// Takes one message out of what has come.
    fn cut(&mut self) -> Option<String> {
        let text = std::str::from_utf8(&self.buffer).unwrap();
        let end = text.find("\r\n\r\n")? + 4;
        let len: usize = header(&text[..end], "Content-Length").parse().unwrap();
        let whole = text.get(..end + len)?.to_owned();
        self.buffer.drain(..whole.len());
        Some(whole)
    }
}

/// Speaks TLS on a connection, whose handshake is made.
pub(super) fn secure(
    stream: TcpStream,
    client: Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::IpAddress(stream.peer_addr().unwrap().ip().into());
    let mut secure = StreamOwned::new(ClientConnection::new(client, name).unwrap(), stream);
    secure.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    secure.conn.complete_io(&mut secure.sock).unwrap();
    secure.sock.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    secure
}

/// Makes a connection from an address.
pub(super) fn connect(ip: &str, to: &str) -> TcpStream {
    try_connect(ip, to).expect("a connection can be made")
}

/// Makes a connection from an address, unless it ends before it stands.
pub(super) fn try_connect(ip: &str, to: &str) -> Option<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).ok()?;
    let addr = |text: &str| text.parse::<SocketAddr>().expect("an address");
    socket.bind(&addr(&format!("{ip}:0")).into()).ok()?;
    socket.connect(&addr(to).into()).ok()?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_millis(50))).ok()?;
    Some(stream)
}

fn header(text: &str, name: &str) -> String {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

fn uri(contact: &str) -> String {
    contact.trim_start_matches('<').split('>').next().unwrap().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "a real process takes its time")]
pub(super) fn now() -> Instant {
    Instant::now()
}
