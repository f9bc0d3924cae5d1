//! The bytes of each frame kind of `rm`.

use std::path::{Path, PathBuf};

use b2bua::frame::{SipIn, SipOut};
use bytes::Bytes;
use failover::controller::{Ask, Gateways, Here, Introduce, Published, Verdict};
use failover::detector::{self, Dead};
use failover::moves::Move;
use failover::record::{
    Base, Branch, ClientInvite, ClientState, Direction, Fork, Leg, LegState, Phase, Purpose,
    SdpIdentity, SentSdp, ServerInvite, ServerState, Session, Side, Target, Terms, Value,
};
use failover::replica::{Ack, Batch, Item, Key, Refusal, Refused, StreamId, Sum};
use failover::slots::Reign;
use failover::voter::{Answer, Bid, Gone, Vote};
use failover::{
    Admission, Binding, Boot, CallId, CallRecord, Cause, Charge, Detail, EndedLeg, Epoch, Flow,
    Latched, NodeId, Place, Slot, SlotMap, SlotSet, Tombstone, Transport, UnixMs,
};
use rm::frames::{Frame, GateHello, WallClock};
use sip_core::dialog::Dialog;

const BOOT: u64 = 1_800_000_000_123;

#[test]
fn messages_have_their_golden_bytes() {
    let bytes = Bytes::from_static(b"OPTIONS sip:1000@example.org SIP/2.0\r\n\r\n");
    let (slot, epoch) = (Slot(0x5e), Epoch(1_800_000_000));

    let message = SipIn { slot, hops: 1, flow: flow(), bytes: bytes.clone() };
    driver::golden::check_bytes(&file(SipIn::KIND), &message.encode());
    assert_eq!(SipIn::decode(message.encode()), Ok(message));

    let remote = "[2001:db8::10]:5061".parse().unwrap();
    let flow = Flow { remote, ..flow() };
    let message = SipOut { slot, epoch, flow, bytes };
    driver::golden::check_bytes(&file(SipOut::KIND), &message.encode());
    assert_eq!(SipOut::decode(message.encode()), Ok(message));
}

#[test]
fn what_gate_and_b2b_say_first_has_its_golden_bytes() {
    let listeners = vec![
        (Transport::Udp, "192.0.2.1:5060".parse().unwrap()),
        (Transport::Udp, "[2001:db8::1]:5060".parse().unwrap()),
    ];
    check(&GateHello { boot: BOOT, listeners });
    let mut slots = SlotMap::empty();
    let reign = Reign { owner: NodeId(12), standby: None, epoch: Epoch(7) };
    (0..128).for_each(|slot| slots.set(Slot(slot), reign));
    slots.set(Slot(255), Reign { standby: Some(NodeId(12)), owner: NodeId(14), epoch: Epoch(9) });
    check(&slots);
}

#[test]
fn what_is_said_about_slots_has_its_golden_bytes() {
    let slots: SlotSet = (0..128).map(Slot).collect();
    check(&Bid {
        node: NodeId(12),
        boot: Boot(BOOT),
        round: 3,
        trial: true,
        slots,
        epoch: Epoch(1_800_000_000),
        known: Epoch(7),
        owner: Some(NodeId(15)),
        gone: Gone::Dead(Boot(BOOT - 1)),
    });
    check(&Vote { round: 3, answer: Answer::Stale { promised: Epoch(8) } });
}

#[test]
fn what_owner_and_standby_say_has_its_golden_bytes() {
    let stream = StreamId { boot: Boot(BOOT), number: 2 };
    let (slot, sum) = (Slot(0x5e), Sum { count: 1, digest: 0x0123_4567_89ab_cdef });
    let key = Key::Call(CallId(0x1122_3344_5566_7788));
    let value = Some(Bytes::from_static(b"\x02\x10record"));
    let refused = Refused { slot, item: 4, refusal: Refusal::OlderEpoch(Epoch(9)) };
    fn items<V>(slot: Slot, sum: Sum, key: Key, value: Option<V>) -> Vec<Item<V>> {
        let record = Item::Record { slot, key, value };
        let (begin, end) = (Item::Begin { slot, epoch: Epoch(7) }, Item::End { slot, sum });
        vec![begin, record, end, Item::HandOver { slots: vec![slot] }]
    }
    let batch = Batch { stream, first: 1, items: items(slot, sum, key.clone(), value.clone()) };
    check(&batch);
    // Who receives it reads the values where they lie.
    let there = Batch { stream, first: 1, items: items(slot, sum, key, value.as_deref()) };
    assert_eq!(driver::codec::decode_borrowed(&driver::codec::encode(&batch)), Ok(there));
    let (held, refused) = (vec![(slot, sum)], vec![refused]);
    check(&Ack { stream, taken: 4, broken: false, held, refused });
    check(&WallClock { boot: Boot(BOOT), unix_ms: UnixMs(BOOT + 5000) });
}

