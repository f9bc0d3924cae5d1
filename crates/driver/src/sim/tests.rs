use super::*;
use crate::metrics::Metrics;
use crate::node::BindError;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const SOCKET: SocketId = SocketId(0);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn one_seed_is_one_run() {
    assert_eq!(busy_world(7).trace(), busy_world(7).trace());
}

#[test]
fn another_seed_is_another_run() {
    let mut traces: Vec<u64> = (0..64).map(|seed| busy_world(seed).trace()).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 64);
}

#[test]
fn a_datagram_takes_the_delay_of_its_path() {
    let mut sim = pair();
    sim.open(A, None);
    let to = sim.open(B, None);
    let path = Path { delay: 30 * MS, jitter: Duration::ZERO, ..Path::default() };
    sim.set_path(A, B, path);
    let sent = sim.elapsed();
    sim.say(A, datagram(to, "x"));
    assert!(sim.run_until_input(SECOND, |_, input| matches!(input, Input::Datagram { .. })));
    assert_eq!(sim.elapsed() - sent, 30 * MS);
    assert_eq!(sim.node(B).unwrap().texts(), ["x"]);
}

#[test]
fn datagrams_keep_their_order_unless_the_path_reorders() {
    for (reorder, in_order) in [(0.0, true), (0.3, false)] {
        let mut sim = pair();
        sim.open(A, None);
        let to = sim.open(B, None);
        sim.set_path(A, B, Path { jitter: 20 * MS, reorder, ..Path::default() });
        for index in 0..100 {
            sim.say(A, datagram(to, &format!("{index:03}")));
            sim.run_for(MS);
        }
        sim.run_for(SECOND);
        let heard = sim.node(B).unwrap().texts();
        assert_eq!(heard.len(), 100);
        assert_eq!(heard.is_sorted(), in_order);
    }
}

#[test]
fn a_path_loses_and_doubles_the_share_that_it_says() {
    let mut sim = pair();
    sim.open(A, None);
    let to = sim.open(B, None);
    sim.set_path(A, B, Path { loss: 0.2, duplicate: 0.5, ..Path::default() });
    for _ in 0..2000 {
        sim.say(A, datagram(to, "x"));
    }
    sim.run_for(SECOND);
    let heard = sim.node(B).unwrap().texts().len();
    assert!((2250..2550).contains(&heard), "{heard} instead of 2400");
}

#[test]
fn only_a_connected_socket_hears_that_it_is_refused_and_only_from_a_living_host() {
    let mut sim = pair();
    let gone = SocketAddr::new(ip(2), 5060);
    sim.open(A, None);
    sim.say(A, datagram(gone, "x"));
    sim.run_for(SECOND);
    assert!(sim.heard(A).is_empty());

    sim.say(A, Output::Unbind { socket: SOCKET });
    sim.open(A, Some(gone));
    let sent = sim.elapsed();
    sim.say(A, datagram(gone, "x"));
    assert!(sim.run_until_input(SECOND, |_, input| *input == Input::Refused { socket: SOCKET }));
    assert!(300 * MS / 1000 <= sim.elapsed() - sent);

    sim.power_off(ip(2));
    sim.say(A, datagram(gone, "x"));
    assert!(!sim.run_until_input(SECOND, |_, input| *input == Input::Refused { socket: SOCKET }));
}

#[test]
fn a_stranger_is_not_heard_by_a_connected_socket() {
    let mut sim = pair();
    sim.open(A, None);
    let to = sim.open(B, Some(SocketAddr::new(ip(1), 9)));
    sim.say(A, datagram(to, "x"));
    sim.run_for(SECOND);
    assert!(sim.node(B).unwrap().texts().is_empty());
}

#[test]
fn sockets_are_bound_to_addresses_of_their_host_once() {
    let mut sim = pair();
    let bind = |socket, port| Output::Bind {
        socket: SocketId(socket),
        local: SocketAddr::new(ip(1), port),
        peer: None,
    };
    sim.say(A, bind(1, 5060));
    sim.say(A, bind(2, 5060));
    sim.say(A, bind(1, 5061));
    let elsewhere = SocketAddr::new(ip(2), 5060);
    sim.say(A, Output::Bind { socket: SocketId(3), local: elsewhere, peer: None });
    sim.run_for(MS);
    let local = SocketAddr::new(ip(1), 5060);
    let failed = |socket, error| Input::BindFailed { socket: SocketId(socket), error };
    assert_eq!(
        sim.heard(A),
        [
            Input::Bound { socket: SocketId(1), local },
            failed(2, BindError::InUse),
            failed(1, BindError::InUse),
            failed(3, BindError::NotHere),
        ]
    );
}

