//! A registrar over UDP (RFC 3261 §10.3) that asks for a password:
//! `registrar LISTEN REALM USER PASSWORD`.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sip_core::digest::{Password, Server, ServerConfig, VerifyError};
use sip_core::{Edit, Message, Method, Name, NameAddr, Verdict, Writer, reason_phrase};

fn main() -> Result<(), Box<dyn Error>> {
    let [listen, realm, user, password] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: registrar LISTEN REALM USER PASSWORD".into());
    };
    let socket = UdpSocket::bind(listen)?;
    let mut registrar = Registrar::new(realm, user, password, rand_key());
    let mut buffer = [0; 65_535];
    loop {
        let (len, from) = socket.recv_from(&mut buffer)?;
        #[expect(clippy::disallowed_methods, reason = "a program reads the clock")]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let bytes = Bytes::copy_from_slice(&buffer[..len]);
        if let Some(answer) = registrar.handle(now, from, bytes) {
            // What cannot be sent is lost, and its sender tries again.
            let _ = socket.send_to(&answer, from);
        }
    }
}

/// A key that differs in each run; with one that is kept, phones would not be
/// asked again after a restart.
fn rand_key() -> [u8; 16] {
    use std::hash::{BuildHasher as _, RandomState};
    let half = || RandomState::new().hash_one(0).to_be_bytes();
    [half(), half()].concat().try_into().unwrap_or_default()
}

/// One user's phones.
pub(crate) struct Registrar {
    server: Server,
    user: String,
    password: Password,
    /// By Contact URI.
    bindings: BTreeMap<Vec<u8>, Binding>,
}

/// Where a phone is, until when, and which REGISTER said so.
struct Binding {
    until: Duration,
    call_id: Vec<u8>,
    cseq: u32,
}

/// Bindings that the user may have.
const BINDINGS_MAX: usize = 10;
const EXPIRES_MAX: u32 = 3600;

impl Registrar {
    pub(crate) fn new(realm: &str, user: &str, password: &str, key: [u8; 16]) -> Self {
        let server = Server::new(ServerConfig::new(realm), key);
        let (user, password) = (user.to_owned(), Password::new(password));
        Self { server, user, password, bindings: BTreeMap::new() }
    }

    /// Returns the answer to what arrived at `now`, a time since 1970.
    pub(crate) fn handle(
        &mut self,
        now: Duration,
        from: SocketAddr,
        bytes: Bytes,
    ) -> Option<Bytes> {
        let request = Message::parse(bytes).ok()?;
        let stamped = Edit::new(&request).via_received(from.ip(), from.port()).finish();
        let request = Message::parse(stamped).ok().filter(Message::is_request)?;
        let answer = match request.verdict() {
            Verdict::Discard => return None,
            Verdict::Answer(status) => answer(&request, status),
            Verdict::Ok if request.method() == Method::Ack => return None,
            Verdict::Ok if request.method() != Method::Register => {
                answer(&request, 405).header(Name::ALLOW, "REGISTER")
            }
            Verdict::Ok if request.elements(Name::REQUIRE).next().is_some() => {
                let options = request.elements(Name::REQUIRE);
                options.fold(answer(&request, 420), |out, tag| out.header(Name::UNSUPPORTED, tag))
            }
            Verdict::Ok => self.register(now, from, &request),
        };
        Some(answer.finish().bytes().clone())
    }

    fn register(&mut self, now: Duration, from: SocketAddr, request: &Message) -> Writer {
        let place = from.ip().to_string();
        let credentials = self.server.credentials(request);
        let verified = credentials.filter(|c| *c.username == *self.user.as_bytes()).map(|found| {
            self.server.verify(now, place.as_bytes(), request, &found, &self.password)
        });
        match verified {
            Some(Ok(_)) if !self.is_own(request) => answer(request, 403),
            Some(Ok(_)) => self.bind(now, request),
            Some(Err(VerifyError::OtherUri)) => answer(request, 400),
            refused => {
                let is_stale = refused == Some(Err(VerifyError::Stale));
                let challenges = self.server.challenges(now, place.as_bytes(), is_stale);
                let (name, status) = self.server.refusal();
                challenges.iter().fold(answer(request, status), |out, c| out.header(name, c))
            }
        }
    }

    /// True when To is the address of the user, who may register no other.
    fn is_own(&self, request: &Message) -> bool {
        let to = request.to().and_then(|to| to.parsed_uri().ok());
        to.and_then(|to| to.user_unescaped()).is_some_and(|user| *user == *self.user.as_bytes())
    }

    /// Takes over all Contacts of the request, or none of them.
    fn bind(&mut self, now: Duration, request: &Message) -> Writer {
        self.bindings.retain(|_, binding| now < binding.until);
        let (call_id, cseq) = (request.call_id(), request.cseq().map_or(0, |cseq| cseq.number));
        let is_star = request.contacts().any(|contact| contact.is_star());
        if is_star && (request.contacts().count() != 1 || request.expires() != Some(0)) {
            return answer(request, 400);
        }
        let is_late = |binding: &Binding| binding.call_id == call_id && cseq <= binding.cseq;
        let is_named = |uri: &[u8]| is_star || request.contacts().any(|c| c.uri() == uri);
        if self.bindings.iter().any(|(uri, binding)| is_named(uri) && is_late(binding)) {
            return answer(request, 500);
        }
        let is_new = |contact: &NameAddr<'_>| {
            !contact.is_star() && !self.bindings.contains_key(contact.uri())
        };
        if BINDINGS_MAX < self.bindings.len() + request.contacts().filter(is_new).count() {
            return answer(request, 403);
        }
        if is_star {
            self.bindings.clear();
        }
        for contact in request.contacts().filter(|contact| !contact.is_star()) {
            let seconds = contact.expires().or_else(|| request.expires()).unwrap_or(EXPIRES_MAX);
            if seconds == 0 {
                self.bindings.remove(contact.uri());
            } else {
                let until = now + Duration::from_secs(seconds.min(EXPIRES_MAX).into());
                let binding = Binding { until, call_id: call_id.to_vec(), cseq };
                self.bindings.insert(contact.uri().to_vec(), binding);
            }
        }
        self.bindings.iter().fold(answer(request, 200), |out, (uri, binding)| {
            let seconds = (binding.until - now).as_secs().to_string();
            let value = [b"<", &uri[..], b">;expires=", seconds.as_bytes()].concat();
            out.header(Name::CONTACT, value)
        })
    }
}

fn answer(request: &Message, status: u16) -> Writer {
    Writer::answer(request, status, reason_phrase(status).as_bytes(), Some(b"registrar"))
}
