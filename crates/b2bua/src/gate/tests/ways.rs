//! An owner that the gate cannot reach itself.

use super::*;

#[test]
fn an_owner_out_of_reach_is_reached_through_another_b2b() {
    let mut run = Run::started();
    run.input(Input::B2bUp(NodeId(8)));
    run.input(Input::B2bUp(NodeId(9)));
    let reign = Reign { standby: Some(NodeId(9)), ..reign(1) };
    run.input(Input::Slots { from: B2B, map: SlotMap::whole(reign) });
    run.input(Input::B2bDown(B2B));

    let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
    assert_eq!(to, NodeId(9));
    assert_eq!(run.gate.counters().detoured, 1);
    run.input(Input::B2bDown(NodeId(9)));
    let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
    assert_eq!(to, NodeId(8));
}

#[test]
fn two_gates_help_each_other_once_to_the_owner_and_back() {
    let mut run = Run::started();
    run.input(Input::GateUp(GATE));
    run.input(Input::B2bUp(NodeId(8)));
    run.input(Input::B2bDown(B2B));

    // Rather than to a b2b that hands it on: that one may have lost the owner, too.
    let Some(Output::Sip { to, frame }) = run.invite(1) else { panic!() };
    assert_eq!((to, frame.hops, frame.flow.gate), (GATE, 1, NodeId(1)));
    let relayed = SipIn { flow: Flow { gate: GATE, ..frame.flow }, ..frame.clone() };
    let returned = SipIn { hops: 2, ..relayed.clone() };
    assert_eq!(run.relay(relayed.clone()), Some(Output::Sip { to: GATE, frame: returned }));
    assert_eq!(run.input(Input::Relay { from: NodeId(9), frame: relayed }), None, "whose is it?");
    run.input(Input::B2bUp(B2B));
    let relayed = Output::Sip { to: B2B, frame: frame.clone() };
    assert_eq!(run.relay(frame), Some(relayed));

    let flow = Flow { gate: GATE, ..flow(PHONE) };
    let frame = SipOut { slot: Slot(7), epoch: Epoch(1), flow, bytes: Bytes::new() };
    let relayed = Output::Relay { gate: GATE, frame: frame.clone() };
    assert_eq!(run.frame(frame.clone()), Some(relayed));
    run.input(Input::GateUp(NodeId(9)));
    assert_eq!(run.input(Input::Sip { from: NodeId(9), frame: frame.clone() }), None);
    assert_eq!(run.frame(SipOut { epoch: Epoch(2), ..frame }), None);
    let counters = run.gate.counters();
    assert_eq!((counters.relayed, counters.returned, counters.stale_flows), (2, 1, 1));
}

#[test]
fn a_gate_gives_back_what_it_cannot_hand_on_though_its_link_to_the_owner_is_up() {
    let mut run = Run::started();
    run.input(Input::GateUp(GATE));
    let Some(Output::Sip { frame, .. }) = run.invite(1) else { panic!() };
    let frame = SipIn { hops: 1, flow: Flow { gate: GATE, ..frame.flow }, ..frame };
    let relayed = Some(Output::Sip { to: B2B, frame: frame.clone() });
    let returned = Some(Output::Sip { to: GATE, frame: SipIn { hops: 2, ..frame.clone() } });
    assert_eq!(run.relay(frame.clone()), relayed);

    run.pulse(B2B);
    run.advance(150);
    assert_eq!(run.relay(frame.clone()), returned, "its pulses come no more");
    run.pulse_of(B2B, true);
    assert_eq!(run.relay(frame.clone()), returned, "it hears nothing of this gate");
    run.pulse(B2B);
    assert_eq!(run.relay(frame), relayed);
}

