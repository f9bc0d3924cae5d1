//! SIP over TCP and TLS with a real process, on loopback.

mod line;
mod misuse;
mod secure;

use std::path::PathBuf;
use std::time::Duration;

use driver::Security;
use line::Line;
use mediagate::Mediagate;
use testkit::program::{Program, page};

#[test]
fn calls_over_tcp_and_udp_go_on_while_others_misuse_connections() {
    let site = Site::start("misuse", 11, "");
    let [mut alice, mut bob] = [1, 2].map(|last| Line::tcp(site.ip(20 + last), site.gate()));
    let (mut carol, mut dave) =
        (Line::udp(site.ip(23), site.gate()), Line::tcp(site.ip(24), site.gate()));
    for (phone, user) in [(&mut alice, "alice"), (&mut bob, "bob"), (&mut dave, "dave")] {
        phone.register(user);
    }
    let over_tcp = alice.call(&mut bob, "bob", 1);
    let mixed = carol.call(&mut dave, "dave", 2);

    let attacks = misuse::begin(&site.ip(66), &site.gate());
    let mut asked = 0;
    while !attacks.iter().all(std::thread::JoinHandle::is_finished) || asked < 20 {
        for (phone, other, call) in
            [(&mut alice, &mut bob, &over_tcp), (&mut carol, &mut dave, &mixed)]
        {
            asked += 1;
            // 2 s are for a machine with much other work; nobody misses an answer.
            assert!(phone.options(&call[0]) < Duration::from_secs(2));
            assert!(other.options(&call[1]) < Duration::from_secs(2));
        }
        pause(100);
    }
    attacks.into_iter().for_each(|attack| attack.join().unwrap());

    bob.hang_up(&mut alice, &over_tcp[1]);
    carol.hang_up(&mut dave, &mixed[0]);
    site.figures(&[
        ("driver_stream_ends_total{why=\"slow\"}", 2),
        ("driver_stream_ends_total{why=\"head_too_long\"}", 1),
        ("driver_stream_ends_total{why=\"body_too_long\"}", 1),
        ("driver_stream_ends_total{why=\"no_sip\"}", 1),
        ("driver_stream_ends_total{why=\"displaced\"}", 10_000 - 2 * 256),
        ("rm_calls_answered_total", 2),
    ]);
    assert!(site.program.drain().success());
}

#[test]
fn a_phone_whose_connection_is_lost_gets_the_bye_over_another_or_never() {
    let site = Site::start("lost", 12, "");
    let mut alice = Line::tcp(site.ip(21), site.gate());
    alice.register("alice");
    for (user, seen_at) in [("bob", None), ("carol", Some("192.168.1.7"))] {
        let mut callee = Line::tcp(site.ip(22), site.gate());
        if let Some(inside) = seen_at {
            callee.pretend(inside);
        }
        callee.register(user);
        let call = alice.call(&mut callee, user, 1);
        callee.lose();
        let reached = seen_at.is_none();
        if reached {
            alice.hang_up(&mut callee, &call[0]);
        } else {
            // Behind a NAT nobody finds it; the caller's side of the call ends all the same.
            alice.bye(&call[0]);
            let status = alice.invite(user, 2);
            assert_eq!(status, 480, "who cannot be reached is not waited for");
        }
    }
    site.figures(&[("rm_calls_answered_total", 2), ("rm_gate_unsent_total", 2)]);
}

#[test]
fn a_trunk_over_tcp_is_called_over_one_connection_and_the_next_one_if_it_is_not_there() {
    let routes = "[[route]]\ntargets = [\"127.9.13.30:5099;transport=tcp\", \
                  \"127.9.13.31:5060;transport=tcp\"]\n";
    let site = Site::start("trunk", 13, routes);
    let mut trunk = Line::tcp(site.ip(31), site.gate());
    let mut alice = Line::udp(site.ip(21), site.gate());
    for call in 1..=3 {
        let dialogs = alice.call(&mut trunk, "outside", call);
        trunk.hang_up(&mut alice, &dialogs[1]);
    }
    assert_eq!(trunk.accepted(), 1);
    site.figures(&[("rm_calls_answered_total", 3)]);
}

