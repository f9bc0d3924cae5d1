//! The program itself.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bytes::Bytes;
use driver::store::Store;
use failover::replica::Key;
use failover::{CallId, Slot};
use testkit::program::{Program, figure, page};

mod hardship;

#[test]
fn a_faulty_file_is_refused_with_every_fault() {
    let file = file("faulty", "[node]\nid = 0\nhots = \"x\"\nroles = [\"gate\"]\n");

    for args in [vec!["check".into(), file.clone()], vec!["--config".into(), file]] {
        let output = run(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        for fault in ["line 2: `id`", "line 3: `hots`", "[[listener]]", "needs a b2b"] {
            assert!(text.contains(fault), "{fault} is not in {text}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = run(vec!["--config".into(), "no/such.toml".into()]);

    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("no/such.toml"));
}

#[test]
fn a_document_with_a_byte_order_mark_is_one() {
    let output = run(vec!["check".into(), file("marked", &format!("\u{feff}{DOCUMENT}"))]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let faulty = DOCUMENT.replace("site", "sight");
    let output = run(vec!["check".into(), file("marked-faulty", &format!("\u{feff}{faulty}"))]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("line 4: `sight`"), "{text}");
}

#[test]
fn without_a_mediagate_calls_get_503_and_everything_else_an_answer() {
    let mut program = Program::start(RM, &file("running", CONFIG));
    program.log_until("listening for SIP");

    let phone = UdpSocket::bind("127.9.2.9:0").unwrap();
    phone.connect("127.9.2.1:5060").unwrap();
    // A gate that starts takes no message of a b2b for 300 ms: the phone repeats itself, as it must.
    let options = ask(&phone, "OPTIONS", "options");
    assert!(options.starts_with("SIP/2.0 200 "), "{options}");
    let invite = ask(&phone, "INVITE", "invite");
    assert!(invite.starts_with("SIP/2.0 503 "), "{invite}");
    assert!(invite.contains("\r\nRetry-After: "), "{invite}");
    let nonsense = ask(&phone, "OPTIONS", "two words");
    assert!(nonsense.starts_with("SIP/2.0 400 "), "{nonsense}");

    let metrics = metrics("127.9.2.1:9131");
    assert!(figure(&metrics, "rm_gate_datagrams_total").is_some(), "{metrics}");

    assert!(program.drain().success());
}

#[test]
fn records_of_another_cluster_or_of_the_next_version_are_named_and_bring_no_call() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("foreign");
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    #[expect(clippy::disallowed_methods, reason = "an origin for the test")]
    let now = Instant::now();
    for (id, cluster, value) in
        [(1, "elsewhere", &b"\x02\x10theirs"[..]), (2, "", b"\x02\x11later")]
    {
        let (mut store, _) = Store::open(&folder.join("records"), cluster).unwrap();
        let name = driver::codec::encode(&(Slot(7), Key::Call(CallId(id))));
        store.put(now, name, Some(Bytes::from_static(value)));
    }
    let text = CONFIG.replace("127.9.2.", "127.9.4.");
    let config = file("foreign", &format!("{text}\n[store]\npath = {folder:?}\n"));
    let mut program = Program::start(RM, &config);
    let lines = program.log_until("listening for SIP");
    assert!(lines.iter().any(|line| line.contains("elsewhere")), "{lines:#?}");
    let open = lines.iter().find(|line| line.contains("the store is open")).unwrap();
    assert!(open.contains("read=0") && open.contains("unread=1"), "{open}");
    // The figures are there a moment after the listener.
    #[expect(clippy::disallowed_methods, reason = "a real process takes its time")]
    let mut texts = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        metrics("127.9.4.1:9131")
    });
    let calls = texts.find_map(|text| figure(&text, "rm_calls").map(str::to_owned));
    assert_eq!(calls.as_deref(), Some("0"));
}

#[test]
fn two_processes_link_up_over_tls_and_one_of_another_authority_is_refused_by_name() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let issue = |name: &str, nodes: &str| {
        let folder = folder.join(name);
        // It may be there from the last time.
        let _ = std::fs::remove_dir_all(&folder);
        let output =
            run(vec!["certificates".into(), folder.clone(), "--nodes".into(), nodes.into()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    };
    let (own, foreign) = (issue("tls-own", "1,2"), issue("tls-foreign", "2"));
    let tls = |folder: &PathBuf, node: u8| {
        let file = |name: String| folder.join(name);
        let (certificate, key) =
            (file(format!("node-{node}.pem")), file(format!("node-{node}.key")));
        let authority = file("ca.pem".into());
        format!("[tls]\nauthority = {authority:?}\ncertificate = {certificate:?}\nkey = {key:?}\n")
    };
    let first = CONFIG
        .replace("127.9.2.", "127.9.5.")
        .replace("[links]\nplaintext = true\n", "[segment]\nkey = \"00112233445566ff\"\n");
    let first = format!("{first}\n{}{SECOND_AS_PEER}", tls(&own, 1));
    let start = |name: &str, text: &str| Program::start(RM, &file(name, text));
    let mut first = start("tls-first", &first);
    first.log_until("listening for SIP");

    let stranger = start("tls-stranger", &format!("{SECOND}{}", tls(&foreign, 2)));
    let refused = first.log_until("link refused").pop().unwrap();
    assert!(
        refused.contains("ERROR") && refused.contains("is from an unknown authority"),
        "{refused}"
    );
    assert!(refused.contains("peer=2"), "{refused}");
    drop(stranger);

    let _second = start("tls-second", &format!("{SECOND}{}", tls(&own, 2)));
    let up = first.log_until("link up").pop().unwrap();
    assert!(up.contains("peer=2"), "{up}");
    // The figures are posted once a second.
    #[expect(clippy::disallowed_methods, reason = "a real process takes its time")]
    let mut texts = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        metrics("127.9.5.1:9131")
    });
    let links = |text: &String| figure(text, "driver_links_up").is_some_and(|up| up != "0");
    let text = texts.find(links).unwrap();
    assert!(text.contains("driver_link_faults_total{why=\"certificate_of_unknown_authority\"}"));
    let days =
        text.lines().filter(|line| line.starts_with("driver_certificate_days_left{")).count();
    assert_eq!(days, 2, "{text}");
}

