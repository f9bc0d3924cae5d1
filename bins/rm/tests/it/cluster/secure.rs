//! Phones that speak SIP over TLS.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use driver::tls::{Domain, SipTls, authority};
use testkit::{Command, PhoneId, What};

use super::world::{B2B, GATE, Layout, OTHER_B2B, OTHER_GATE, World};

/// These speak over TLS, the others by datagrams.
const SECURE: u32 = 4;

#[test]
fn t15_a_leg_over_tls_has_tls_in_via_contact_and_flow_also_after_a_takeover() {
    for seed in 0..2 {
        let mut world = World::with_tls(seed, Layout::Pair, SECURE, tls(seed));
        world.start();
        let pairs = [(0, 1), (2, 5), (6, 3)].map(|(from, to)| (PhoneId(from), PhoneId(to)));
        let calls = pairs.map(|(from, to)| world.call(from, to));
        world.run(Duration::from_secs(3));
        world.scenario.assert_talking(&calls);
        let before = checked(&mut world);
        assert!([1, 5, 3].iter().all(|callee| 0 < before[&PhoneId(*callee)]), "{before:?}");

        // No phone can be reached but over the connection that it has made.
        for gate in [GATE, OTHER_GATE] {
            world.scenario.sim().refuse_streams(gate);
        }
        // Each of them has some of the slots.
        world.scenario.sim().crash(if seed == 0 { B2B } else { OTHER_B2B });
        world.run(Duration::from_secs(2));
        world.scenario.assert_talking(&calls);
        for phone in [1, 2, 6] {
            world.scenario.plan(Duration::ZERO, PhoneId(phone), Command::Hold);
            world.scenario.plan(Duration::from_secs(2), PhoneId(phone), Command::Resume);
        }
        world.run(Duration::from_secs(4));
        world.scenario.assert_talking(&calls);
        let after = checked(&mut world);
        // Both requests to each other side went to it, over what it has.
        for phone in [0, 5, 3].map(PhoneId) {
            assert!(before[&phone] + 2 <= after[&phone], "{before:?} {after:?}");
        }
        for phone in [0, 5, 3] {
            world.hang_up(PhoneId(phone));
        }
        world.run(Duration::from_secs(2));
        world.scenario.assert_idle();
        checked(&mut world);
        let broken = world.scenario.broken();
        world.scenario.assert_none(&broken);
    }
}

#[test]
fn a_phone_over_tls_whose_connection_broke_is_called_over_another() {
    let mut world = World::with_tls(7, Layout::Three, SECURE, tls(7));
    world.start();
    world.scenario.sim().break_streams(testkit::scenario::PHONES, GATE);
    let call = world.call(PhoneId(6), PhoneId(3));
    world.run(Duration::from_secs(3));
    world.scenario.assert_talking(&[call]);
    checked(&mut world);
    world.hang_up(PhoneId(6));
    world.run(Duration::from_secs(2));
    world.scenario.assert_idle();
}

/// Checks the Via and the Contact of all that phones have heard; returns how many requests each has.
fn checked(world: &mut World) -> BTreeMap<PhoneId, u64> {
    let mut requests: BTreeMap<PhoneId, u64> = BTreeMap::new();
    for entry in world.scenario.fleet().journal().entries() {
        let (What::Received { bytes, .. }, Some(phone)) = (&entry.what, entry.phone) else {
            continue;
        };
        let text = std::str::from_utf8(bytes).unwrap();
        let (is_secure, is_answer) = (phone.0 < SECURE, text.starts_with("SIP/2.0 "));
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let via = value("Via: ").unwrap();
        let (start, port) = if is_secure { ("TLS", ":5061") } else { ("UDP", ":5060") };
        assert!(via.starts_with(&format!("SIP/2.0/{start} ")), "{text}");
        assert!(is_answer || via.contains(port), "{text}");
        // An answer to REGISTER has the phone's own Contact.
        let contact = value("Contact: ").filter(|contact| contact.contains("<sip:10."));
        if let Some(contact) = contact {
            assert!(contact.contains(port), "{text}");
            assert_eq!(contact.contains(";transport=tls"), is_secure, "{text}");
        }
        assert!(is_answer || !text.starts_with("INVITE ") || contact.is_some(), "{text}");
        *requests.entry(phone).or_default() += u64::from(!is_answer);
    }
    requests
}

#[expect(clippy::disallowed_methods, reason = "certificates hold from now on")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// What nobody in the simulator looks at, but for its being there.
fn tls(seed: u64) -> SipTls {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("secure-{seed}"));
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    let domain: Domain = "sip.example.org".parse().unwrap();
    let now = now_ms();
    let files = authority::issue_sip(&folder, &[domain], 365, now).unwrap().remove(0);
    SipTls::load(files, BTreeMap::new(), now).unwrap()
}
