use std::time::Duration;

use super::response::Parts;
use super::{
    Algorithm, AuthenticationInfo, Challenge, ChallengeError, Client, Credentials, Hash, Password,
    Qop, Qops, Server, ServerConfig, VerifyError,
};
use crate::{Edit, Message, Method, Name, Writer};

const KEY: [u8; 16] = [7; 16];
const NOW: Duration = Duration::from_secs(1_700_000_000);
const HERE: &[u8] = b"192.0.2.1";

/// RFC 7616 §3.9.1, and RFC 2617 §3.5 in the same words.
fn mufasa<'a>(algorithm: Algorithm) -> Parts<'a> {
    Parts {
        algorithm,
        username: b"Mufasa",
        realm: b"http-auth@example.org",
        nonce: b"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        qop: Some(Qop::Auth),
        nc: b"00000001",
        cnonce: b"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        method: b"GET",
        uri: b"/dir/index.html",
        body: b"",
    }
}

#[test]
fn the_examples_of_the_rfcs_come_out() {
    let password = Password::new("Circle of Life");
    assert_eq!(
        mufasa(Algorithm::SHA_256).response(&password),
        "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"
    );
    assert_eq!(mufasa(Algorithm::MD5).response(&password), "8ca523f5e9506fed4657c9700eebdbec");
    let rfc2617 = Parts {
        realm: b"testrealm@host.com",
        nonce: b"dcd98b7102dd2f0e8b11d0f600bfb0c093",
        cnonce: b"0a4f113b",
        ..mufasa(Algorithm::MD5)
    };
    let password = Password::new("Circle Of Life");
    assert_eq!(rfc2617.response(&password), "6629fae49393a05397450978507c4ef1");
    // RFC 7616 §3.9.2 without its user hash; the figure is of another program.
    let unicode = Parts {
        username: "J\u{e4}s\u{f8}n Doe".as_bytes(),
        realm: b"api@example.org",
        nonce: b"5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK",
        cnonce: b"NTg6RKcb9boFIAS3KrFK9BGeh+niz/sm",
        uri: b"/doe.json",
        ..mufasa(Algorithm::SHA_512_256)
    };
    assert_eq!(
        unicode.response(&Password::new("Secret, or not?")),
        "7a4e1192babbba02e91182d2895bfdbf7adafc6e48d4e517ca301974843d840c"
    );
}

#[test]
fn a_stored_hash_serves_as_well_as_its_password() {
    let hex = Hash::Md5.hex(&[b"Mufasa", b"http-auth@example.org", b"Circle of Life"]);
    let stored = Password::hashed(Hash::Md5, &hex.to_uppercase());
    let parts = mufasa(Algorithm::MD5);
    assert_eq!(parts.response(&stored), parts.response(&Password::new("Circle of Life")));
    assert!(!stored.serves(Algorithm::SHA_256));
    assert_eq!(format!("{stored:?}"), "Password(…)");
}

#[test]
fn a_challenge_is_read_however_it_is_spaced_and_quoted() {
    let challenge = Challenge::parse(
        b"digest  realm = \"a \\\"b\\\"\",\r\n nonce=\"x,y=\" , QOP=\"auth-int , auth\",,\
          algorithm=\"sha-256-SESS\", stale=TRUE, opaque=\"\", extra=1",
    )
    .expect("it can be read");
    assert_eq!((&*challenge.realm, &*challenge.nonce), (&b"a \"b\""[..], &b"x,y="[..]));
    assert_eq!(challenge.qops, Some(Qops { auth: true, auth_int: true }));
    let session = Algorithm { hash: Hash::Sha256, session: true };
    assert_eq!((challenge.algorithm, challenge.stale), (Some(session), true));
    assert_eq!(challenge.opaque.as_deref(), Some(&b""[..]));
    let old = Challenge::parse(b"Digest realm=r, nonce=abc==, algorithm=AKAv1-MD5");
    assert_eq!(old.map(|old| (old.algorithm, old.qops, old.nonce.into_owned())), {
        Ok((None, None, b"abc==".to_vec()))
    });
}