#[test]
fn frames_arrive_in_order_and_whole_even_where_datagrams_are_lost() {
    let mut sim = linked();
    sim.set_path(A, B, Path { loss: 0.3, jitter: 20 * MS, ..Path::default() });
    for kind in 0x100..0x164 {
        sim.say(A, frame(B, kind));
        sim.run_for(MS);
    }
    sim.run_for(60 * SECOND);
    assert_eq!(sim.node(B).unwrap().kinds(), (0x100..0x164).collect::<Vec<_>>());
}

#[test]
fn a_crash_ends_links_at_once_after_what_was_said_and_a_restart_has_the_next_boot() {
    let mut sim = linked();
    sim.say(A, frame(B, 0x101));
    sim.crash(A);
    assert!(sim.node(A).is_none());
    sim.run_for(MS);
    let (peer, class) = (A, Class::Calls);
    let [.., Input::Frame { kind: 0x101, .. }, down] = &sim.heard(B)[..] else { panic!() };
    assert_eq!(*down, Input::LinkDown { peer, class });

    sim.restart(A);
    sim.run_for(10 * MS);
    assert_eq!(sim.heard(B).last(), Some(&Input::LinkUp { peer, class, boot: 2 }));
    assert_eq!(sim.heard(A), [Input::LinkUp { peer: B, class, boot: 1 }]);
}

#[test]
fn a_listener_that_crashes_is_dialled_until_it_is_back() {
    let mut sim = linked();
    sim.crash(B);
    sim.run_for(10 * SECOND);
    sim.restart(B);
    assert!(sim.run_until_input(1100 * MS, |node, input| node == A
        && *input == Input::LinkUp { peer: B, class: Class::Calls, boot: 2 }));
}

#[test]
fn a_cut_way_is_silent_at_one_end_first_and_heals() {
    let mut sim = linked();
    sim.cut(A, B);
    let class = Class::Calls;
    let down_at = |sim: &mut Sim<Probe>, id, peer| {
        let from = sim.elapsed();
        let down = Input::LinkDown { peer, class };
        assert!(sim.run_until_input(6 * SECOND, |node, input| node == id && *input == down));
        sim.elapsed() - from
    };
    assert!((4 * SECOND..=5 * SECOND).contains(&down_at(&mut sim, B, A)));
    // The way back is open: what B closes ends at A too.
    assert!(down_at(&mut sim, A, B) < MS);
    sim.run_for(20 * SECOND);
    sim.heal(A, B);
    assert!(sim.run_until_input(1100 * MS, |node, input| node == A
        && *input == Input::LinkUp { peer: B, class, boot: 1 }));
}

#[test]
fn frames_wait_for_the_end_of_a_short_cut_and_then_for_tcp() {
    let mut sim = linked();
    sim.cut(A, B);
    let cut_at = sim.elapsed();
    sim.say(A, frame(B, 0x101));
    sim.say(A, frame(B, 0x102));
    sim.run_for(SECOND);
    sim.heal(A, B);
    assert!(sim.run_until_input(6 * SECOND, |_, input| matches!(input, Input::Frame { .. })));
    // 0.2, 0.6 and 1.4 seconds.
    assert!((1400 * MS..1401 * MS).contains(&(sim.elapsed() - cut_at)));
    sim.run_for(60 * SECOND);
    assert_eq!(sim.node(B).unwrap().kinds(), [0x101, 0x102]);
    assert!(!sim.heard(B).contains(&Input::LinkDown { peer: A, class: Class::Calls }));
}

#[test]
fn a_paused_process_handles_what_came_before_its_timers() {
    let mut sim = linked();
    let to = sim.open(B, None);
    sim.open(A, None);
    sim.with(B, |probe, now| probe.tick_at = Some(now + 100 * MS));
    sim.pause(B);
    sim.say(A, datagram(to, "x"));
    sim.say(A, frame(B, 0x101));
    sim.run_for(SECOND);
    let before = sim.heard(B).len();
    assert_eq!(sim.node(B).unwrap().ticked, None);
    sim.resume(B);
    assert_eq!(sim.heard(B).len(), before + 2);
    assert_eq!(sim.node(B).unwrap().ticked, None);
    sim.run_for(MS);
    assert!(sim.node(B).unwrap().ticked.is_some());
}

