use super::*;

const WHOLE: &str = r#"
[node]
id = 31
host = "server3"
address = "127.0.0.3"
realtime = false
[links]
listen = "127.0.0.3:7131"
plaintext = true
[http]
listen = "127.0.0.3:9131"
[log]
level = "debug"
[beat]
listen = "127.0.0.3:7231"
trusted = ["192.0.2.0/24"]
[media]
listen = "127.0.0.4"
advertise = "203.0.113.9"
ports = "20000-24095"
workers = 2
standby = true
silence_max = 90
"#;

const SHORT: &str = r#"
[node]
id = 31
address = "127.0.0.3"
[links]
listen = "127.0.0.3:7131"
plaintext = true
[beat]
listen = "127.0.0.3:7231"
"#;

#[test]
fn a_whole_file_is_read() {
    let config = Config::parse(WHOLE).unwrap();

    assert_eq!((config.node, config.host.as_str()), (NodeId(31), "server3"));
    assert_eq!((config.realtime, config.standby, config.workers), (false, true, 2));
    assert_eq!(config.links, Some("127.0.0.3:7131".parse().unwrap()));
    assert_eq!(config.http, Some("127.0.0.3:9131".parse().unwrap()));
    assert_eq!(config.log.filter, "debug");
    assert_eq!(config.beat, "127.0.0.3:7231".parse().unwrap());
    assert_eq!(config.hearers, ["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(config.listen, IpAddr::from([127, 0, 0, 4]));
    assert_eq!(config.advertise, IpAddr::from([203, 0, 113, 9]));
    assert_eq!(config.ports, 20_000..=24_095);
    assert_eq!(config.silence_max, Duration::from_secs(90));
}

#[test]
fn a_file_may_leave_out_what_has_a_sound_value() {
    let config = Config::parse(SHORT).unwrap();

    assert_eq!((config.host.as_str(), config.realtime, config.standby), ("31", true, false));
    assert_eq!(config.listen, IpAddr::from([127, 0, 0, 3]));
    assert_eq!(config.advertise, config.listen);
    assert_eq!((config.ports.clone(), config.workers), (10_000..=32_767, 1));
    assert_eq!((config.http, config.silence_max), (None, Duration::from_secs(60)));
}

#[test]
fn everything_that_is_wrong_is_said_at_once_with_its_line() {
    let text = r#"
[node]
id = 0
host = "server3"
[links]
listen = "127.0.0.3:7131"
[http]
listen = "127.0.0.3:7131"
[beat]
listen = "127.0.0.3:20001"
[media]
listen = "127.0.0.3"
advertise = "0.0.0.0"
ports = "20000-20100"
wrokers = 2
"#;
    let faults = Config::parse(text).unwrap_err().to_string();

    let lines: Vec<&str> = faults.lines().map(|line| line.split(':').next().unwrap()).collect();
    let expected = ["line 3", "line 6", "line 8", "line 10", "line 13", "line 14", "line 15"];
    assert_eq!(lines, expected, "{faults}");
}

#[test]
fn an_address_that_is_not_of_this_host_is_refused() {
    for address in ["192.0.2.1", "0.0.0.0", "224.0.0.1"] {
        let text = WHOLE.replace("127.0.0.4", address);
        let faults = Config::parse(&text).unwrap_err().to_string();
        assert!(faults.starts_with("line 18: `listen` in [media]"), "{faults}");
    }
}

#[test]
fn places_that_nobody_can_reach_are_refused() {
    for (from, to, line) in [
        ("127.0.0.3:7131", "127.0.0.3:0", "line 8: `listen` in [links]"),
        ("127.0.0.3:7231", "127.0.0.3:0", "line 15: `listen` in [beat]"),
        ("203.0.113.9", "224.0.0.1", "line 19: `advertise` in [media]"),
    ] {
        let faults = Config::parse(&WHOLE.replace(from, to)).unwrap_err().to_string();
        assert!(faults.starts_with(line), "{faults}");
    }
}

#[test]
fn links_need_certificates_or_loopback() {
    let without = SHORT.replace("plaintext = true\n", "");
    let faults = Config::parse(&without).unwrap_err().to_string();
    assert!(faults.starts_with("line 6: `listen` in [links] needs TLS"), "{faults}");

    let tls =
        "[tls]\nauthority = \"no/ca.pem\"\ncertificate = \"no/node.pem\"\nkey = \"no/node.key\"\n";
    let faults = Config::parse(&format!("{without}{tls}")).unwrap_err().to_string();
    let lines: Vec<&str> =
        faults.lines().map(|line| line.split(" is of").next().unwrap()).collect();
    let expected = [
        "line 10: `authority` in [tls]",
        "line 11: `certificate` in [tls]",
        "line 12: `key` in [tls]",
    ];
    assert_eq!(lines, expected, "{faults}");
}

#[test]
fn beats_and_media_may_not_share_a_port() {
    let text = SHORT.replace("127.0.0.3:7231", "127.0.0.3:10001");
    let faults = Config::parse(&text).unwrap_err().to_string();
    assert!(faults.contains("lies among the media ports 10000-32767"), "{faults}");
}