#[test]
fn what_is_no_challenge_is_refused() {
    for value in [
        "",
        "Digest",
        "Basic realm=\"x\"",
        "Digestrealm=\"x\", nonce=\"y\"",
        "Digest realm=\"x\"",
        "Digest nonce=\"x\"",
        "Digest realm=\"x\", nonce=\"y",
        "Digest realm=\"x\" nonce=\"y\"",
        "Digest realm=\"x\", nonce=\"y\", realm=\"z\"",
        "Digest realm=\"x\", nonce=\"y\", stale",
        "Digest realm=, nonce=\"y\"",
    ] {
        assert!(Challenge::parse(value.as_bytes()).is_err(), "{value}");
    }
    for value in [
        "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:a\"",
        "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:a\", response=\"0\", qop=auth",
        "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:a\", response=\"0\", nc=1",
        "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:a\", response=\"0\", nc=+0000001",
        "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:a\", response=\"0\", qop=x, \
         nc=00000001, cnonce=\"c\"",
    ] {
        assert!(Credentials::parse(value.as_bytes()).is_err(), "{value}");
    }
}

#[test]
fn client_and_server_agree_on_every_algorithm_and_protection() {
    for hash in [Hash::Md5, Hash::Sha256, Hash::Sha512Trunc256] {
        for (session, auth_int) in [(false, false), (false, true), (true, false), (true, true)] {
            let server = Server::new(
                ServerConfig {
                    algorithms: vec![Algorithm { hash, session }],
                    qops: Qops { auth: !auth_int, auth_int },
                    is_proxy: auth_int,
                    ..ServerConfig::new("r")
                },
                KEY,
            );
            let mut run = Run::new(server);
            run.challenge(NOW, false).expect("it can be answered");
            for count in 1..4 {
                let request = run.authorized();
                let verified = run.verify(NOW, &request).expect("it is right");
                assert_eq!(verified.nonce_count, Some(count));
                assert_eq!((verified.nonce_made_at, verified.qop.is_some()), (NOW, true));
            }
        }
    }
}

#[test]
fn the_first_algorithm_in_common_is_taken() {
    let config = ServerConfig {
        algorithms: vec![Algorithm::SHA_512_256, Algorithm::SHA_256, Algorithm::MD5],
        ..ServerConfig::new("r")
    };
    let mut run = Run::new(Server::new(config, KEY));
    run.challenge(NOW, false).expect("it can be answered");
    let request = run.authorized();
    let chosen = run.server.credentials(&request).and_then(|c| c.algorithm);
    assert_eq!(chosen, Some(Algorithm::SHA_512_256));
    run.verify(NOW, &request).expect("it is right");

    let hex = Hash::Md5.hex(&[b"ann", b"r", b"secret"]);
    run.client = Client::new("ann", Password::hashed(Hash::Md5, &hex), 1);
    run.challenge(NOW, false).expect("it can be answered");
    let request = run.authorized();
    run.verify(NOW, &request).expect("an MD5 hash answers the MD5 challenge");
}

#[test]
fn a_nonce_ages_and_is_known_only_where_it_was_made() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    run.challenge(NOW, false).expect("it can be answered");
    let request = run.authorized();
    let life = Duration::from_secs(300);
    assert!(run.verify(NOW + life - Duration::from_millis(1), &request).is_ok());
    assert_eq!(run.verify(NOW + life, &request), Err(VerifyError::Stale));
    assert!(run.verify(NOW - life, &request).is_ok(), "a clock was set back");
    let further = NOW - life - Duration::from_millis(1);
    assert_eq!(run.verify(further, &request), Err(VerifyError::Stale));

    let credentials = run.server.credentials(&request).expect("credentials");
    let password = Password::new("secret");
    let verify = |server: &Server, place: &[u8]| {
        server.verify(NOW, place, &request, &credentials, &password).map(|_| ())
    };
    assert_eq!(verify(&run.server, b"192.0.2.2"), Err(VerifyError::Stale));
    let twin = Server::new(ServerConfig::new("r"), KEY);
    assert_eq!(verify(&twin, HERE), Ok(()), "another server with the key");
    let stranger = Server::new(ServerConfig::new("r"), [8; 16]);
    assert_eq!(verify(&stranger, HERE), Err(VerifyError::Stale));

    // The fresh nonce of a stale challenge is taken without asking the user.
    run.challenge(NOW + life, true).expect("it can be answered");
    let request = run.authorized();
    assert_eq!(run.verify(NOW + life, &request).map(|v| v.nonce_count), Ok(Some(1)));
}