#[test]
fn a_long_invite_reaches_a_trunk_by_tcp_or_by_datagram_if_that_takes_no_connection() {
    let routes = "[[route]]\nprefix = \"1\"\ntargets = [\"127.9.14.31:5060\"]\n\
                  [[route]]\nprefix = \"2\"\ntargets = [\"127.9.14.32:5060\"]\n";
    let site = Site::start("long", 14, routes);
    let mut alice = Line::udp(site.ip(21), site.gate());
    alice.talk_at_length();
    let both = [Line::udp(site.ip(31), site.gate()), Line::tcp(site.ip(32), site.gate())];
    for (mut trunk, user) in both.into_iter().zip(["100", "200"]) {
        for call in 1..=2 {
            let dialogs = alice.call(&mut trunk, user, call);
            alice.hang_up(&mut trunk, &dialogs[0]);
        }
    }
    // Of the first trunk that is asked once.
    site.figures(&[("rm_calls_answered_total", 4), ("rm_gate_unsent_total", 1)]);
}

#[test]
fn a_user_with_a_phone_on_udp_and_one_on_tcp_is_rung_at_both() {
    let site = Site::start("both", 15, "");
    let mut alice = Line::udp(site.ip(21), site.gate());
    let (mut desk, mut cell) =
        (Line::udp(site.ip(22), site.gate()), Line::tcp(site.ip(23), site.gate()));
    desk.register("bob");
    cell.register("bob");
    let call = alice.call(&mut desk, "bob", 1);
    // Too late: somebody has picked up the other one.
    cell.accept();
    cell.expect("ACK ");
    let bye = cell.expect("BYE ");
    cell.answer(&bye, "", "");
    alice.hang_up(&mut desk, &call[0]);
    site.figures(&[("rm_calls_answered_total", 1)]);
}

/// A process with every role, and a mediagate.
struct Site {
    number: u8,
    program: Program,
}

impl Site {
    /// Starts them at 127.9.`number`.1 and 127.9.`number`.3.
    fn start(name: &str, number: u8, routes: &str) -> Self {
        Self::start_with(name, number, routes, 2)
    }

    /// The same with so many seconds for a message and for a handshake.
    fn start_with(name: &str, number: u8, routes: &str, message_time: u64) -> Self {
        let ip = format!("127.9.{number}.3").parse().unwrap();
        let mut media = mediagate::Config::new(driver::NodeId(31), ip, 7131, 7231);
        media.security = Security::Plaintext;
        media.realtime = false;
        // It ends with the process of the test.
        std::thread::spawn(move || {
            driver::run(&media.run(), |start| Mediagate::new(&media, start)).unwrap();
        });
        let text = CONFIG.replace("127.9.10.", &format!("127.9.{number}."));
        let text = text.replace("message_time = 2", &format!("message_time = {message_time}"));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = folder.join(format!("streams-{name}.toml"));
        std::fs::write(&file, format!("{text}{routes}")).unwrap();
        let mut program = Program::start(env!("CARGO_BIN_EXE_holdline-rm"), &file);
        program.log_until("listening for SIP");
        program.log_until("transport=\"TCP\"");
        let site = Self { number, program };
        site.figures(&[("rm_mediagate_ports{gateway=\"31\"}", 1), ("rm_slots", 256)]);
        site
    }

    fn ip(&self, last: u8) -> String {
        format!("127.9.{}.{last}", self.number)
    }

    fn gate(&self) -> String {
        format!("{}:5060", self.ip(1))
    }

    /// Waits until each figure is at least so high.
    fn figures(&self, least: &[(&str, u64)]) {
        let high = |text: &str, (name, least): &(&str, u64)| {
            value(text, name).is_some_and(|value| *least as f64 <= value)
        };
        self.until(&format!("at least {least:?}"), |text| least.iter().all(|one| high(text, one)));
    }

    /// Waits until a figure is at most so high.
    fn at_most(&self, name: &str, most: u64) {
        self.until(&format!("{name} at most {most}"), |text| {
            value(text, name).is_some_and(|value| value <= most as f64)
        });
    }

    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let address = format!("{}:9131", self.ip(1)).parse().unwrap();
        let mut text = String::new();
        for _ in 0..200 {
            text = page(address, "/metrics").unwrap();
            if is_so(&text) {
                return;
            }
            pause(50);
        }
        panic!("never {what}\n{text}");
    }
}

fn value(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "a real process takes its time")]
fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

const CONFIG: &str = r#"
[node]
id = 1
address = "127.9.10.1"
roles = ["gate", "b2b", "controller"]
realtime = false

[links]
plaintext = true

[http]
listen = "127.9.10.1:9131"

[[listener]]
listen = "127.9.10.1:5060"

[[listener]]
listen = "127.9.10.1:5060"
transport = "tcp"

[streams]
message_time = 2

[[peer]]
id = 31
roles = ["mediagate"]
link = "127.9.10.3:7131"

"#;