/// A field that is added and left behind would be seen: what is printed has every time there is.
#[test]
fn every_time_of_a_record_moves_with_the_clock_of_who_wrote_it() {
    let mut record = call();
    record.phase = Phase::Ended { until: UnixMs(BOOT + 70_000) };
    record.legs[0].moving.wait_until = Some(UnixMs(BOOT + 11_000));
    for leg in &mut record.legs {
        leg.session.start(UnixMs(BOOT), Terms { interval: 1800, refresher: Side::Us });
    }
    let (until, again) = (UnixMs(BOOT + 50_000), record.legs[1].incoming[0].clone());
    let refused = ServerState::Refused { status: 491, retry_after: None, until };
    for state in [refused, ServerState::Accepted { until }] {
        record.legs[1].incoming.push(ServerInvite { state, ..again.clone() });
    }
    let before = Value::Call(Box::new(record));
    let times = |value: &Value| {
        let text = format!("{value:?}");
        let numbers = text.split("UnixMs(").skip(1).filter_map(|rest| rest.split(')').next());
        numbers.map(|number| number.parse().unwrap()).collect::<Vec<i64>>()
    };
    let mut after = before.clone();
    after.shift(-3_600_000);

    let moved: Vec<i64> = times(&before).into_iter().map(|time| time - 3_600_000).collect();
    assert!(14 <= moved.len(), "{before:?}");
    assert_eq!(times(&after), moved);
    after.shift(3_600_000);
    assert_eq!(after, before);
}

/// The kind 0x0210, which standbys and stores keep; each form in a file of its own.
#[test]
fn what_is_kept_of_a_slot_has_its_golden_bytes() {
    let leg = |local_tag, peer| EndedLeg { local_tag, peer };
    let ended = Value::Ended(Tombstone {
        call: CallId(0x1122_3344_5566_7788),
        slot: Slot(0x5e),
        until: UnixMs(BOOT + 64_000),
        legs: [leg(0x0123_4567_89ab_cdef, 7), leg(0xfedc_ba98_7654_3210, 8)],
        detail: None,
    });
    driver::golden::check(&kept("ended"), &ended);
    let binding = Binding {
        uri: Bytes::from_static(b"sip:1000@192.0.2.10"),
        call_id: Bytes::from_static(b"a84b4c76e66710"),
        cseq: 1826,
        expires_at: UnixMs(BOOT + 3_600_000),
        flow: flow(),
        path: vec![Bytes::from_static(b"<sip:edge.example.org;lr>")],
        q: 1000,
    };
    driver::golden::check(&kept("bindings"), &Value::Bindings(vec![binding]));
    driver::golden::check(&kept("call"), &Value::Call(Box::new(call())));
}

/// The kind 0x0211: how a call was let in, and the call as 0x0210 has it.
#[test]
fn what_is_kept_of_a_call_that_counts_has_its_golden_bytes() {
    let plain = Value::Call(Box::new(call()));
    let admission = Admission {
        charge: Some(Charge {
            profile: Bytes::from_static(b"menu"),
            tenant: Bytes::from_static(b"acme"),
            outbound: true,
            level: 2,
            exempt: false,
        }),
        shared: Bytes::from_static(b"tried=1;profile=menu"),
    };
    driver::golden::check(&file(0x0211), &(admission.clone(), plain.clone()));

    let counted = plain.clone().with_admission(admission);
    let bytes = rm::frames::value_bytes(counted.as_ref());
    assert_eq!((&bytes[..2], rm::frames::value(&bytes)), (&[2, 0x11][..], Some(counted)));
    let bytes = rm::frames::value_bytes(plain.as_ref());
    assert_eq!((&bytes[..2], rm::frames::value(&bytes)), (&[2, 0x10][..], Some(plain)));
}

/// The kind 0x0212: how a call was let in, what is to be written down of it, and the rest as 0x0210 has it.
#[test]
fn what_is_kept_of_a_call_that_is_not_written_down_has_its_golden_bytes() {
    let leg = |local_tag, peer| EndedLeg { local_tag, peer };
    let (call, slot) = (CallId(0x1122_3344_5566_7788), Slot(0x5e));
    let legs = [leg(0x0123_4567_89ab_cdef, 7), leg(0xfedc_ba98_7654_3210, 8)];
    let until = UnixMs(BOOT + 64_000);
    let plain = Value::Ended(Tombstone { call, slot, until, legs, detail: None });
    let detail = Detail {
        slot,
        call,
        call_id: Bytes::from_static(b"a84b4c76e66710"),
        from: Bytes::from_static(b"<sip:1000@example.org>"),
        to: Bytes::from_static(b"sip:1001@example.org"),
        started_at: UnixMs(BOOT),
        answered_at: Some(UnixMs(BOOT + 2000)),
        ended_at: UnixMs(BOOT + 9000),
        cause: Cause::Refused(486),
        moves: 1,
        charge: None,
    };
    driver::golden::check(&file(0x0212), &(Admission::default(), detail.clone(), plain.clone()));

    let ended = plain.with_detail(detail);
    let bytes = rm::frames::value_bytes(ended.as_ref());
    assert_eq!((&bytes[..2], rm::frames::value(&bytes)), (&[2, 0x12][..], Some(ended)));
}

