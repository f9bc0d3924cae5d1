//! SIP over TLS.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use driver::tls::authority::issue_sip;
use driver::tls::{Domain, SipTlsFiles};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};

use super::line::{Line, connect, secure};
use super::{Site, misuse, pause};

#[test]
fn calls_over_tls_go_on_while_others_misuse_its_port() {
    let certificates = Certificates::new("misuse", 44);
    let site = certificates.site("", 5);
    let (gate, client) = (certificates.gate(), certificates.client());
    let line = |last| Line::tls(site.ip(last), gate.clone(), client.clone());
    let (mut alice, mut bob, mut dave) = (line(21), line(22), line(24));
    let mut carol = Line::udp(site.ip(23), site.gate());
    for (phone, user) in [(&mut alice, "alice"), (&mut bob, "bob"), (&mut dave, "dave")] {
        phone.register(user);
    }
    let over_tls = alice.call(&mut bob, "bob", 1);
    let mixed = carol.call(&mut dave, "dave", 2);

    let attacks = misuse::begin_secure(&site.ip(60), &gate, &client);
    let mut asked = 0;
    while !attacks.iter().all(std::thread::JoinHandle::is_finished) || asked < 20 {
        for (phone, other, call) in
            [(&mut alice, &mut bob, &over_tls), (&mut carol, &mut dave, &mixed)]
        {
            asked += 1;
            // 2 s are for a machine with much other work; nobody misses an answer.
            assert!(phone.options(&call[0]) < Duration::from_secs(2));
            assert!(other.options(&call[1]) < Duration::from_secs(2));
        }
        pause(100);
    }
    attacks.into_iter().for_each(|attack| attack.join().unwrap());

    bob.hang_up(&mut alice, &over_tls[1]);
    carol.hang_up(&mut dave, &mixed[0]);
    site.figures(&[
        ("driver_stream_ends_total{why=\"handshake_slow\"}", 2),
        ("driver_stream_ends_total{why=\"plaintext\"}", 2),
        ("driver_stream_ends_total{why=\"tls_protocol\"}", 1),
        ("driver_stream_ends_total{why=\"body_too_long\"}", 1),
        ("driver_stream_ends_total{why=\"displaced\"}", 1),
        ("driver_stream_secured_total", 304),
        ("rm_calls_answered_total", 2),
    ]);
    assert!(site.program.drain().success());
}

#[test]
fn a_trunk_over_tls_is_called_only_if_it_shows_who_it_is() {
    let certificates = Certificates::new("trunk", 45);
    let routes = "[[route]]\ntargets = [\"127.9.45.30:5061;transport=tls\", \
                  \"127.9.45.31:5061;transport=tls\"]\n";
    // Its certificate is that of the other trunk.
    let (server, poser) = (certificates.server(31), TcpListener::bind("127.9.45.30:5061").unwrap());
    let other = server.clone();
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = poser.accept().unwrap();
        let mut session = ServerConnection::new(other).unwrap();
        session.complete_io(&mut stream).and_then(|_| session.complete_io(&mut stream)).is_ok()
            && session.reader().read(&mut [0; 8]).is_ok_and(|len| 0 < len)
    });
    let site = certificates.site(routes, 5);
    let mut trunk = Line::trunk(site.ip(31), certificates.gate(), server);
    let mut alice = Line::tls(site.ip(21), certificates.gate(), certificates.client());
    for call in 1..=3 {
        let dialogs = alice.call(&mut trunk, "outside", call);
        trunk.hang_up(&mut alice, &dialogs[1]);
    }
    assert_eq!(trunk.accepted(), 1);
    assert!(!heard.join().unwrap(), "it heard something all the same");
    site.figures(&[
        ("driver_stream_ends_total{why=\"certificate_of_another_name\"}", 1),
        ("rm_calls_answered_total", 3),
    ]);
}

