//! The bytes of each frame kind between nodes of a cluster.

use std::sync::Arc;

use election::message::{
    Addressed, Answer, Election, Envelope, Heartbeat, LinkState, LinkStates, Nack, Victory,
};
use election::{Epoch, Life, Mandate, NodeId, Segment, Stored};
use quota_split::handover::{
    Ask, Bases, Column, ColumnCell, ColumnPart, Denied, Granted, Grow, Held, Member, MemberChange,
    MemberInput, PairMessage, Prepare, Promise, Recall, Report, Stamp, Timing, ToCoordinator,
    ToMember, Told,
};
use quota_split::{Counter, Direction, Full, Part, Recipe, SegmentId, Sight};
use rm::cluster::{ClusterFrame, Kept, KeptV1, Piece, PiecesTaken, Routed, Transfer};

use super::world::{now, plan, share};
use crate::frames::{check, check_form};

const COORDINATOR: NodeId = NodeId { segment: Segment(1), rm: 2 };
const OTHER: NodeId = NodeId { segment: Segment(3), rm: 1 };
const LIFE: Life = Life { incarnation: 4, instance: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef };
const EPOCH: Epoch = Epoch { term: 300, coordinator: COORDINATOR, life: LIFE };

#[test]
fn what_is_said_in_elections_has_its_golden_bytes() {
    let mandate = Mandate { epoch: EPOCH, members: [COORDINATOR, OTHER].into() };
    let envelope = Envelope { origin: COORDINATOR, life: LIFE, seq: 70_000, to: OTHER };
    let state = LinkState {
        origin: COORDINATOR,
        life: LIFE,
        version: 9,
        neighbours: [OTHER].into(),
        electable: true,
        promised: Some(EPOCH),
        leads: Some(mandate.clone()),
        shares: Some([Segment(1)].into()),
        turn: Some(2),
    };
    check(&Heartbeat { life: LIFE, seq: 8, heard: [OTHER].into(), digest: 77 });
    check(&LinkStates(vec![state]));
    check(&Addressed { envelope, body: Election { nonce: 5 } });
    check(&Addressed { envelope, body: Answer { nonce: 5, promised: None, lower: true } });
    check(&Addressed { envelope, body: Victory(mandate) });
    check(&Addressed { envelope, body: Nack { epoch: EPOCH, promised: EPOCH } });
    let (election, promised) = (Stored { incarnation: 4, promised: Some(EPOCH) }, Some(stamp()));
    check(&KeptV1 { election, promised });
    check(&Kept { election, promised, bases: Bases::new([(1, 300), (3, 100)]) });
}

#[test]
fn what_moves_shares_has_its_golden_bytes() {
    let down = |body: ToMember| Routed { origin: COORDINATOR, to: OTHER, hops: 7, body };
    let up = |body: ToCoordinator| Routed { origin: OTHER, to: COORDINATOR, hops: 7, body };
    let stamp = stamp();
    let recall = Recall { stamp, counter: 1, cap: 4, drain: true };
    let grow = Grow { stamp, seq: 2, rest: true, cells: vec![(1, 300)] };
    check_form("prepare", &down(ToMember::Prepare(prepare())));
    let column = Column {
        cells: vec![ColumnCell { node: "shop".into(), counter: Counter::Inbound, target: 40 }],
        parts: vec![ColumnPart { node: "shop".into(), per_second: 5, levels: [30, 0] }],
    };
    let in_words = Prepare { column: Some(column), ..prepare() };
    check_form("prepare-in-words", &down(ToMember::Prepare(in_words)));
    check_form("grow", &down(ToMember::Grow(grow)));
    check_form("recall", &down(ToMember::Recall(recall)));
    check_form("exhausted", &down(ToMember::Exhausted { stamp, counter: 1 }));
    check_form("heard", &down(ToMember::Heard { stamp, report: 6 }));
    check_form("lease", &down(ToMember::Lease { stamp }));
    check_form("elsewhere", &down(ToMember::Elsewhere { stamp, cells: vec![(1, 30)] }));

    let held = Held { counter: 1, held: 5, used: 3 };
    let promise = Promise { stamp, held: vec![(1, 5)], digest: 99, settled: Some(7) };
    let report = Report { stamp, number: 6, applied: 2, cells: vec![held] };
    check_form("promise", &up(ToCoordinator::Promise(promise)));
    check_form("refuse", &up(ToCoordinator::Refuse { stamp, promised: stamp }));
    check_form("need-column", &up(ToCoordinator::NeedColumn { stamp }));
    check_form("report", &up(ToCoordinator::Report(report)));
    check_form("ask", &up(ToCoordinator::Ask(Ask { stamp, cells: vec![(1, 9)], urgent: true })));
    check_form("drains", &up(ToCoordinator::Drains { stamp }));
    check_form("outweighed", &up(ToCoordinator::Outweighed { stamp }));
}