/// The kind 0x0213: beside the admission and what is to be written down, where else a callee is rung.
#[test]
fn what_is_kept_of_a_call_that_rings_at_several_places_has_its_golden_bytes() {
    let record = call();
    let branch = Branch {
        invite: record.legs[0].outgoing[0].clone(),
        target: Target {
            uri: Bytes::from_static(b"sip:1000@192.0.2.10"),
            routes: vec![Bytes::from_static(b"<sip:edge.example.org;lr>")],
            flow: flow(),
            registered: true,
        },
        contact: "192.0.2.1:5060".parse().unwrap(),
    };
    let fork = Fork { branches: vec![branch], refused: 486 };
    let plain = Value::Call(Box::new(record));
    let beside = (Admission::default(), None::<Detail>, fork.clone(), plain.clone());
    driver::golden::check(&file(0x0213), &beside);

    let forked = plain.with_fork(fork);
    let bytes = rm::frames::value_bytes(forked.as_ref());
    assert_eq!((&bytes[..2], rm::frames::value(&bytes)), (&[2, 0x13][..], Some(forked)));
}

/// The kind 0x0214: beside all of that, the session timers of both legs.
#[test]
fn what_is_kept_of_a_call_whose_sessions_have_timers_has_its_golden_bytes() {
    let mut caller = Session { min: 90, known: true, ..Session::default() };
    caller.start(UnixMs(BOOT), Terms { interval: 1800, refresher: Side::Peer });
    caller.pending = Some(Terms { interval: 600, refresher: Side::Us });
    let mut callee = Session { min: 3600, updates: true, raises: 1, ..Session::default() };
    callee.start(UnixMs(BOOT), Terms { interval: 3600, refresher: Side::Us });
    callee.refreshing = Some(9);
    let (plain, sessions) = (Value::Call(Box::new(call())), [caller, callee]);
    let beside = (Admission::default(), None::<Detail>, None::<Fork>, sessions, plain.clone());
    driver::golden::check(&file(0x0214), &beside);

    let bytes = rm::frames::value_bytes(plain.as_ref());
    assert_eq!(bytes[..2], [2, 0x10], "a call without timers is what it was");
    let timed = plain.with_sessions(sessions);
    let bytes = rm::frames::value_bytes(timed.as_ref());
    assert_eq!((&bytes[..2], rm::frames::value(&bytes)), (&[2, 0x14][..], Some(timed)));
}

/// A talking call: the callee's hold waits for its answer, and the caller is told of a move.
fn call() -> CallRecord {
    let [mut caller, mut callee] = [leg(1), leg(2)];
    caller.moving.sent(UnixMs(BOOT + 9000));
    caller.outgoing = vec![ClientInvite {
        cseq: 4,
        branch: 0x1122_3344,
        purpose: Purpose::Relay,
        sent_at: UnixMs(BOOT + 9000),
        offered: true,
        state: ClientState::Accepted { until: UnixMs(BOOT + 41_000), acked: false },
        cancel_at: Some(UnixMs(BOOT + 12_000)),
        cancelled: false,
    }];
    caller.offer_out = Some(SentSdp {
        base: Base::PeerOffer,
        address: "192.0.2.3:20000".parse().unwrap(),
        formats: vec![8, 101],
        direction: Some(Direction::SendOnly),
        version: 5,
    });
    callee.offer_in = Bytes::from_static(b"v=0\r\na=sendonly\r\n");
    callee.incoming = vec![ServerInvite {
        cseq: 7,
        vias: vec![Bytes::from_static(b"SIP/2.0/UDP 192.0.2.10;branch=z9hG4bK7")],
        record_routes: vec![Bytes::from_static(b"<sip:192.0.2.60;lr>")],
        flow: flow(),
        came_at: UnixMs(BOOT + 9000),
        initial: false,
        offered: true,
        relayed: true,
        state: ServerState::Proceeding { status: 100, sdp: false },
    }];
    let place = |gateway, port| Place {
        gateway: NodeId(gateway),
        boot: Boot(BOOT),
        address: "192.0.2.3".parse().unwrap(),
        ports: [port, port + 2],
    };
    CallRecord {
        call: CallId(0x1122_3344_5566_7788),
        slot: Slot(0x5e),
        epoch: Epoch(1_800_000_000),
        phase: Phase::Talking,
        started_at: UnixMs(BOOT),
        answered_at: Some(UnixMs(BOOT + 2000)),
        ends_at: UnixMs(BOOT + 14_400_000),
        called: Bytes::from_static(b"sip:1001@example.org"),
        max_forwards: 69,
        legs: [caller, callee],
        targets: vec![Target {
            uri: Bytes::from_static(b"sip:1001@192.0.2.11"),
            routes: vec![Bytes::from_static(b"<sip:edge.example.org;lr>")],
            flow: flow(),
            registered: true,
        }],
        holder: Some(place(31, 20_000)),
        standby: Some(place(32, 20_100)),
        moves: 1,
        admission: Admission::default(),
        detail: None,
        fork: None,
    }
}