#[test]
fn what_a_process_says_in_the_turn_in_which_it_is_paused_leaves_when_it_goes_on() {
    let mut sim = linked();
    let (to, from) = (sim.open(B, None), sim.open(A, None));
    sim.with(B, |probe, _| probe.echoes = Some(from));
    sim.pause_in_turn(B, |input| matches!(input, Input::Datagram { bytes, .. } if bytes == "y"));
    for text in ["x", "y", "z"] {
        sim.say(A, datagram(to, text));
    }
    sim.run_for(SECOND);
    assert_eq!(sim.node(A).unwrap().texts(), ["x"]);
    assert_eq!(sim.node(B).unwrap().texts(), ["x", "y"]);
    let paused_at = sim.node(B).unwrap().turned;
    sim.resume(B);
    sim.run_for(MS);
    assert_eq!(sim.node(A).unwrap().texts(), ["x", "y", "z"]);
    let turned = sim.node(B).unwrap().turned;
    assert!(paused_at + 900 * MS < turned, "the turn ends after the pause");
}

#[test]
fn a_long_pause_ends_links_by_silence_and_drops_datagrams_beyond_the_buffer() {
    let mut sim = linked();
    let to = sim.open(B, None);
    sim.open(A, None);
    sim.pause(B);
    for _ in 0..10_000 {
        sim.say(A, datagram(to, "x"));
    }
    let class = Class::Calls;
    let down = Input::LinkDown { peer: B, class };
    assert!(sim.run_until_input(6 * SECOND, |node, input| node == A && *input == down));
    sim.run_for(SECOND);
    sim.resume(B);
    let heard = sim.node(B).unwrap().texts().len();
    assert!((5000..6000).contains(&heard), "{heard} of 4 MB");
    let up = Input::LinkUp { peer: A, class, boot: 1 };
    assert_eq!(sim.heard(B)[heard + 1..], [Input::LinkDown { peer: A, class }, up]);
}

#[test]
fn a_silence_outlasts_its_cut_until_tcp_sends_again() {
    let class = Class::Calls;
    // What is said first is sent again 1.4, 3 and 6.2 s later, and a link is given up after 5 s.
    for (cut, breaks) in [(2500 * MS, false), (4000 * MS, true)] {
        let mut sim = linked();
        sim.cut_both(A, B);
        for (node, peer) in [(A, B), (B, A)] {
            sim.say(node, Output::Frame { peer, class, kind: 7, payload: Bytes::new() });
        }
        sim.run_for(cut);
        sim.heal_all();
        sim.run_for(1500 * MS);
        let ups = |node, peer| {
            let up = Input::LinkUp { peer, class, boot: 1 };
            sim.heard(node).iter().filter(|input| **input == up).count()
        };
        assert_eq!((ups(A, B), ups(B, A)), if breaks { (2, 2) } else { (1, 1) }, "{cut:?}");
        let arrived = sim.node(B).unwrap().kinds();
        assert_eq!(arrived.is_empty(), breaks, "{cut:?}");
    }
}

#[test]
fn a_peer_that_does_not_read_congests_its_link_and_relieves_it() {
    let mut sim = linked();
    sim.pause(B);
    let payload = Bytes::from(vec![0; 1000]);
    for _ in 0..1000 {
        let (peer, class, payload) = (B, Class::Calls, payload.clone());
        sim.say(A, Output::Frame { peer, class, kind: 0x101, payload });
        sim.run_for(MS);
    }
    let congested = |on| Input::Congested { peer: B, class: Class::Calls, on };
    assert_eq!(sim.heard(A).last(), Some(&congested(true)));
    sim.resume(B);
    sim.run_for(SECOND);
    assert_eq!(sim.heard(A).last(), Some(&congested(false)));
    assert_eq!(sim.node(B).unwrap().kinds().len(), 1000);
}

#[test]
fn a_host_without_power_says_nothing_and_comes_back() {
    let mut sim = linked();
    sim.power_off(ip(2));
    let class = Class::Calls;
    let down = Input::LinkDown { peer: B, class };
    assert!(!sim.run_until_input(3900 * MS, |_, input| *input == down));
    assert!(sim.run_until_input(1200 * MS, |_, input| *input == down));
    sim.restart(B);
    assert!(sim.run_until_input(2 * SECOND, |node, input| node == A
        && *input == Input::LinkUp { peer: B, class, boot: 2 }));
}

