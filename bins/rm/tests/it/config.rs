//! What an operator is told about a configuration file.

use rm::Config;

const WHOLE: &str = r#"
[node]
id = 1
host = "server1"
address = "127.0.0.1"
roles = ["gate", "b2b", "controller"]
realtime = false
[links]
listen = "127.0.0.1:7101"
plaintext = true
[http]
listen = "127.0.0.1:9101"
[log]
level = "debug"
[segment]
key = "00112233445566ff"
[[peer]]
id = 31
roles = ["mediagate"]
link = "127.0.0.3:7131"
[[listener]]
transport = "udp"
listen = "127.0.0.1:5060"
advertise = "203.0.113.9:5060"
[gate]
trusted = ["10.0.0.0/8"]
[b2b]
ring_timeout = 60
[[route]]
prefix = "9"
targets = ["127.0.0.1:5080", "127.0.0.1:5082"]
"#;

#[test]
fn a_whole_file_is_read() {
    let config = Config::parse(WHOLE).unwrap();

    assert_eq!((config.node.0, config.host.as_str(), config.realtime), (1, "server1", false));
    assert!(config.roles.gate && config.roles.b2b && config.roles.controller);
    assert_eq!(config.slot_key, 0x0011_2233_4455_66ff);
    assert_eq!(config.listeners[0].advertise, "203.0.113.9:5060".parse().unwrap());
    assert_eq!(config.peers.len(), 1);
    assert_eq!(config.b2b.ring.as_secs(), 60);
    assert_eq!(
        (config.b2b.routes[0].prefix.as_slice(), config.b2b.routes[0].targets.len()),
        (&b"9"[..], 2)
    );
}

