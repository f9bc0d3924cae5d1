//! Links with TLS, and whoever is refused.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;
use crate::run::unix_ms;
use crate::tls::tests::{DAY_MS, Folder};
use crate::tls::{Tls, TlsFiles};

/// Two ends, of which the second dials the first.
struct Pair {
    ends: [End; 2],
}

impl Pair {
    fn new(listens: Tls, dials: Tls) -> Self {
        let first = End::with(1, Security::Tls(listens));
        let mut second = End::with(2, Security::Tls(dials));
        second.dial(1, first.links.listens_on().unwrap());
        Self { ends: [first, second] }
    }

    /// Lets both go on, at a standing time, until each has something to tell.
    fn next(&mut self) -> [Input; 2] {
        let mut told = [None, None];
        let until = clock() + Duration::from_secs(20);
        while told.iter().any(Option::is_none) {
            for (end, told) in self.ends.iter_mut().zip(&mut told) {
                if told.is_none() {
                    *told = end.links.poll_event();
                }
                end.turn();
            }
            assert!(clock() < until, "nothing happens: {told:?}");
        }
        told.map(Option::unwrap)
    }

    /// Lets both go on until each has found the other faulty, and returns for what.
    fn refusals(&mut self) -> [String; 2] {
        let until = clock() + Duration::from_secs(20);
        loop {
            for end in &mut self.ends {
                end.turn();
                assert_eq!(end.links.poll_event(), None, "there must be no link");
            }
            let faults = self.ends.each_ref().map(|end| why(&end.links));
            if faults.iter().all(Option::is_some) {
                return faults.map(Option::unwrap);
            }
            assert!(clock() < until, "{faults:?}");
        }
    }
}

/// The first fault in the metrics.
fn why(links: &Links) -> Option<String> {
    let mut metrics = Metrics::default();
    links.metrics(unix_ms(), &mut metrics);
    let text = metrics.text();
    let line =
        text.lines().find_map(|line| line.strip_prefix("driver_link_faults_total{why=\""))?;
    Some(line.split('"').next()?.to_owned())
}

#[test]
fn two_nodes_with_certificates_link_up_and_frames_of_any_length_pass() {
    let folder = Folder::new("link-up");
    let mut pair = Pair::new(folder.tls(1), folder.tls(2));
    assert_eq!(pair.next(), [up(2, 77), up(1, 77)]);

    for len in [0, 1, 16_384, 70_000, PAYLOAD_MAX] {
        let payload = vec![7; len];
        for (end, peer) in pair.ends.iter_mut().zip([2, 1]) {
            end.links.send(end.now, NodeId(peer), Class::Calls, 0x101, &payload);
        }
        for input in pair.next() {
            let Input::Frame { payload, .. } = input else { panic!("no frame but {input:?}") };
            assert_eq!(payload, vec![7; len]);
        }
    }
    while !pair.ends.iter().all(|end| end.links.is_flushed()) {
        pair.ends.iter_mut().for_each(End::turn);
    }
    assert_eq!(pair.ends.each_ref().map(|end| end.links.faults.total()), [0, 0]);
}