fn leg(number: u64) -> Leg {
    let text = Bytes::from_static;
    let address = "192.0.2.3:20000".parse().unwrap();
    Leg {
        dialog: Dialog {
            call_id: text(b"a84b4c76e66710"),
            local_tag: text(b"5e0123456789abcdef"),
            remote_tag: text(b"1928301774"),
            local: text(b"<sip:1001@example.org>"),
            remote: text(b"<sip:1000@example.org>"),
            local_cseq: 4,
            remote_cseq: Some(7),
            route_set: vec![text(b"<sip:192.0.2.60;lr>")],
            remote_target: text(b"sip:1000@192.0.2.10"),
            secure: false,
            confirmed: true,
        },
        state: LegState::Confirmed,
        flow: flow(),
        contact: "192.0.2.1:5060".parse().unwrap(),
        registered: true,
        owns_call_id: number == 2,
        cseq_ceiling: 20,
        rtp: Some(address),
        identity: SdpIdentity {
            id: number,
            address: address.ip(),
            version: 5,
            digest: 0x0123_4567_89ab_cdef,
        },
        received: text(b"v=0\r\nm=audio 4000 RTP/AVP 8 101\r\n"),
        wish: Direction::SendRecv,
        agreed: Some(SentSdp {
            base: Base::Peer,
            address,
            formats: Vec::new(),
            direction: None,
            version: 4,
        }),
        offer_in: Bytes::new(),
        offer_out: None,
        resync: false,
        incoming: Vec::new(),
        outgoing: Vec::new(),
        shed: vec![text(b"late")],
        early_tag: text(b"1928301774"),
        moving: Move::default(),
        latched: Some(Latched { addr: "192.0.2.10:4000".parse().unwrap(), ssrc: 7, seq: 65_535 }),
        session: Session::default(),
    }
}

/// Where a phone was heard.
fn flow() -> Flow {
    Flow {
        gate: NodeId(11),
        boot: Boot(BOOT),
        listener: 2,
        transport: Transport::Udp,
        connection: 0,
        remote: "192.0.2.10:5060".parse().unwrap(),
    }
}

fn kept(form: &str) -> PathBuf {
    file(0x0210).with_file_name(format!("0210-{form}.txt"))
}

#[test]
fn what_b2b_and_controller_say_has_its_golden_bytes() {
    let (gateway, host) = (NodeId(31), "server3".to_owned());
    check(&Introduce {
        gateway,
        beat: "192.0.2.3:7231".parse().unwrap(),
        host: host.clone(),
        version: "0.1.0".into(),
    });
    check(&Ask { lead: true, stamp_ms: 70_000 });
    check(&Here);
    check(&Gateways(vec![Published {
        gateway,
        boot: Boot(BOOT),
        host,
        version: "0.1.0".into(),
        standby: true,
        draining: false,
        legs: 200,
        legs_max: 11_328,
    }]));
    let dead = Dead { gateway, boot: Boot(BOOT), cause: detector::Cause::Refused };
    check(&Verdict { dead, stamp_ms: 70_250 });
}

/// One file for each kind, named by it.
pub(crate) fn check<F: Frame + PartialEq + std::fmt::Debug>(frame: &F) {
    driver::golden::check(&file(F::KIND), frame);
}

/// One form of a kind that has several, each in a file of its own.
pub(crate) fn check_form<F: Frame + PartialEq + std::fmt::Debug>(form: &str, frame: &F) {
    let file = file(F::KIND).with_file_name(format!("{:04x}-{form}.txt", F::KIND));
    driver::golden::check(&file, frame);
}

fn file(kind: u16) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/testdata/frames");
    folder.join(format!("{kind:04x}.txt"))
}