#[test]
fn whatever_is_changed_is_noticed() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    run.challenge(NOW, false).expect("it can be answered");
    let request = run.authorized();
    let value = run.header(&request);
    for (from, to, error) in [
        ("username=\"ann\"", "username=\"bob\"", VerifyError::Wrong),
        ("nc=00000001", "nc=00000002", VerifyError::Wrong),
        ("nc=00000001", "nc=00000000", VerifyError::Wrong),
        ("uri=\"sip:example.com\"", "uri=\"sip:example.org\"", VerifyError::Wrong),
        ("algorithm=SHA-256", "algorithm=MD5", VerifyError::Wrong),
        ("algorithm=SHA-256", "algorithm=SHA-512-256", VerifyError::NotOffered),
        ("algorithm=SHA-256", "algorithm=None", VerifyError::NotOffered),
        ("qop=auth", "qop=auth-int", VerifyError::NotOffered),
        ("response=\"", "response=\"0", VerifyError::Wrong),
    ] {
        assert!(value.contains(from), "{value}");
        let changed = run.with(&value.replacen(from, to, 1));
        assert_eq!(run.verify(NOW, &changed), Err(error), "{from} {to}");
    }
    let elsewhere = Edit::new(&request).set_request_uri(b"sip:example.org").finish();
    let elsewhere = Message::parse(elsewhere).expect("a message");
    assert_eq!(run.verify(NOW, &elsewhere), Err(VerifyError::OtherUri));
    let same = Edit::new(&request).set_request_uri(b"sip:EXAMPLE.com").finish();
    assert!(run.verify(NOW, &Message::parse(same).expect("a message")).is_ok());
}

#[test]
fn a_wrong_password_is_tried_once() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    run.client = Client::new("ann", Password::new("wrong"), 1);
    run.challenge(NOW, false).expect("it can be answered");
    let request = run.authorized();
    assert_eq!(run.verify(NOW, &request), Err(VerifyError::Wrong));
    assert_eq!(run.challenge(NOW, false), Err(ChallengeError::Refused));
}

#[test]
fn a_nonce_that_served_may_age_without_the_server_saying_so() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    run.challenge(NOW, false).expect("it can be answered");
    run.authorized();
    run.authorized();
    run.challenge(NOW, false).expect("the nonce had served before");
}

#[test]
fn a_server_that_finds_every_nonce_stale_is_given_up() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    run.challenge(NOW, false).expect("it can be answered");
    for _ in 0..3 {
        // A nonce that aged, and the one after it that came too late.
        run.authorized();
        run.authorized();
        run.challenge(NOW, true).expect("the nonce had served before");
        run.authorized();
        run.challenge(NOW, true).expect("it may have aged on the way");
    }
    run.authorized();
    assert_eq!(run.challenge(NOW, true), Err(ChallengeError::Refused));
}

#[test]
fn a_client_of_rfc_2069_is_let_in_with_md5() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    let nonce = run.server.nonce_of_test(NOW, HERE);
    let challenge = format!("Digest realm=\"r\", nonce=\"{nonce}\"");
    run.told(&challenge).expect("it can be answered");
    let request = run.authorized();
    assert!(!run.header(&request).contains("qop"));
    assert_eq!(run.verify(NOW, &request).map(|v| (v.nonce_count, v.qop)), Ok((None, None)));
}

#[test]
fn what_cannot_be_answered_is_said() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    assert_eq!(run.told("Basic realm=\"r\""), Err(ChallengeError::NoChallenge));
    let unknown = "Digest realm=\"r\", nonce=\"n\", algorithm=AKAv1-MD5";
    assert_eq!(run.told(unknown), Err(ChallengeError::Unsupported));
    let unknown = "Digest realm=\"r\", nonce=\"n\", qop=\"auth-conf\"";
    assert_eq!(run.told(unknown), Err(ChallengeError::Unsupported));
    for realm in 0..Client::REALMS_MAX {
        assert_eq!(run.told(&format!("Digest realm=\"r{realm}\", nonce=\"n\"")), Ok(()));
    }
    assert_eq!(run.told("Digest realm=\"x\", nonce=\"n\""), Err(ChallengeError::TooManyRealms));
    assert_eq!(run.client.authorize(&run.request.clone()).len(), Client::REALMS_MAX);
}