#[test]
fn a_cluster_document_is_given_to_a_running_process_and_outlives_it() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("applied");
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let token = folder.join("token");
    std::fs::write(&token, "correct-horse-battery").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let http = format!("listen = \"127.9.6.1:9131\"\ntoken = {token:?}\n");
    let text = CONFIG.replace("127.9.2.", "127.9.6.");
    let text = text.replace("listen = \"127.9.6.1:9131\"\n", &http);
    let cluster = "[segment]\nid = 1\nsite = \"london\"\n";
    let config = file("applied", &format!("{text}\n[store]\npath = {folder:?}\n{cluster}"));
    let mut program = Program::start(RM, &config);
    program.log_until("listening for SIP");

    let give = |text: &str, more: &[&str]| {
        let document = file("document", text);
        let mut args = vec!["apply".into(), document, "--config".into(), config.clone()];
        args.extend(more.iter().map(PathBuf::from));
        let output = run(args);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let apply = |text: &str| give(text, &[]);
    let (applied, warning) = apply(DOCUMENT);
    assert!(applied && warning.contains("line 2: warning: segment 1 has one node"), "{warning}");
    assert!(apply(DOCUMENT).0, "the same again changes nothing");
    let (applied, why) = apply(&DOCUMENT.replace("london", "paris"));
    assert!(!applied && why.contains("answered 409: another document of version 7"), "{why}");
    let (applied, why) = apply(&DOCUMENT.replace("version = 7", "version = 6"));
    assert!(!applied && why.contains("version 7 is in force"), "{why}");
    let (applied, why) = apply(&DOCUMENT.replace("rm = 1", "rm = 3"));
    assert!(!applied && why.contains("line 5: `rm`"), "{why}");
    let stranger = DOCUMENT.replace("id = 1 }", "id = 2 }").replace("version = 7", "version = 8");
    let (applied, why) = apply(&stranger);
    assert!(!applied && why.contains("409: line 2: segment 1 has none of the nodes"), "{why}");
    let last = DOCUMENT.replace("version = 7", "version = 9223372036854775807");
    let (applied, why) = give(&last, &["--force"]);
    assert!(
        !applied && why.contains("line 1: `version` is 9223372036854775807; use 1 to"),
        "{why}"
    );
    let checked = run(vec!["check".into(), file("last-document", &last)]);
    let why = String::from_utf8(checked.stderr).unwrap();
    assert!(!checked.status.success() && why.contains("line 1: `version` is 922"), "{why}");
    let nameless = DOCUMENT.split_once('\n').unwrap().1;
    let checked = run(vec!["check".into(), file("nameless", nameless)]);
    let why = String::from_utf8(checked.stderr).unwrap();
    assert!(why.contains("`version` is missing") && !why.contains("[node]"), "{why}");
    let (applied, warning) = give(&stranger, &["--force"]);
    let told = "warning: node 1 has `segment = 1` and `rm = 1` here, which node 2 has";
    assert!(applied && warning.contains(told), "what the node says comes back: {warning}");

    assert!(program.drain().success());
    let mut program = Program::start(RM, &config);
    program.log_until("listening for SIP");
    #[expect(clippy::disallowed_methods, reason = "a real process takes its time")]
    let mut texts = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        page("127.9.6.1:9131".parse().unwrap(), "/api/v1/cluster").unwrap()
    });
    assert!(texts.any(|text| text.contains("\"document\":8")));
}