#[test]
fn whoever_shows_a_wrong_certificate_is_refused_by_name_whichever_end_it_is() {
    let (folder, other, now) = (Folder::new("wrong"), Folder::new("other"), unix_ms());
    let load = |folder: &Folder, node, shown: u16, issued_at| {
        let files = folder.issue(shown, issued_at);
        let tls = Tls::load(&files, NodeId(shown), issued_at).unwrap();
        for path in [&files.certificate, &files.key] {
            std::fs::remove_file(path).unwrap();
        }
        (node, tls)
    };
    // The authority is as old as the oldest that it issues.
    folder.issue(9, now - 500 * DAY_MS);
    other.issue(9, now);
    type Make<'a> = &'a dyn Fn(u16) -> (u16, Tls);
    let wrong: [(Make<'_>, &str); 4] = [
        (&|node| load(&folder, node, node, now - 400 * DAY_MS), "certificate_expired"),
        (&|node| load(&folder, node, node, now + 2 * DAY_MS), "certificate_not_yet_valid"),
        (&|node| load(&folder, node, 30 + node, now), "certificate_of_another_node"),
        (&|node| load(&other, node, node, now), "certificate_of_unknown_authority"),
    ];
    for (make, expected) in wrong {
        // The one that is dialled.
        let mut pair = Pair::new(make(1).1, load(&folder, 2, 2, now).1);
        let [listening, dialling] = pair.refusals();
        assert_eq!((listening.as_str(), dialling.as_str()), ("refused_by_peer", expected));

        // The one that dials. One of another authority is the first to refuse.
        let mut pair = Pair::new(load(&folder, 1, 1, now).1, make(2).1);
        let first = usize::from(expected == "certificate_of_unknown_authority");
        let until = clock() + Duration::from_secs(20);
        while pair.ends[first].links.faults.total() == 0 {
            pair.ends.iter_mut().for_each(End::turn);
            assert!(clock() < until);
        }
        assert_eq!(why(&pair.ends[first].links).as_deref(), Some(expected));
        assert!(pair.ends.iter_mut().all(|end| end.links.poll_event().is_none()));
    }
}

#[test]
fn whoever_speaks_without_tls_where_it_is_expected_is_refused_by_name() {
    let folder = Folder::new("plain");
    let mut end = End::with(1, Security::Tls(folder.tls(1)));
    let mut peer = Peer::dial(&end);
    peer.say(HELLO_V1, &hello(2, 5));
    let until = clock() + Duration::from_secs(20);
    while end.links.faults.total() == 0 {
        end.turn();
        assert!(clock() < until);
    }
    assert_eq!(why(&end.links).as_deref(), Some("plaintext"));
    assert_eq!(end.links.poll_event(), None);
}

#[test]
fn whoever_speaks_tls_where_none_is_expected_is_refused_by_name() {
    let folder = Folder::new("reverse");
    let mut plain = End::new(1);
    let mut secure = End::with(2, Security::Tls(folder.tls(2)));
    secure.dial(1, plain.links.listens_on().unwrap());
    let until = clock() + Duration::from_secs(20);
    while plain.links.faults.total() == 0 || secure.links.faults.total() == 0 {
        plain.turn();
        secure.turn();
        assert!(clock() < until);
    }
    assert_eq!(why(&plain.links).as_deref(), Some("speaks_tls"));
    let told = why(&secure.links).unwrap();
    assert!(told.starts_with("handshake_"), "{told}");

    // And the other way round: the listener's alert is no frame.
    let secure = End::with(1, Security::Tls(folder.tls(1)));
    let mut plain = End::new(2);
    plain.dial(1, secure.links.listens_on().unwrap());
    let mut ends = [plain, secure];
    while ends[0].links.faults.total() == 0 {
        ends.iter_mut().for_each(End::turn);
        assert!(clock() < until);
    }
    assert_eq!(why(&ends[0].links).as_deref(), Some("speaks_tls"));
}

#[test]
fn a_certificate_lets_a_node_say_no_other_id_than_its_own() {
    let folder = Folder::new("other-id");
    let mut pair = Pair::new(folder.tls(1), folder.tls(3));
    let until = clock() + Duration::from_secs(20);
    while pair.ends[0].links.faults.total() == 0 {
        pair.ends.iter_mut().for_each(End::turn);
        assert!(clock() < until);
    }
    assert_eq!(why(&pair.ends[0].links).as_deref(), Some("certificate_of_another_node"));
    assert_eq!(pair.ends[0].links.poll_event(), None);
}

#[test]
fn a_handshake_of_one_byte_a_second_is_cut_off_and_others_do_not_notice() {
    let folder = Folder::new("slow");
    let mut pair = Pair::new(folder.tls(1), folder.tls(2));
    pair.next();
    let mut slow = [Peer::dial(&pair.ends[0]), Peer::dial(&pair.ends[0])];
    while pair.ends[0].links.strangers.len() < 2 {
        pair.ends[0].turn();
    }
    // The start of a client's hello.
    let bytes = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
    let seconds = u8::try_from(GREETING_MAX.as_secs()).unwrap();
    for second in 0..seconds {
        assert_eq!(pair.ends[0].links.faults.total(), 0, "at {second} s");
        slow[1].stream.write_all(&[bytes[usize::from(second)]]).unwrap();
        for (end, peer) in pair.ends.iter_mut().zip([2, 1]) {
            end.now += Duration::from_secs(1);
            end.links.send(end.now, NodeId(peer), Class::Calls, 0x101 + u16::from(second), b"x");
        }
        for input in pair.next() {
            assert!(
                matches!(input, Input::Frame { kind, .. } if kind == 0x101 + u16::from(second))
            );
        }
    }
    let until = clock() + Duration::from_secs(20);
    while 0 < pair.ends[0].links.handshakes.as_ref().unwrap().running() {
        pair.ends[0].turn();
        assert!(clock() < until, "a handshake that was given up comes back");
    }
    assert_eq!(pair.ends[0].links.faults.of("late"), 2);
    slow.iter_mut().for_each(Peer::hear_end);
    assert!(pair.ends.iter_mut().all(|end| end.links.poll_event().is_none()));
}

#[test]
fn a_thousand_half_open_connections_take_bounded_room_and_keep_nobody_out() {
    // Both ends of each lie in this process.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let folder = Folder::new("half-open");
    let mut first = End::with(1, Security::Tls(folder.tls(1)));
    let mut mute = Vec::new();
    for _ in 0..1000 {
        mute.push(Peer::dial(&first));
        first.turn();
        assert!(first.links.connections.len() <= STRANGERS_MAX);
        assert!(first.links.handshakes.as_ref().unwrap().running() <= 1024);
    }
    let mut second = End::with(2, Security::Tls(folder.tls(2)));
    second.dial(1, first.links.listens_on().unwrap());
    let mut pair = Pair { ends: [first, second] };
    assert_eq!(pair.next(), [up(2, 77), up(1, 77)]);
    let links = &pair.ends[0].links;
    assert!(links.connections.len() <= STRANGERS_MAX);
    assert!(1000 - STRANGERS_MAX as u64 <= links.faults.of("crowded"));
}

#[test]
fn new_links_take_the_certificates_that_were_reloaded_and_faulty_ones_change_nothing() {
    let (folder, other) = (Folder::new("reload"), Folder::new("reload-other"));
    let (own, peer) = (folder.issue(1, unix_ms()), folder.tls(2));
    let foreign = other.issue(1, unix_ms());
    let tls = Tls::load(&own, NodeId(1), unix_ms()).unwrap();
    let mut pair = Pair::new(tls, peer);
    pair.next();

    let copy = |from: &TlsFiles| {
        std::fs::copy(&from.certificate, &own.certificate).unwrap();
        std::fs::copy(&from.key, &own.key).unwrap();
    };
    let reload = |end: &mut End, done: &dyn Fn(&str) -> bool| {
        end.links.reload();
        let until = clock() + Duration::from_secs(20);
        let mut text = String::new();
        while !done(&text) {
            end.turn();
            let mut metrics = Metrics::default();
            end.links.metrics(unix_ms(), &mut metrics);
            text = metrics.text();
            assert!(clock() < until, "{text}");
        }
    };
    // The authority in the file has not issued it.
    copy(&foreign);
    reload(&mut pair.ends[0], &|text| text.contains("certificate_reloads_failed_total 1\n"));
    pair.ends[1].redial(1);
    let mut ends = [pair.next(), pair.next()];
    ends.sort_by_key(|told| matches!(told[0], Input::LinkUp { .. }));
    assert_eq!(ends, [[down(2), down(1)], [up(2, 77), up(1, 77)]]);

    // Another authority altogether: the one who knows only the first refuses.
    std::fs::copy(&foreign.authority, &own.authority).unwrap();
    let days = "driver_certificate_days_left{file=\"";
    reload(&mut pair.ends[0], &|text| text.contains(days));
    let until = clock() + Duration::from_millis(200);
    while clock() < until {
        pair.ends.iter_mut().for_each(End::turn);
        assert!(pair.ends.iter_mut().all(|end| end.links.poll_event().is_none()), "it stands");
    }
    pair.ends[1].redial(1);
    assert_eq!(pair.next(), [down(2), down(1)]);
    assert_eq!(pair.refusals()[1], "certificate_of_unknown_authority");
}

impl End {
    /// Ends the link to a peer, which is then dialled again.
    fn redial(&mut self, peer: u16) {
        let id = self.links.up[&(NodeId(peer), Class::Calls)];
        self.links.close(self.now, id, &Ending::Closed);
        self.now += BACKOFF_MAX;
    }
}
