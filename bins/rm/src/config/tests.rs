use std::time::Duration;

use super::*;

const WHOLE: &str = r#"
[node]
id = 1
address = "127.0.0.1"
roles = ["gate", "b2b", "controller"]
[links]
listen = "127.0.0.1:7101"
plaintext = true
[http]
listen = "127.0.0.1:9101"
[[listener]]
listen = "127.0.0.1:5060"
[[peer]]
id = 31
roles = ["mediagate"]
link = "127.0.0.1:7131"
[[route]]
prefix = "9"
targets = ["127.0.0.1:5080"]
"#;

/// Returns the only fault of the file in which `from` is replaced by `to`.
fn fault(from: &str, to: &str) -> String {
    assert!(WHOLE.contains(from), "{from}");
    let faults = Config::parse(&WHOLE.replacen(from, to, 1)).unwrap_err();
    assert_eq!(faults.list().len(), 1, "{faults}");
    faults.to_string().trim_end().to_owned()
}

#[test]
fn a_whole_file_is_read() {
    assert!(Config::parse(WHOLE).is_ok());
}

#[test]
fn addresses_that_can_carry_nothing_are_refused() {
    let one_host = "use the address and port of one host, such as \"192.0.2.1:5060\"";
    for target in ["127.0.0.1:0", "0.0.0.0:5080", "224.0.0.1:5080", "255.255.255.255:5080"] {
        let targets = format!("127.0.0.1:5081\", \"{target}");
        let text = fault("127.0.0.1:5080", &targets);
        let or = "or \"192.0.2.1:5060;transport=tcp\"";
        assert_eq!(text, format!("line 19: `targets` in [route] is \"{target}\"; {one_host} {or}"));
    }
    assert!(fault("127.0.0.1:7131", "127.0.0.1:0").ends_with(one_host));
    assert!(fault("127.0.0.1:9101", "127.0.0.1:0").contains("`listen` in [http]"));
    assert!(fault("address = \"127.0.0.1\"", "address = \"0.0.0.0\"").contains("`address`"));
    assert!(fault("address = \"127.0.0.1\"", "address = \"224.0.0.1\"").contains("`address`"));
}

#[test]
fn a_listener_for_tcp_stands_beside_one_for_udp_and_has_limits() {
    let listener = "listen = \"127.0.0.1:5060\"\n";
    assert!(fault("127.0.0.1:5080", "127.0.0.1:5080;transport=tcp").contains("has TCP"));
    assert!(fault("127.0.0.1:5080", "127.0.0.1:5080;transport=tls").contains("has TLS"));
    assert!(
        fault("127.0.0.1:5080", "127.0.0.1:5081\", \"127.0.0.1:5080;transport=ws").contains("use")
    );
    assert!(
        fault(listener, &format!("{listener}[streams]\nidle = 60\n"))
            .contains("limits connections")
    );

    let tcp = format!("{listener}[[listener]]\ntransport = \"tcp\"\n{listener}");
    let limits = "[streams]\nconnections = 20\nconnections_per_source = 7\nmessage_size = 2000\n\
                  message_time = 2.5\nidle = 60\nunsent = 70000\nconnect_time = 1\n";
    let text = WHOLE.replace(listener, &format!("{tcp}{limits}"));
    let text = text.replace("127.0.0.1:5080", "127.0.0.1:5080;transport=tcp");
    let config = Config::parse(&text).unwrap();
    let transports = [Transport::Udp, Transport::Tcp];
    assert_eq!(config.listeners.iter().map(|one| one.transport).collect::<Vec<_>>(), transports);
    assert_eq!(config.b2b.routes[0].targets[0].transport, Transport::Tcp);
    let expected = StreamLimits {
        connections_max: 20,
        per_source_max: 7,
        message_len_max: 2000,
        message_time_max: Duration::from_millis(2500),
        idle_max: Duration::from_secs(60),
        unsent_len_max: 70_000,
        connect_time_max: Duration::from_secs(1),
    };
    assert_eq!(config.streams, expected);
}

#[test]
fn two_sockets_at_one_place_are_refused() {
    let second =
        "[[listener]]\nlisten = \"0.0.0.0:5060\"\nadvertise = \"192.0.2.1:5060\"\n[[peer]]";
    assert!(fault("[[peer]]", second).contains("another listener has 127.0.0.1:5060"));
    assert!(fault("127.0.0.1:9101", "127.0.0.1:7101").contains("which [links] has"));
    assert!(fault("127.0.0.1:7131", "127.0.0.1:7101").contains("where another node listens"));
}

