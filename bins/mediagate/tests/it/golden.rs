//! The bytes of each media frame.

use std::path::Path;

use media::{
    Block, CallId, Close, Digest, DigestDiffers, FailReason, Failed, Frame, Inherit, Latched,
    LatchedSource, Lease, Leased, LegSpec, Missing, Open, Return, Silent, Sync, Update, Welcome,
};

#[test]
fn the_welcome_has_its_golden_bytes() {
    check(&Welcome {
        boot: 1_800_000_000_123,
        host: "server3".into(),
        advertise: [192, 0, 2, 3].into(),
        legs_max: 9856,
        workers: 2,
        beat: "[2001:db8::3]:7231".parse().unwrap(),
        standby: true,
        draining: false,
        blocks: vec![BLOCK],
    });
}

#[test]
fn leases_have_their_golden_bytes() {
    check(&Lease { blocks: 8, standby: Some(12) });
    check(&Leased { boot: 1_800_000_000_123, blocks: vec![BLOCK, BLOCK] });
    check(&Inherit);
    check(&Return { boot: 1_800_000_000_123, block: 300 });
}

#[test]
fn calls_have_their_golden_bytes() {
    let (call, epoch) = (CallId(0x0102_0304_0506_0708), 70_000);
    check(&Open { call, epoch, legs: legs() });
    check(&Update { call, epoch, legs: legs() });
    check(&Close { call, epoch });
}

#[test]
fn digests_have_their_golden_bytes() {
    let held: Digest = [CallId(1), CallId(2)].into_iter().collect();
    check(&held);
    check(&DigestDiffers { held });
    check(&Sync { calls: vec![(CallId(1), 4), (CallId(2), 5)] });
    check(&Missing { calls: vec![CallId(1)] });
}

#[test]
fn events_have_their_golden_bytes() {
    let call = CallId(1);
    check(&Failed { call, epoch: 4, leg: 1, reason: FailReason::Exhausted });
    let source = LatchedSource { addr: "192.0.2.10:4000".parse().unwrap(), ssrc: 9, seq: 7 };
    check(&Latched { call, leg: 0, source, relocks: 2 });
    check(&Silent { call, leg: 1 });
}

const BLOCK: Block = Block { index: 3, worker: 1, first_port: 10_384, rest_ms: 2000 };

fn legs() -> [LegSpec; 2] {
    let caller = LegSpec {
        port: 10_384,
        remote: Some("192.0.2.10:4000".parse().unwrap()),
        remote_rtcp: Some("192.0.2.10:4005".parse().unwrap()),
        payload_types: vec![8, 101],
        held: false,
        nat: true,
        latched: Some(LatchedSource {
            addr: "198.51.100.7:61000".parse().unwrap(),
            ssrc: 0xdead_beef,
            seq: 65_000,
        }),
    };
    let callee = LegSpec {
        port: 10_386,
        remote: None,
        remote_rtcp: None,
        payload_types: Vec::new(),
        held: true,
        nat: false,
        latched: None,
    };
    [caller, callee]
}

/// One file for each kind, named by it.
fn check<F: Frame + PartialEq + std::fmt::Debug>(frame: &F) {
    let name = format!("{:04x}.txt", F::KIND);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/testdata");
    driver::golden::check(&folder.join(name), frame);
}