#[test]
fn a_wall_clock_that_jumps_shows_at_the_next_start() {
    let mut sim = pair();
    sim.run_for(SECOND);
    sim.jump_clock(A, -5000);
    sim.restart(A);
    assert_eq!(sim.node(A).unwrap().start.unix_ms, 1_800_000_000_000 + 1000 - 5000);
}

#[test]
fn each_life_has_epochs_above_all_before_whatever_its_clock_says() {
    let mut sim = pair();
    let epoch = |sim: &Sim<Probe>| sim.node(A).unwrap().start.epoch;
    assert_eq!(epoch(&sim), 1_800_000_000);
    sim.jump_clock(A, -5000);
    sim.restart(A);
    assert_eq!(epoch(&sim), 1_800_001_000);
    sim.jump_clock(A, 3_600_000);
    sim.restart(A);
    assert_eq!(epoch(&sim), 1_800_000_000 + 3600 - 5);
}

#[test]
fn an_address_moves_from_host_to_host() {
    let mut sim = pair();
    sim.open(A, None);
    let shared = ip(9);
    sim.give_address(shared, B);
    let local = SocketAddr::new(shared, 5060);
    sim.say(B, Output::Bind { socket: SocketId(5), local, peer: None });
    sim.run_for(MS);
    sim.say(A, datagram(local, "x"));
    sim.run_for(MS);
    assert_eq!(sim.node(B).unwrap().texts(), ["x"]);

    sim.give_address(shared, A);
    sim.say(A, Output::Bind { socket: SocketId(5), local, peer: None });
    sim.say(A, datagram(local, "y"));
    sim.run_for(MS);
    assert_eq!(sim.node(A).unwrap().texts(), ["y"]);
}

#[test]
fn a_node_that_stops_is_gone_and_says_why() {
    let mut sim = linked();
    sim.say(A, Output::Stop(StopReason::Drained));
    assert!(!sim.is_running(A));
    assert_eq!(sim.stopped(A), Some(&StopReason::Drained));
    sim.run_for(MS);
    assert!(sim.heard(B).contains(&Input::LinkDown { peer: A, class: Class::Calls }));
}

#[test]
#[should_panic(expected = "a handled timeout is due again")]
fn a_node_whose_timer_stays_due_is_caught() {
    let mut sim = pair();
    sim.with(A, |probe, now| {
        probe.tick_at = Some(now);
        probe.forgets = true;
    });
    sim.run_for(SECOND);
}

#[test]
fn lines_are_written_or_wait_or_are_lost_and_a_death_takes_those_that_wait() {
    let mut sim = pair();
    let line = |number: u64| Output::Write { number, line: number.to_string() };
    (1..=9).for_each(|number| sim.say(A, line(number)));
    sim.run_for(20 * MS);
    assert_eq!(sim.lines(A).concat(), "123456789");
    let written: Vec<Input> = (1..=9).map(|number| Input::Written { number }).collect();
    assert_eq!(sim.heard(A), written);

    sim.set_pen(A, Pen::Fails);
    sim.say(A, line(10));
    sim.set_pen(A, Pen::Stalls);
    (11..28).for_each(|number| sim.say(A, line(number)));
    sim.run_for(SECOND);
    let lost = [10, 27].map(|number| Input::Unwritten { number });
    assert_eq!(sim.heard(A)[9..], lost, "16 wait");
    sim.restart(A);
    sim.set_pen(A, Pen::Writes);
    sim.run_for(SECOND);
    assert_eq!((sim.lines(A).len(), sim.heard(A)), (9, vec![]));
}

#[test]
fn a_waker_wakes_its_node() {
    let mut sim = pair();
    sim.with(A, |probe, _| probe.start.waker.wake_by_ref());
    sim.run_for(MS);
    assert_eq!(sim.heard(A), [Input::Woken]);
}