#[test]
fn what_can_never_be_reached_is_refused() {
    assert!(fault("127.0.0.1:7131", "[::1]:7131").contains("cannot be dialled"));
    assert!(fault("127.0.0.1:5080", "[::1]:5080").contains("no [[listener]]"));
    assert!(fault("127.0.0.1:5080", "127.0.0.1:5060").contains("a listener of this gate"));
    let second = "[[route]]\ntargets = [\"127.0.0.1:5081\"]\n[[route]]\nprefix = \"9\"";
    assert!(fault("[[route]]\nprefix = \"9\"", second).contains("is never taken"));
    let advertise = "listen = \"127.0.0.1:5060\"\nadvertise = \"[::1]:5060\"";
    assert!(fault("listen = \"127.0.0.1:5060\"", advertise).contains("`advertise`"));
}

#[test]
fn a_node_and_a_peer_have_a_role_at_least() {
    let own = fault("roles = [\"gate\", \"b2b\", \"controller\"]", "roles = []");
    let some = "one or more of \"gate\", \"b2b\", \"controller\"";
    assert_eq!(own, format!("line 5: `roles` in [node] is empty: {some}"));
    let more = "[[route]]\nprefix = \"8\"\ntargets = [\"127.0.0.1:5081\"]\n";
    let peer = fault(
        "[[route]]",
        &format!("[[peer]]\nid = 7\nroles = []\nlink = \"127.0.0.1:7107\"\n{more}[[route]]"),
    );
    assert_eq!(peer, format!("line 19: `roles` in [peer] is empty: {some}, \"mediagate\""));
}

#[test]
fn a_store_is_a_folder() {
    let file = std::env::current_exe().unwrap();
    for path in ["", &file.display().to_string(), &format!("{}/x", file.display())] {
        let fault = fault("[http]", &format!("[store]\npath = \"{path}\"\n[http]"));
        assert!(fault.starts_with("line 10: `path` in [store] is \""), "{fault}");
        assert!(fault.contains("use the path of a folder"), "{fault}");
    }
}

#[test]
fn what_is_in_the_way_in_a_store_is_told() {
    let name = format!("holdline-config-store-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(folder.join("records")).unwrap();
    let text = format!("[store]\npath = \"{}\"\n[http]", folder.display());
    let records = fault("[http]", &text);
    std::fs::remove_dir(folder.join("records")).unwrap();
    std::fs::write(folder.join("details"), "a line").unwrap();
    let details = fault("[http]", &text);
    std::fs::remove_file(folder.join("details")).unwrap();
    std::fs::write(folder.join("usage"), "a line").unwrap();
    let usage = fault("[http]", &text);
    std::fs::remove_file(folder.join("usage")).unwrap();
    std::fs::create_dir(folder.join("details")).unwrap();
    std::fs::create_dir(folder.join("usage")).unwrap();
    let sound = Config::parse(&WHOLE.replacen("[http]", &text, 1));
    std::fs::remove_dir_all(&folder).unwrap();

    let at = format!("line 10: `path` in [store] is a folder where {}/", folder.display());
    assert_eq!(records, format!("{at}records is not a file: move it away"));
    assert_eq!(details, format!("{at}details is not a folder: move it away"));
    assert_eq!(usage, format!("{at}usage is not a folder: move it away"));
    assert!(sound.is_ok());
}

#[test]
fn sessions_have_timers_of_half_an_hour_unless_the_file_says_otherwise() {
    let read = |text: &str| {
        let whole = WHOLE.replacen("[[route]]", &format!("[b2b]\n{text}\n[[route]]"), 1);
        let b2b = Config::parse(&whole).unwrap().b2b;
        (b2b.session_expires, b2b.min_se)
    };
    assert_eq!(read(""), (1800, 90));
    assert_eq!(read("session_expires = 0"), (0, 90));
    assert_eq!(read("session_expires = 600\nmin_se = 600"), (600, 600));

    let refused = |text: &str| fault("[[route]]", &format!("[b2b]\n{text}\n[[route]]"));
    assert!(refused("min_se = 89").contains("`min_se`"));
    assert!(refused("session_expires = 80").contains("less than `min_se`"));
    let more = refused("min_se = 1801");
    assert!(more.starts_with("line 18: `min_se` in [b2b] is 1801, more than 1800"), "{more}");
    assert!(!more.contains("`session_expires` in"), "it is not in the file: {more}");
}