#[test]
fn a_process_that_drains_lets_its_partner_count_the_calls_of_the_segment() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let document = file("leaves-document", PAIR_DOCUMENT);
    let start = |node: u8, roles: &str, rest: &str| {
        let store = folder.join(format!("leaves-{node}"));
        // It may be there from the last time.
        let _ = std::fs::remove_dir_all(&store);
        let text = PAIR
            .replace("NODE", &node.to_string())
            .replace("OTHER", &(3 - node).to_string())
            .replace("ROLES", roles)
            .replace("THEIRS", if node == 1 { "\"gate\", " } else { "" })
            .replace("STORE", &format!("{store:?}"))
            .replace("DOCUMENT", &format!("{document:?}"));
        Program::start(RM, &file(&format!("leaves-{node}"), &format!("{text}{rest}")))
    };
    let gate = "[[listener]]\nlisten = \"127.9.8.2:5060\"\n";
    // Who is there first speaks.
    let mut first = start(1, "\"b2b\", \"controller\"", "");
    first.log_until("started");
    let _second = start(2, "\"gate\", \"b2b\", \"controller\"", gate);
    first.log_until("link up");
    let ask = |node: u8, path: &str| {
        let address = format!("127.9.8.{node}:9131").parse().unwrap();
        // Until it listens nobody answers.
        page(address, path).unwrap_or_default()
    };
    #[expect(clippy::disallowed_methods, reason = "a real process takes its time")]
    let speaks = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        ask(1, "/api/v1/tenants").contains("\"name\":\"all\"")
            && ask(2, "/api/v1/cluster").contains("\"speaker\":\"1/1\"")
    });
    assert!(speaks, "{}", ask(2, "/api/v1/cluster"));

    assert!(first.drain().success());

    // By its silence alone this would be known after three seconds.
    let cluster = ask(2, "/api/v1/cluster");
    assert!(cluster.contains("\"speaker\":\"1/2\""), "{cluster}");
    assert!(ask(2, "/api/v1/tenants").contains("\"name\":\"all\""));
}