/// A world with everything in it that draws.
fn busy_world(seed: u64) -> Sim<Probe> {
    let path = Path { loss: 0.1, duplicate: 0.1, reorder: 0.1, ..Path::default() };
    let mut sim = Sim::new(seed, Config { path, ..Config::default() });
    sim.add(A, ip(1), &[(B, Class::Calls)], probe);
    sim.add(B, ip(2), &[], probe);
    sim.run_for(10 * MS);
    sim.open(A, None);
    let to = sim.open(B, None);
    for _ in 0..10 {
        sim.say(A, datagram(to, "x"));
        sim.say(A, frame(B, 0x101));
        sim.run_for(10 * MS);
    }
    sim.cut_both(A, B);
    sim.run_for(6 * SECOND);
    sim.heal_all();
    sim.run_for(2 * SECOND);
    sim
}

fn pair() -> Sim<Probe> {
    let mut sim = Sim::new(1, Config::default());
    sim.add(A, ip(1), &[], probe);
    sim.add(B, ip(2), &[], probe);
    sim
}

/// A dials B, and the link is up.
fn linked() -> Sim<Probe> {
    let mut sim = Sim::new(1, Config::default());
    sim.add(A, ip(1), &[(B, Class::Calls)], probe);
    sim.add(B, ip(2), &[], probe);
    sim.run_for(100 * MS);
    let up = |peer| Input::LinkUp { peer, class: Class::Calls, boot: 1 };
    assert_eq!((sim.heard(A), sim.heard(B)), (vec![up(B)], vec![up(A)]));
    sim
}

/// Remembers what it is told and does what the test says.
struct Probe {
    start: Start,
    heard: Vec<Input>,
    outputs: VecDeque<Output>,
    tick_at: Option<Instant>,
    ticked: Option<Instant>,
    forgets: bool,
    /// When its last turn ended.
    turned: Instant,
    /// Where it sends what it hears by datagram.
    echoes: Option<SocketAddr>,
}

fn probe(start: Start) -> Probe {
    Probe {
        turned: start.instant,
        start,
        heard: Vec::new(),
        outputs: VecDeque::new(),
        tick_at: None,
        ticked: None,
        forgets: false,
        echoes: None,
    }
}

impl Node for Probe {
    fn handle_input(&mut self, _now: Instant, input: Input) {
        if let (Input::Datagram { bytes, .. }, Some(to)) = (&input, self.echoes) {
            let bytes = bytes.clone();
            self.outputs.push_back(Output::Datagram { socket: SOCKET, to, bytes });
        }
        self.heard.push(input);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ticked = Some(now);
        if !self.forgets {
            self.tick_at = None;
        }
    }

    fn end_turn(&mut self, now: Instant) {
        self.turned = now;
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tick_at
    }

    fn metrics(&self, _out: &mut Metrics) {}
}

impl Probe {
    fn texts(&self) -> Vec<&str> {
        let texts = self.heard.iter().filter_map(|input| {
            let Input::Datagram { bytes, .. } = input else { return None };
            std::str::from_utf8(bytes).ok()
        });
        texts.collect()
    }

    fn kinds(&self) -> Vec<u16> {
        let kinds = self.heard.iter().filter_map(|input| {
            let Input::Frame { kind, .. } = input else { return None };
            Some(*kind)
        });
        kinds.collect()
    }
}

impl Sim<Probe> {
    fn say(&mut self, id: NodeId, output: Output) {
        self.with(id, |probe, _| probe.outputs.push_back(output));
    }

    fn heard(&self, id: NodeId) -> Vec<Input> {
        self.node(id).unwrap().heard.clone()
    }

    /// Binds the node's socket, and forgets that it was told so.
    fn open(&mut self, id: NodeId, peer: Option<SocketAddr>) -> SocketAddr {
        let local = SocketAddr::new(ip(id.0), 0);
        self.say(id, Output::Bind { socket: SOCKET, local, peer });
        assert!(self.run_until_input(MS, |_, input| matches!(input, Input::Bound { .. })));
        let told = self.with(id, |probe, _| probe.heard.pop()).unwrap();
        let Some(Input::Bound { local, .. }) = told else { panic!("{told:?}") };
        local
    }
}

fn datagram(to: SocketAddr, text: &str) -> Output {
    Output::Datagram { socket: SOCKET, to, bytes: Bytes::copy_from_slice(text.as_bytes()) }
}

fn frame(peer: NodeId, kind: u16) -> Output {
    Output::Frame { peer, class: Class::Calls, kind, payload: Bytes::new() }
}

fn ip(last: u16) -> IpAddr {
    [10, 0, 0, u8::try_from(last).unwrap()].into()
}