#[test]
fn ipv6_may_stand_wherever_an_address_does_and_one_link_has_one_family() {
    let text = WHOLE
        .replace("advertise = \"203.0.113.9:5060\"", "advertise = \"[2001:db8::9]:5060\"")
        .replace("127.0.0.1:", "[::1]:")
        .replace("\"127.0.0.1\"", "\"::1\"")
        .replace("127.0.0.3:", "[::1]:")
        .replace("10.0.0.0/8", "fd00::/8");
    let config = Config::parse(&text).unwrap();
    assert_eq!(config.listeners[0].advertise, "[2001:db8::9]:5060".parse().unwrap());
    assert_eq!(config.b2b.routes[0].targets[0].addr, "[::1]:5080".parse().unwrap());

    for (one, other, said) in [
        ("[::1]:7131", "127.0.0.1:7131", "cannot be dialled"),
        ("[2001:db8::9]:5060", "203.0.113.9:5060", "say in `advertise`"),
    ] {
        let faults = Config::parse(&text.replace(one, other)).unwrap_err().to_string();
        assert!(faults.contains(said), "{faults}");
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_line() {
    let text = r#"
[node]
id = 0
address = "192.0.2.1"
roles = ["gate", "bridge"]
rolls = 1
[links]
listen = "127.0.0.1:7101"
[segment]
key = "short"
[[peer]]
id = 7
roles = ["b2b"]
[[peer]]
id = 7
roles = ["mediagate"]
[[listener]]
transport = "pigeon"
listen = "127.0.0.1:5060"
[[listener]]
listen = "127.0.0.1:5060"
[[listener]]
listen = "0.0.0.0:5061"
[gate]
trusted = ["10.0.0.0/33"]
source_rate = 0
[b2b]
ring_timeout = "long"
[unknown]
"#;
    let faults = Config::parse(text).unwrap_err().to_string();
    let lines: Vec<u32> = faults.lines().filter_map(line).collect();
    let expected = [3, 4, 5, 6, 8, 10, 15, 18, 21, 22, 25, 26, 28, 29];
    assert_eq!(lines, expected, "{faults}");
}

#[test]
fn a_slip_in_a_role_or_a_level_is_all_that_is_said() {
    for (own, slip) in [("\"b2b\", \"c", "\"bb2\", \"c"), ("= \"debug\"", "= \"debgu\"")] {
        let faults = Config::parse(&WHOLE.replace(own, slip)).unwrap_err().to_string();
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
}

#[test]
fn a_role_without_a_peer_is_refused_with_the_remedy() {
    let alone =
        |roles: &str| format!("[node]\nid = 1\naddress = \"127.0.0.1\"\nroles = [{roles}]\n");
    for (roles, remedies) in [
        ("\"gate\"", &["write a [[listener]]", "roles = [\"b2b\"]", "the b2b dials this node"][..]),
        ("\"controller\"", &["roles = [\"b2b\"]", "the b2b dials this node"]),
        ("\"b2b\"", &["roles = [\"gate\"]", "roles = [\"mediagate\"]", "needs a controller"]),
    ] {
        let faults = Config::parse(&alone(roles)).unwrap_err().to_string();
        for remedy in remedies {
            assert!(faults.contains(remedy), "{roles}: {remedy} is not in\n{faults}");
        }
        assert_eq!(faults.lines().count(), remedies.len(), "{faults}");
    }
}

#[test]
fn a_segment_of_two_nodes_needs_a_key() {
    let second = "key = \"00112233445566ff\"\n[[peer]]\nid = 2\nroles = [\"gate\"]\n\
                  link = \"127.0.0.2:7102\"\n";
    let two = WHOLE.replace("key = \"00112233445566ff\"\n", second);
    assert!(Config::parse(&two).is_ok());
    let faults = Config::parse(&two.replace("key = ", "# key = ")).unwrap_err().to_string();
    assert!(faults.starts_with("line 15: `key` in [segment] is missing"), "{faults}");
    assert_eq!(faults.lines().count(), 1, "{faults}");
}

#[test]
fn two_b2bs_need_a_way_to_decide() {
    let second = |segment: &str, roles: &str| {
        let second = format!(
            "key = \"00112233445566ff\"\n{segment}[[peer]]\nid = 2\nroles = [{roles}]\n\
             link = \"127.0.0.2:7102\"\n"
        );
        let text = WHOLE.replace("key = \"00112233445566ff\"\n", &second);
        Config::parse(&text).map_err(|faults| faults.to_string())
    };
    assert!(second("", "\"b2b\"").is_ok());
    let faults = second("", "\"gate\", \"b2b\"").unwrap_err();
    assert!(faults.starts_with("line 15: `witness` in [segment] is missing"), "{faults}");
    let faults = second("witness = 2\n", "\"gate\", \"b2b\"").unwrap_err();
    assert!(faults.starts_with("line 17: `witness` in [segment] is 2, a gate"), "{faults}");
    let faults = second("witness = 31\n", "\"gate\", \"b2b\"").unwrap_err();
    assert!(faults.starts_with("line 17: `witness` in [segment] is 31: neither"), "{faults}");
    let third =
        "witness = 3\n[[peer]]\nid = 3\nroles = [\"controller\"]\nlink = \"127.0.0.4:7103\"\n";
    let config = second(third, "\"gate\", \"b2b\"").unwrap();
    assert_eq!(config.witness.map(|id| id.0), Some(3));
    let dials: Vec<_> =
        config.run().links.dial.iter().map(|one| (one.peer.0, one.classes.len())).collect();
    assert_eq!(dials, [(3, 1), (2, 3), (31, 1)]);
}

/// Who registers at the first would be known to the second and not to the third.
#[test]
fn a_third_b2b_is_refused_at_each_node_of_its_segment() {
    let peer =
        |id: u16| format!("[[peer]]\nid = {id}\nroles = [\"b2b\"]\nlink = \"127.0.0.{id}:7101\"\n");
    let gate = WHOLE
        .replace("\"gate\", \"b2b\", \"controller\"", "\"gate\"")
        .replace("[b2b]\nring_timeout = 60\n", "");
    let gate = gate.split("[[route]]").next().unwrap();
    for (text, second) in [(WHOLE, 1), (gate, 2)] {
        let two: String = (0..second).map(|n| peer(40 + n)).collect();
        assert!(Config::parse(&format!("{text}{two}")).is_ok());
        let faults = Config::parse(&format!("{text}{two}{}", peer(50))).unwrap_err().to_string();
        let at = u32::try_from(text.lines().count() + two.lines().count()).unwrap() + 3;
        assert_eq!(faults.lines().map(line).collect::<Vec<_>>(), [Some(at)], "{faults}");
        assert!(faults.contains("one or two b2bs"), "{faults}");
    }
}

#[test]
fn a_link_without_tls_is_refused_unless_it_is_asked_for_on_loopback() {
    let text = WHOLE.replace("plaintext = true", "plaintext = false");
    let faults = Config::parse(&text).unwrap_err().to_string();
    let lines: Vec<u32> = faults.lines().filter_map(line).collect();
    assert_eq!(lines, [9, 20], "{faults}");
    let text = WHOLE.replace("127.0.0.3:7131", "192.0.2.3:7131");
    let faults = Config::parse(&text).unwrap_err().to_string();
    assert!(faults.starts_with("line 20: ") && faults.contains("loopback"), "{faults}");
}

#[test]
fn links_with_certificates_need_no_loopback_and_each_file_that_is_of_no_use_is_named() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("config-tls");
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    let nodes = [1, 3].map(driver::NodeId);
    driver::tls::authority::issue(&folder, &nodes, 365, now_ms()).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let tls = |authority: &str, certificate: &str, key: &str| {
        let [authority, certificate, key] = [authority, certificate, key].map(file);
        let table = format!(
            "[tls]\nauthority = {authority:?}\ncertificate = {certificate:?}\nkey = {key:?}\n"
        );
        WHOLE.replace("plaintext = true\n", &table).replace("127.0.0.3:7131", "192.0.2.3:7131")
    };
    let sound = tls("ca.pem", "node-1.pem", "node-1.key");
    Config::parse(&sound).unwrap();
    let both = sound.replace("[tls]", "plaintext = true\n[tls]");
    for (text, at, why) in [
        (both, 10, "is true although [tls] is there"),
        (tls("none.pem", "node-1.pem", "node-1.key"), 11, "cannot be read"),
        (
            tls("ca.pem", "node-3.pem", "node-3.key"),
            12,
            "names node-3.holdline, not node-1.holdline",
        ),
        (tls("ca.pem", "ca.key", "node-1.key"), 12, "holds no certificate"),
        (tls("ca.pem", "node-1.pem", "node-3.key"), 13, "is not the key of the certificate"),
        (sound.replace("key = \"/", "# key = \"/"), 10, "`key` in [tls] is missing"),
    ] {
        let faults = Config::parse(&text).unwrap_err().to_string();
        assert_eq!(faults.lines().filter_map(line).collect::<Vec<_>>(), [at], "{faults}");
        assert!(faults.contains(why), "{faults}");
    }
}

#[test]
fn a_listener_for_tls_needs_files_that_are_of_use_and_no_other_has_any() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("config-sip-tls");
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    let names = ["sip.example.com".parse().unwrap()];
    driver::tls::authority::issue_sip(&folder, &names, 365, now_ms()).unwrap();
    let file = |name: &str| folder.join(name).display().to_string();
    let tls = |key: &str, more: &str, target: &str| {
        let (certificate, key) = (file("sip-sip.example.com.pem"), file(key));
        format!(
            "{WHOLE}[[listener]]\nlisten = \"127.0.0.1:5061\"\ntransport = \"tls\"\n\
             certificate = {certificate:?}\nkey = {key:?}\n{more}\n\
             [[route]]\ntargets = [\"{target}\"]\n"
        )
    };
    let at = u32::try_from(WHOLE.lines().count()).unwrap() + 1;
    let authority = format!("authority = {:?}", file("ca.pem"));
    let domains = "domains = [{ at = \"192.0.2.1:5061\", name = \"sip.example.com\" }]";
    let (key, udp, far) =
        ("sip-sip.example.com.key", "192.0.2.1:5060", "192.0.2.1:5061;transport=tls");
    Config::parse(&tls(key, "", udp)).unwrap();
    Config::parse(&tls(key, &format!("{authority}\n{domains}"), far)).unwrap();
    let double = domains.replace(" }]", " }, { at = \"192.0.2.1:5061\", name = \"b\" }]");
    for (text, line_at, why) in [
        (tls("none.key", "", udp), at + 4, "cannot be read"),
        (tls("ca.key", "", udp), at + 4, "is not the key of the certificate"),
        (tls(key, "clients = \"none.pem\"", udp), at + 5, "cannot be read"),
        (tls(key, domains, udp), at + 5, "needs `authority`"),
        (tls(key, &format!("{authority}\n{double}"), far), at + 6, "a second time"),
        (tls(key, "", far), at + 6, "name in the [[listener]] the `authority`"),
        (tls(key, "", udp).replace("\"tls\"", "\"tcp\""), at + 3, "`transport = \"tls\"`"),
        (tls(key, "", udp).replace("key = ", "# key = "), at, "`key` in [listener] is missing"),
    ] {
        let faults = Config::parse(&text).unwrap_err().to_string();
        assert_eq!(faults.lines().find_map(line), Some(line_at), "{faults}");
        assert!(faults.contains(why), "{faults}");
    }
    let shared = tls(key, "", udp).replace("127.0.0.1:5061", "127.0.0.1:5062");
    let shared =
        format!("{shared}[[listener]]\nlisten = \"127.0.0.1:5062\"\ntransport = \"tcp\"\n");
    let faults = Config::parse(&shared).unwrap_err().to_string();
    assert!(faults.contains("where another listener has"), "{faults}");
}

#[test]
fn an_address_of_another_machine_is_refused() {
    for (line, own) in [(5, "address = \"127.0.0.1\""), (23, "listen = \"127.0.0.1:5060\"")] {
        let text = WHOLE.replace(own, &own.replace("127.0.0.1", "192.0.2.1"));
        let faults = Config::parse(&text).unwrap_err().to_string();
        assert!(faults.starts_with(&format!("line {line}: ")), "{faults}");
        assert!(faults.contains("of this host"), "{faults}");
        assert_eq!(faults.lines().count(), 1, "{faults}");
    }
}

#[test]
fn two_services_on_one_port_are_refused() {
    let text = WHOLE.replace("127.0.0.1:9101", "127.0.0.1:7101");
    let faults = Config::parse(&text).unwrap_err().to_string();
    assert_eq!(faults.lines().filter_map(line).collect::<Vec<_>>(), [12], "{faults}");
}

#[test]
fn a_syntax_error_stands_alone_with_its_line() {
    let faults = Config::parse("[node]\nid = \n").unwrap_err().to_string();
    assert!(faults.starts_with("line 2"), "{faults}");
}

/// The line that a fault names.
fn line(fault: &str) -> Option<u32> {
    fault.strip_prefix("line ")?.split(':').next()?.parse().ok()
}

const MEMBER: &str = r#"
[store]
path = "/tmp/never-made"
[[peer]]
id = 2
roles = ["b2b"]
link = "127.0.0.2:7101"
[[peer]]
id = 21
segment = 2
link = "127.0.0.21:7101"
"#;

#[test]
fn a_node_of_a_cluster_knows_its_partner_and_the_other_segments() {
    let text = WHOLE.replace("[segment]\n", "[segment]\nid = 7\nrm = 2\nsite = \"oslo\"\n");
    let config = Config::parse(&(text + MEMBER)).unwrap();

    let cluster = config.cluster.as_ref().unwrap();
    let name = |id: election::NodeId| (id.segment.0, id.rm);
    assert_eq!((name(cluster.id), cluster.site.as_str()), ((7, 2), "oslo"));
    assert_eq!(cluster.timing, election::Timing::default());
    let members: Vec<_> = config.peers.iter().map(|peer| peer.member.map(name)).collect();
    assert_eq!(members, [None, Some((7, 1)), Some((2, 1))]);
    let dial = config.run().links.dial;
    let other = dial.iter().find(|dial| dial.peer.0 == 21).unwrap();
    assert_eq!(other.classes, [driver::Class::Control]);
}

#[test]
fn what_makes_no_cluster_is_said() {
    let part = "[segment]\nid = 1\nsite = \"oslo\"\n";
    for (from, to, said) in [
        ("[segment]\n", "[segment]\nrm = 1\n", "write its segment as `id`"),
        ("[segment]\n", "[cluster]\ntimeout = 9\n[segment]\n", "write `id` in [segment]"),
        ("[segment]\n", part, "needs `path` in [store]"),
        ("id = 31\n", "id = 31\nsegment = 2\n", "write the `id` of this [segment]"),
    ] {
        let faults = Config::parse(&WHOLE.replace(from, to)).unwrap_err().to_string();
        assert!(faults.contains(said), "{said}: {faults}");
    }
    let whole = WHOLE.replace("[segment]\n", part) + MEMBER;
    for (from, to, said) in [
        ("segment = 2\n", "segment = 1\nrm = 2\nroles = [\"b2b\"]\n", "another node is already"),
        ("segment = 2\n", "segment = 2\nrm = 3\n", "1 to 2"),
        ("id = 21\n", "id = 2\n", "is taken"),
        ("[segment]\n", "[cluster]\nheartbeat = 9\n[segment]\n", "shorter than the silence"),
        ("[segment]\n", "[cluster]\ndocument = \"/no/such\"\n[segment]\n", "cannot be read"),
    ] {
        let faults = Config::parse(&whole.replace(from, to)).unwrap_err().to_string();
        assert!(faults.contains(said), "{said}: {faults}");
    }
}

#[test]
fn the_document_that_a_node_names_is_checked_with_its_file() {
    let path = std::env::temp_dir().join(format!("holdline-document-{}", std::process::id()));
    let document = "version = 1\n[[segment]]\nid = 1\nsite = \"rome\"\nsip = [\"203.0.113.9:5060\"]\n\
                    nodes = [{ rm = 1, id = 1 }, { rm = 2, id = 2 }]\n\
                    [[segment]]\nid = 2\nsite = \"oslo\"\nsip = [\"203.0.113.8:5060\"]\n\
                    nodes = [{ rm = 1, id = 21 }]\n\
                    [[tenant]]\nname = \"all\"\n";
    let named = format!(
        "[cluster]\ndocument = \"{}\"\n[segment]\nid = 1\nsite = \"oslo\"\n",
        path.display()
    );
    let text = WHOLE.replace("[segment]\n", &named) + MEMBER;

    std::fs::write(&path, document).unwrap();
    let faults = Config::parse(&text).unwrap_err().to_string();
    assert!(faults.contains("\"oslo\"") && faults.contains("\"rome\""), "{faults}");
    std::fs::write(&path, document.replace("rome", "oslo")).unwrap();
    let config = Config::parse(&text).unwrap();
    assert_eq!(config.cluster.unwrap().document.unwrap().version, 1);
    std::fs::write(&path, "version = 0").unwrap();
    let faults = Config::parse(&text).unwrap_err().to_string();
    assert!(faults.contains("is wrong"), "{faults}");
    std::fs::remove_file(&path).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "certificates hold at real times")]
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}