/// Sends a request until a final answer comes, and acknowledges that of an INVITE.
fn ask(phone: &UdpSocket, method: &str, call_id: &str) -> String {
    let local = phone.local_addr().unwrap();
    let request = |method: &str, cseq: &str, to: &str| {
        format!(
            "{method} sip:1001@127.9.2.1 SIP/2.0\r\n\
             Via: SIP/2.0/UDP {local};branch=z9hG4bK{}\r\n\
             Max-Forwards: 70\r\n\
             From: <sip:1000@127.9.2.1>;tag=a\r\n\
             To: {to}\r\n\
             Call-ID: {call_id}\r\n\
             CSeq: 1 {cseq}\r\n\
             Contact: <sip:1000@{local}>\r\n\
             Content-Length: 0\r\n\r\n",
            call_id.replace(' ', "-"),
        )
    };
    let first = request(method, method, "<sip:1001@127.9.2.1>");
    phone.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    for _ in 0..20 {
        phone.send(first.as_bytes()).unwrap();
        let mut bytes = [0; 4096];
        while let Ok(len) = phone.recv(&mut bytes) {
            let answer = String::from_utf8(bytes[..len].to_vec()).unwrap();
            if answer.starts_with("SIP/2.0 1") || !answer.contains(&format!("Call-ID: {call_id}")) {
                continue;
            }
            if method == "INVITE" {
                let to = answer.lines().find_map(|line| line.strip_prefix("To: ")).unwrap();
                phone.send(request("ACK", "ACK", to).as_bytes()).unwrap();
            }
            return answer;
        }
    }
    panic!("no final answer to {method}");
}

fn metrics(address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    page(address, "/metrics").unwrap()
}

fn run(args: Vec<PathBuf>) -> Output {
    Command::new(RM).args(args).output().unwrap()
}

fn file(name: &str, text: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    file
}

const RM: &str = env!("CARGO_BIN_EXE_holdline-rm");

const CONFIG: &str = r#"
[node]
id = 1
address = "127.9.2.1"
roles = ["gate", "b2b", "controller"]
realtime = false

[links]
plaintext = true

[http]
listen = "127.9.2.1:9131"

[[listener]]
listen = "127.9.2.1:5060"

[[peer]]
id = 31
roles = ["mediagate"]
link = "127.9.2.3:7131"

[[route]]
prefix = ""
targets = ["127.9.2.9:5999"]
"#;

const DOCUMENT: &str = r#"version = 7
[[segment]]
id = 1
site = "london"
nodes = [{ rm = 1, id = 1 }]
[[tenant]]
name = "all"
"#;

/// A gate, and how the first node knows it.
const SECOND: &str = r#"
[node]
id = 2
address = "127.9.5.2"
roles = ["gate"]
realtime = false

[segment]
key = "00112233445566ff"

[links]
listen = "127.9.5.2:7102"

[[listener]]
listen = "127.9.5.2:5060"

[[peer]]
id = 1
roles = ["b2b", "controller"]

"#;

const SECOND_AS_PEER: &str = r#"
[[peer]]
id = 2
roles = ["gate"]
link = "127.9.5.2:7102"
"#;

/// One of two b2bs of a segment; the second has the gate.
const PAIR: &str = r#"
[node]
id = NODE
address = "127.9.8.NODE"
roles = [ROLES]
realtime = false

[segment]
id = 1
rm = NODE
site = "london"
key = "00112233445566ff"

[cluster]
document = DOCUMENT

[store]
path = STORE

[links]
listen = "127.9.8.NODE:7101"
plaintext = true

[http]
listen = "127.9.8.NODE:9131"

[[peer]]
id = OTHER
roles = [THEIRS"b2b", "controller"]
link = "127.9.8.OTHER:7101"
segment = 1
rm = OTHER

[[peer]]
id = 31
roles = ["mediagate"]
link = "127.9.8.31:7131"
"#;

const PAIR_DOCUMENT: &str = r#"version = 1
[[segment]]
id = 1
site = "london"
sip = ["127.9.8.2:5060"]
nodes = [{ rm = 1, id = 1 }, { rm = 2, id = 2 }]
[[tenant]]
name = "all"
calls = 10
"#;