#[test]
fn what_a_pair_says_has_its_golden_bytes() {
    let told = Told { call: 1 << 40, node: "shop".into(), direction: Direction::Outbound };
    let granted = Granted { level: 2, over: Some("shop".into()), again: false };
    let denied = Denied::Full {
        node: "shop".into(),
        what: Full::Counter(Counter::Outbound),
        limit: 100,
        share: 40,
        used: 40,
        elsewhere: Some(55),
    };
    let answer = |verdict| PairMessage::Answer { call: 1 << 40, verdict };
    check_form("state", &PairMessage::State { serial: 3, state: Box::new(member().state()) });
    check_form("current", &PairMessage::Current { serial: 3 });
    check_form("stored", &PairMessage::Stored { serial: 3 });
    check_form("missing", &PairMessage::Missing);
    check_form("ask", &PairMessage::Ask { call: told.clone(), exempt: true });
    check_form("waits", &PairMessage::Waits { call: 1 << 40 });
    check_form("granted", &answer(Ok(granted)));
    check_form("full", &answer(Err(denied)));
    check_form("unheard", &answer(Err(Denied::Unheard)));
    check_form("release", &PairMessage::Release { call: 1 << 40 });
    check_form("list", &PairMessage::List);
    check_form("hand-over", &PairMessage::HandOver { serial: 3 });
    check_form("declined", &PairMessage::Declined);
    check_form("bases", &PairMessage::Bases(Bases::new([(1, 300), (3, 100)])));
    check_form("change", &PairMessage::Change { serial: 4, change: change() });
    check_form("calls", &PairMessage::Calls { calls: vec![told], pending: true, last: false });
}

#[test]
fn what_is_too_long_for_a_frame_has_its_golden_bytes() {
    let transfer = Transfer { life: 0x0123_4567_89ab_cdef, number: 300 };
    let (kind, len, digest, offset) = (0x0411, 2_000_000, 0xfedc_ba98_7654_3210, 65_536);
    check(&Piece { transfer, kind, len, digest, offset, bytes: b"a column".to_vec() });
    check(&PiecesTaken { transfer, taken: 65_544 });
}

#[test]
fn a_frame_that_is_cut_off_or_of_another_kind_is_none() {
    let frame = ClusterFrame::Pair(PairMessage::Current { serial: 3 });
    let (kind, payload) = frame.encode();

    assert_eq!(ClusterFrame::decode(kind, &payload), Some(frame));
    assert_eq!(ClusterFrame::decode(kind, &payload[..1]), None);
    assert_eq!(ClusterFrame::decode(0x0201, &payload), None);
}

/// What only a speaker can make: grants and reports so far, the version that grew, and the caps of two counters.
fn change() -> MemberChange {
    let change = (2_u32, Some(7_u64), 4096_u32, vec![(1_u32, 300_u32), (4, 0)]);
    driver::codec::decode(&driver::codec::encode(&change)).unwrap()
}

/// A member that has promised and been granted something.
fn member() -> Member {
    let division = Arc::clone(&plan(7, [9; 5], [(Segment(1), share(1, false))].into()).division);
    let mut member = Member::new(now(), SegmentId(1), Timing::WAN, Arc::clone(&division), None, 0);
    let recipe = Recipe { digest: division.digest(), ..prepare().recipe };
    let prepare = Prepare { recipe, ..prepare() };
    let grow = Grow { stamp: stamp(), seq: 1, rest: true, cells: Vec::new() };
    for message in [ToMember::Prepare(prepare), ToMember::Grow(grow)] {
        member.handle_input(now(), MemberInput::Received(message));
    }
    member
}

fn prepare() -> Prepare {
    let part = |segment, weight| Part { segment, weight, usual: 300, present: true };
    let recipe = Recipe {
        document: 7,
        digest: 0x0123_4567_89ab_cdef,
        parts: vec![part(1, 300), part(3, 0)],
        sight: Sight::Whole,
        eager: false,
    };
    Prepare { stamp: stamp(), recipe, column: None }
}

fn stamp() -> Stamp {
    let (incarnation, instance) = (LIFE.incarnation, LIFE.instance);
    let epoch = quota_split::handover::Epoch { term: 300, rank: !0x0102, incarnation, instance };
    Stamp { epoch, round: 1 }
}