#[test]
fn what_a_connection_costs_is_bounded_whether_its_handshake_is_done_or_not() {
    let certificates = Certificates::new("memory", 46);
    let site = certificates.site("", 60);
    let (gate, client) = (certificates.gate(), certificates.client());
    let open = |ip: u8, count: u32| {
        let mut all = Vec::new();
        for number in 0..count {
            let mut stream = secure(connect(&site.ip(ip), &gate), client.clone());
            stream.write_all(options(number).as_bytes()).unwrap();
            all.push(stream);
        }
        all
    };
    // What is made once is made now.
    drop(open(40, FIRST));
    site.figures(&[("driver_stream_secured_total", FIRST.into())]);
    site.at_most("driver_streams", 0);
    let before = site.memory_kb();
    let all = open(41, COUNT);
    site.figures(&[("driver_streams", COUNT.into())]);
    let each = site.memory_kb().saturating_sub(before) / u64::from(COUNT);
    assert!(each <= 32, "a silent connection costs {each} kB");
    drop(all);
    site.at_most("driver_streams", 0);

    // What was given back counts once more if it is kept.
    let mut endless = b"\x16\x03\x01\x40\x00\x01\x00\xff\xf0".to_vec();
    endless.extend([0; 0x4000 - 4]);
    endless.extend(b"\x16\x03\x01\x40\x00");
    endless.extend([0; 0x3ff0]);
    let mut all: Vec<_> = (0..COUNT).map(|_| connect(&site.ip(42), &gate)).collect();
    for stream in &mut all {
        stream.write_all(&endless).unwrap();
    }
    site.figures(&[("driver_stream_handshakes", COUNT.into())]);
    let each = site.memory_kb().saturating_sub(before) / u64::from(COUNT);
    assert!(each <= 128, "a handshake that stalls costs {each} kB");
}

fn options(number: u32) -> String {
    format!(
        "OPTIONS sip:127.9.46.1 SIP/2.0\r\nVia: SIP/2.0/TLS 127.9.46.41;branch=z9hG4bK{number}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:a@b>\r\nCall-ID: {number}\r\n\
         CSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )
}

/// Fewer than one source may have.
const COUNT: u32 = 200;
const FIRST: u32 = 10;

/// An authority, and the files of a listener and of a trunk.
struct Certificates {
    number: u8,
    name: &'static str,
    folder: PathBuf,
    files: BTreeMap<u8, SipTlsFiles>,
}

impl Certificates {
    fn new(name: &'static str, number: u8) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("streams-tls-{name}"));
        // It may be there from the last time.
        let _ = std::fs::remove_dir_all(&folder);
        let domain = |last: &u8| format!("127.9.{number}.{last}").parse().unwrap();
        let domains: Vec<Domain> = [1, 31].iter().map(domain).collect();
        let files = issue_sip(&folder, &domains, 365, crate::config::now_ms()).unwrap();
        Self { number, name, folder, files: [1, 31].into_iter().zip(files).collect() }
    }

    fn gate(&self) -> String {
        format!("127.9.{}.1:5061", self.number)
    }

    fn site(&self, routes: &str, message_time: u64) -> Site {
        let SipTlsFiles { certificate, key, authority, .. } = &self.files[&1];
        let authority = authority.as_ref().unwrap();
        let gate = self.gate();
        let listener = format!(
            "[[listener]]\nlisten = \"{gate}\"\ntransport = \"tls\"\ncertificate = {certificate:?}\n\
             key = {key:?}\nauthority = {authority:?}\n{routes}"
        );
        Site::start_with(&format!("tls-{}", self.name), self.number, &listener, message_time)
    }

    fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::pem_file_iter(self.folder.join("ca.pem")).unwrap();
        roots.add_parsable_certificates(authority.map(Result::unwrap));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }

    fn server(&self, last: u8) -> Arc<ServerConfig> {
        let SipTlsFiles { certificate, key, .. } = &self.files[&last];
        let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap);
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Arc::new(config.with_single_cert(chain.collect(), key).unwrap())
    }
}

impl Site {
    /// What the process has of the machine's memory, in kB.
    fn memory_kb(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.program.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}