#[test]
fn a_server_may_name_the_next_nonce() {
    let mut run = Run::new(Server::new(ServerConfig::new("r"), KEY));
    run.challenge(NOW, false).expect("it can be answered");
    run.authorized();
    let next = run.server.nonce_of_test(NOW + Duration::from_secs(9), HERE);
    let value = format!("nextnonce=\"{next}\", qop=auth, rspauth=\"00\"");
    let info = AuthenticationInfo::parse(value.as_bytes()).expect("it can be read");
    assert_eq!((info.qop, info.response.as_deref()), (Some(Qop::Auth), Some(&b"00"[..])));
    let ok = Writer::answer(&run.request, 200, b"OK", None)
        .header(Name::AUTHENTICATION_INFO, &value)
        .finish();
    run.client.handle_success(&ok);
    let verified = run.authorized();
    let verified = run.verify(NOW, &verified).expect("it is right");
    assert_eq!(verified.nonce_made_at, NOW + Duration::from_secs(9));
    assert_eq!(verified.nonce_count, Some(1));
}

/// Ann's phone and a registrar.
struct Run {
    server: Server,
    client: Client,
    request: Message,
}

impl Run {
    fn new(server: Server) -> Self {
        let request = Writer::request(Method::Register, b"sip:example.com")
            .header(Name::VIA, "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1")
            .header(Name::FROM, "<sip:ann@example.com>;tag=1")
            .header(Name::TO, "<sip:ann@example.com>")
            .header(Name::CALL_ID, "1@192.0.2.1")
            .header(Name::CSEQ, "1 REGISTER")
            .body(b"text/plain", "body")
            .finish();
        Self { server, client: Client::new("ann", Password::new("secret"), 1), request }
    }

    fn challenge(&mut self, now: Duration, stale: bool) -> Result<(), ChallengeError> {
        let (name, status) = self.server.refusal();
        let mut refusal = Writer::answer(&self.request, status, b"Who is it", Some(b"t"));
        for challenge in self.server.challenges(now, HERE, stale) {
            refusal = refusal.header(name, challenge);
        }
        self.client.handle_challenge(&refusal.finish())
    }

    fn told(&mut self, challenge: &str) -> Result<(), ChallengeError> {
        let refusal = Writer::answer(&self.request, 401, b"Unauthorized", Some(b"t"))
            .header(Name::WWW_AUTHENTICATE, challenge)
            .finish();
        self.client.handle_challenge(&refusal)
    }

    fn authorized(&mut self) -> Message {
        let mut edit = Edit::new(&self.request);
        for (name, value) in self.client.authorize(&self.request) {
            edit = edit.append(name, value);
        }
        Message::parse(edit.finish()).expect("a message")
    }

    fn with(&self, credentials: &str) -> Message {
        let edit = Edit::new(&self.request).append(Name::AUTHORIZATION, credentials);
        Message::parse(edit.finish()).expect("a message")
    }

    fn header(&self, request: &Message) -> String {
        let value = request.header(Name::AUTHORIZATION).expect("it has one");
        String::from_utf8(value.to_vec()).expect("text")
    }

    fn verify(&self, now: Duration, request: &Message) -> Result<super::Verified, VerifyError> {
        let credentials = self.server.credentials(request).expect("it has some");
        self.server.verify(now, HERE, request, &credentials, &Password::new("secret"))
    }
}

impl Server {
    fn nonce_of_test(&self, now: Duration, place: &[u8]) -> String {
        let challenge = self.challenges(now, place, false).remove(0);
        let challenge = Challenge::parse(&challenge).expect("it can be read");
        String::from_utf8(challenge.nonce.to_vec()).expect("text")
    }
}