#[test]
fn a_message_that_a_gate_gives_back_takes_the_next_way_and_that_gate_is_not_asked_for_a_second() {
    let mut run = Run::started();
    run.input(Input::B2bDown(B2B));
    let gates = [3, 4].map(NodeId);
    gates.into_iter().for_each(|gate| drop(run.input(Input::GateUp(gate))));
    let Some(Output::Sip { to, frame }) = run.invite(1) else { panic!() };
    assert_eq!((to, frame.hops), (gates[0], 1));

    let returned =
        |from, hops, frame: &SipIn| Input::Relay { from, frame: SipIn { hops, ..frame.clone() } };
    let again = run.input(returned(gates[0], 2, &frame));
    let expected = SipIn { hops: 3, ..frame.clone() };
    assert_eq!(again, Some(Output::Sip { to: gates[1], frame: expected }));
    for _ in 0..4 {
        let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
        assert_eq!(to, gates[1]);
    }
    assert_eq!(run.input(returned(gates[1], 4, &frame)), None, "nobody is left");
    run.input(Input::B2bUp(NodeId(8)));
    let again = run.input(returned(gates[1], 4, &frame));
    let expected = SipIn { hops: 0, ..frame.clone() };
    assert_eq!(again, Some(Output::Sip { to: NodeId(8), frame: expected }), "it passes it on");

    run.advance(1000);
    let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
    assert!(gates.contains(&to), "{to}");
    assert_eq!(run.input(returned(gates[1], 16, &frame)), None, "it does not go round for ever");
    let foreign = SipIn { flow: Flow { boot: Boot(4), ..frame.flow }, ..frame };
    assert_eq!(run.input(returned(gates[1], 2, &foreign)), None, "of an earlier life");
}

/// Seed 4704: a link ends only after five silent seconds.
#[test]
fn an_owner_whose_pulses_no_longer_come_is_passed_by_while_its_link_is_up() {
    let mut run = Run::started();
    run.pulse(B2B);
    run.advance(149);
    let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
    assert_eq!(to, B2B);
    run.advance(1);
    let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
    assert_eq!(to, B2B, "nobody else is there");

    run.input(Input::B2bUp(NodeId(8)));
    run.pulse(NodeId(8));
    let Some(Output::Sip { to, frame }) = run.invite(1) else { panic!() };
    assert_eq!((to, frame.hops), (NodeId(8), 0));
    run.input(Input::GateUp(GATE));
    run.input(Input::Congested(B2B, true));
    let Some(Output::Sip { to, frame }) = run.invite(2) else { panic!() };
    assert_eq!((to, frame.hops), (GATE, 1), "the other gate's link may not be full");
    assert_eq!(run.gate.counters().detoured, 2);

    run.input(Input::Congested(B2B, false));
    run.pulse(B2B);
    let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
    assert_eq!(to, B2B);
}

#[test]
fn an_owner_that_hears_nothing_of_the_gate_is_passed_by_though_its_pulses_come() {
    let mut run = Run::started();
    run.input(Input::GateUp(GATE));
    run.pulse_of(B2B, true);
    let Some(Output::Sip { to, frame }) = run.invite(1) else { panic!() };
    assert_eq!((to, frame.hops), (GATE, 1));
    run.pulse_of(B2B, false);
    let Some(Output::Sip { to, .. }) = run.invite(1) else { panic!() };
    assert_eq!(to, B2B);
}

#[test]
fn gates_on_the_way_take_turns_until_one_carries_something_back() {
    let mut run = Run::started();
    run.input(Input::B2bDown(B2B));
    let gates = [3, 4, 5].map(NodeId);
    for gate in gates {
        run.input(Input::GateUp(gate));
    }
    let way = |run: &mut Run| match run.invite(1) {
        Some(Output::Sip { to, frame }) if frame.hops == 1 => to,
        other => panic!("{other:?}"),
    };
    let turns = [way(&mut run), way(&mut run), way(&mut run), way(&mut run)];
    assert_eq!(turns, [gates[0], gates[1], gates[2], gates[0]]);

    let frame = SipOut { slot: Slot(7), epoch: Epoch(1), flow: flow(PHONE), bytes: Bytes::new() };
    assert!(run.input(Input::Sip { from: gates[2], frame: frame.clone() }).is_some());
    assert_eq!([way(&mut run), way(&mut run)], [gates[2]; 2]);
    run.input(Input::GateDown(gates[2]));
    assert_ne!(way(&mut run), gates[2]);
    run.input(Input::GateUp(gates[2]));
    assert!(run.input(Input::Sip { from: gates[1], frame }).is_some());
    run.advance(999);
    assert_eq!([way(&mut run), way(&mut run)], [gates[1]; 2]);
    run.advance(1);
    let turns = [way(&mut run), way(&mut run), way(&mut run)];
    assert!(gates.iter().all(|gate| turns.contains(gate)), "{turns:?}");
}
