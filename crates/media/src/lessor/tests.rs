#![expect(clippy::disallowed_methods, reason = "tests need a first instant")]

mod left;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::frame::{BLOCK_PORTS, Block, Close, Lease, Open, Return};

const A: Peer = Peer(1);
const B: Peer = Peer(2);

#[test]
fn a_peer_is_told_who_the_gateway_is() {
    let mut run = Run::new(4, 2);

    run.up(A, 7);
    let Notice::Welcome(welcome) = run.said(A).remove(0) else { panic!("no welcome") };
    assert_eq!((welcome.boot, welcome.legs_max, welcome.workers), (5, 256, 2));
    assert_eq!(welcome.blocks, []);
}

#[test]
fn blocks_are_given_evenly_over_the_workers() {
    let mut run = Run::new(5, 2);
    run.up(A, 7);

    let blocks = run.lease(A, 3);
    assert_eq!(blocks.iter().map(|block| block.worker).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(blocks[1].first_port, 10_128);
    assert_eq!(blocks[0].rest_ms, 2000);
}

#[test]
fn no_block_is_given_twice_and_none_when_none_is_left() {
    let mut run = Run::new(3, 1);
    run.up(A, 7);
    run.up(B, 7);

    assert_eq!(run.lease(A, 2).len(), 2);
    assert_eq!(run.lease(B, 2).len(), 1);
    assert_eq!(run.lease(B, 1), []);
}

#[test]
fn a_returned_block_rests_before_its_next_lessee_may_use_it() {
    let mut run = Run::new(1, 1);
    run.up(A, 7);
    run.up(B, 7);
    run.lease(A, 1);
    run.advance(10_000);

    run.command(A, Command::Return(Return { boot: 5, block: 0 }));
    run.advance(500);
    assert_eq!(run.lease(B, 1)[0].rest_ms, 1500);
}

#[test]
fn only_its_lessee_returns_a_block_and_only_in_the_same_boot() {
    let mut run = Run::new(1, 1);
    run.up(A, 7);
    run.up(B, 7);
    run.lease(A, 1);

    run.command(B, Command::Return(Return { boot: 5, block: 0 }));
    run.command(A, Command::Return(Return { boot: 4, block: 0 }));
    run.command(A, Command::Return(Return { boot: 5, block: 9 }));
    assert_eq!(run.lease(B, 1), []);
}

#[test]
fn a_call_goes_to_the_worker_of_its_ports() {
    let mut run = Run::leased();

    run.open(A, 1, 3, [10_128, 10_130]);
    assert_eq!(run.applied(), [(1, 1, 3)]);
    run.close(A, 1, 3);
    assert_eq!(run.outputs(), [LessorOutput::Close { worker: 1, call: CallId(1) }]);
}

#[test]
fn ports_of_two_workers_or_of_nobodys_block_fail_a_call() {
    let mut run = Run::leased();

    for (ports, leg) in [
        ([10_000, 10_128], 1),
        ([10_000, 10_256], 1),
        ([10_256, 10_000], 0),
        ([10_001, 10_002], 0),
        ([9_998, 10_002], 0),
        ([10_000, 60_000], 1),
    ] {
        run.open(A, 1, 3, ports);
        let failed = Failed { call: CallId(1), epoch: 3, leg, reason: FailReason::BadPort };
        assert_eq!(run.said(A), [Notice::Failed(failed)], "{ports:?}");
    }
    assert_eq!(run.lessor.legs(), 0);
}

#[test]
fn only_the_highest_epoch_of_a_call_is_obeyed() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.open(B, 1, 4, [10_000, 10_002]);
    assert_eq!(run.applied(), [(0, 1, 3), (0, 1, 4)]);

    run.open(A, 1, 3, [10_004, 10_006]);
    run.close(A, 1, 3);
    assert_eq!(run.outputs(), []);
    assert_eq!(run.lessor.stale_commands(), 2);
}

#[test]
fn a_stale_command_does_not_bring_a_call_back() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.close(B, 1, 4);
    run.outputs();

    run.open(A, 1, 3, [10_000, 10_002]);
    assert_eq!(run.outputs(), []);
    run.open(B, 1, 4, [10_000, 10_002]);
    assert_eq!(run.applied(), [(0, 1, 4)]);
}

#[test]
fn what_a_worker_says_goes_to_the_holder_as_it_is_now() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.open(B, 1, 4, [10_000, 10_002]);
    run.outputs();

    let silent = Notice::Silent(crate::frame::Silent { call: CallId(1), leg: 0 });
    run.notice(silent.clone());
    assert_eq!(run.said(B), std::slice::from_ref(&silent));

    run.close(B, 1, 4);
    run.outputs();
    run.notice(silent);
    assert_eq!(run.outputs(), []);
}

#[test]
fn a_call_that_failed_in_its_worker_is_open_nowhere() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.outputs();

    let reason = FailReason::PortInUse;
    let failed = Notice::Failed(Failed { call: CallId(1), epoch: 3, leg: 0, reason });
    run.notice(failed.clone());
    assert_eq!(
        run.outputs(),
        [
            LessorOutput::Close { worker: 0, call: CallId(1) },
            LessorOutput::Notice { peer: A, notice: failed },
        ]
    );
    assert_eq!(run.lessor.legs(), 0);
}

#[test]
fn equal_digests_need_no_answer() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.open(A, 2, 3, [10_004, 10_006]);
    run.open(B, 3, 3, [10_008, 10_010]);
    run.outputs();

    run.command(A, Command::Digest([CallId(2), CallId(1)].into_iter().collect()));
    run.command(B, Command::Digest([CallId(3)].into_iter().collect()));
    assert_eq!(run.outputs(), []);
}

#[test]
fn different_digests_are_told_and_the_list_decides() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.open(A, 2, 3, [10_004, 10_006]);
    run.outputs();

    let theirs: Digest = [CallId(2), CallId(9)].into_iter().collect();
    run.command(A, Command::Digest(theirs));
    let held = [CallId(1), CallId(2)].into_iter().collect();
    assert_eq!(run.said(A), [Notice::DigestDiffers(DigestDiffers { held })]);

    run.command(A, Command::Sync(Sync { calls: vec![(CallId(9), 3), (CallId(2), 3)] }));
    assert_eq!(
        run.outputs(),
        [
            LessorOutput::Close { worker: 0, call: CallId(1) },
            LessorOutput::Notice {
                peer: A,
                notice: Notice::Missing(Missing { calls: vec![CallId(9)] })
            },
        ]
    );
    run.command(A, Command::Digest([CallId(2)].into_iter().collect()));
    assert_eq!(run.outputs(), []);
}

#[test]
fn of_two_lists_the_one_of_the_higher_epoch_wins() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.open(A, 2, 5, [10_004, 10_006]);
    run.outputs();

    // B has taken over call 1 at epoch 4; of call 2 it has an old copy.
    run.command(B, Command::Sync(Sync { calls: vec![(CallId(1), 4), (CallId(2), 4)] }));
    assert_eq!(run.outputs(), []);

    run.command(A, Command::Sync(Sync { calls: vec![(CallId(2), 5)] }));
    assert_eq!(run.outputs(), []);
    run.command(B, Command::Sync(Sync { calls: vec![] }));
    assert_eq!(run.outputs(), [LessorOutput::Close { worker: 0, call: CallId(1) }]);
    assert_eq!(run.lessor.legs(), 2);
}

#[test]
fn what_a_peer_had_is_taken_back_when_it_is_gone_for_a_minute() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.outputs();

    run.down(A);
    assert_eq!(run.advance(59_999), []);
    assert_eq!(run.advance(1), [LessorOutput::Close { worker: 0, call: CallId(1) }]);
    assert_eq!(run.lessor.blocks_free(), 4);
}

#[test]
fn a_peer_that_comes_back_in_time_finds_everything_as_it_was() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.down(A);
    run.advance(59_999);
    run.outputs();

    run.up(A, 7);
    let Notice::Welcome(welcome) = run.said(A).remove(0) else { panic!("no welcome") };
    assert_eq!(welcome.blocks.iter().map(|block| block.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(run.advance(600_000), []);
    assert_eq!(run.lessor.legs(), 2);
}

#[test]
fn calls_stay_while_the_standby_lives_and_only_the_blocks_without_one_return() {
    let mut run = Run::new(4, 2);
    run.up(A, 7);
    run.up(B, 7);
    run.command(A, Command::Lease(Lease { blocks: 2, standby: Some(B.0) }));
    run.open(A, 1, 3, [10_000, 10_002]);
    run.outputs();

    run.down(A);
    assert_eq!(run.advance(59_999), []);
    assert_eq!(run.lessor.blocks_free(), 2);
    assert_eq!(run.advance(600_000), []);
    assert_eq!(run.lessor.blocks_free(), 3);
    run.down(B);
    assert_eq!(run.advance(59_999), []);
    assert_eq!(run.advance(1), [LessorOutput::Close { worker: 0, call: CallId(1) }]);
    assert_eq!(run.lessor.blocks_free(), 4);
}

#[test]
fn a_call_that_was_taken_over_keeps_its_block_until_it_ends() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.down(A);
    run.open(B, 1, 4, [10_000, 10_002]);
    run.outputs();

    assert_eq!(run.advance(60_000), []);
    assert_eq!(run.lessor.blocks_free(), 3);
    assert_eq!(run.lease(B, 4).len(), 3);

    run.close(B, 1, 4);
    assert_eq!(run.lessor.blocks_free(), 1);
}

#[test]
fn a_new_boot_of_a_peer_has_no_blocks_and_the_old_ones_return_in_a_minute() {
    let mut run = Run::leased();

    run.up(A, 8);
    let Notice::Welcome(welcome) = run.said(A).remove(0) else { panic!("no welcome") };
    assert_eq!(welcome.blocks, []);
    run.advance(59_999);
    assert_eq!(run.lessor.blocks_free(), 2);
    run.advance(1);
    assert_eq!(run.lessor.blocks_free(), 4);
}

#[test]
fn a_peer_that_is_alone_and_short_of_blocks_has_those_of_its_former_boot_back_early() {
    let says = [
        Command::Sync(Sync { calls: vec![(CallId(1), 4)] }),
        Command::Digest([CallId(1)].into_iter().collect()),
    ];
    for says in says {
        let mut run = Run::new(4, 2);
        run.up(A, 7);
        run.lease(A, 2);
        run.open(A, 1, 3, [10_000, 10_002]);
        run.command(A, Command::Digest([CallId(1)].into_iter().collect()));
        run.up(A, 8);
        assert_eq!(run.lease(A, 3).len(), 2, "it does not know yet what it holds");
        run.command(A, Command::Digest(Digest::default()));
        assert_eq!(run.lease(A, 1).len(), 0, "nor does it now");

        run.command(A, Command::Return(Return { boot: 5, block: 3 }));
        run.command(A, says);
        assert_eq!(run.lease(A, 1).len(), 1);
        assert_eq!(run.lessor.blocks_free(), 0, "it is short of none");
        assert_eq!(run.lease(A, 9).len(), 1, "one has an open call");
        run.close(A, 1, 4);
        assert_eq!(run.lease(A, 9).len(), 1);
        run.advance(120_000);
        assert_eq!(run.lessor.blocks_free(), 0, "those of this boot stay");
    }
}

/// Of these ports a standby that took calls over may still name some that it never opened.
#[test]
fn blocks_of_a_former_boot_stay_a_minute_where_another_peer_may_name_their_ports() {
    for there in [true, false] {
        let mut run = Run::leased();
        run.open(A, 1, 3, [10_000, 10_002]);
        run.down(A);
        run.open(B, 1, 4, [10_000, 10_002]);
        run.up(A, 8);
        if !there {
            run.down(B);
        }
        run.command(A, Command::Sync(Sync { calls: vec![] }));
        assert_eq!(run.lease(A, 9).len(), 2, "B is there: {there}");

        run.open(B, 2, 4, [10_128, 10_130]);
        let failed = |notice: &Notice| matches!(notice, Notice::Failed(_));
        assert!(!run.said(B).iter().any(failed));
        run.close(B, 2, 4);
        run.advance(59_999);
        assert_eq!(run.lessor.blocks_free(), 0);
        run.advance(1);
        assert_eq!(run.lessor.blocks_free(), if there { 1 } else { 2 });
    }
}

#[test]
fn a_boot_that_returns_after_another_of_its_id_keeps_its_blocks() {
    let mut run = Run::new(4, 1);
    run.up(A, 7);
    run.lease(A, 2);

    run.up(A, 8);
    run.lease(A, 1);
    run.advance(10_000);
    run.up(A, 7);
    run.advance(59_999);
    assert_eq!(run.lessor.blocks_free(), 1);
    run.advance(1);
    assert_eq!(run.lessor.blocks_free(), 2, "those of the other boot return");
    run.advance(120_000);
    assert_eq!(run.lessor.blocks_free(), 2);
}

#[test]
fn a_peer_that_starts_over_and_over_does_not_keep_the_blocks_of_every_life() {
    let mut run = Run::leased();

    for boot in (8..).take(FORMER_MAX) {
        run.up(A, boot);
    }
    assert_eq!(run.lessor.blocks_free(), 2);
    run.up(A, 7000);
    assert_eq!((run.lessor.blocks_free(), run.lessor.former.len()), (4, FORMER_MAX));
}

#[test]
fn a_draining_gateway_says_so_and_goes_on() {
    let mut run = Run::leased();
    run.open(A, 1, 3, [10_000, 10_002]);
    run.outputs();

    run.lessor.handle_input(run.now, LessorInput::Drain);
    let Notice::Welcome(welcome) = run.said(A).remove(0) else { panic!("no welcome") };
    assert!(welcome.draining);
    run.open(A, 1, 3, [10_000, 10_004]);
    assert_eq!(run.applied(), [(0, 1, 3)]);
}

#[test]
fn a_frame_of_a_peer_without_a_link_is_ignored() {
    let mut run = Run::new(4, 2);

    run.command(A, Command::Lease(Lease { blocks: 1, standby: None }));
    assert_eq!(run.outputs(), []);
}

proptest! {
    /// No block has two lessees, every open call lies in blocks that are not free, and a handled timeout is not due
    /// again.
    #[test]
    fn no_block_is_held_twice_and_none_is_lost(
        steps in proptest::collection::vec((0_u8..10, 0_u16..2, 0_u64..4, 0_u32..3, 0_u64..40_000), 1..200),
    ) {
        let mut run = Run::new(4, 2);
        let mut calls: BTreeSet<(u16, u64)> = BTreeSet::new();
        for (kind, peer, pick, epoch, ms) in steps {
            let peer = [A, B][usize::from(peer)];
            let port = 10_000 + u16::try_from(pick).unwrap() * BLOCK_PORTS;
            match kind {
                0 => run.up(peer, pick / 2),
                1 => run.down(peer),
                2 => run.command(peer, Command::Lease(Lease { blocks: 1, standby: Some(2) })),
                3 => {
                    let block = u16::try_from(pick).unwrap();
                    run.command(peer, Command::Return(Return { boot: 5, block }));
                }
                4 | 5 => run.open(peer, pick, epoch, [port, port + 2]),
                6 => run.close(peer, pick, epoch),
                7 => run.command(peer, Command::Sync(Sync { calls: vec![(CallId(pick), epoch)] })),
                8 => run.inherit(peer),
                _ => {
                    run.now += Duration::from_millis(ms);
                    run.lessor.handle_timeout(run.now);
                    prop_assert!(run.lessor.poll_timeout().is_none_or(|at| run.now < at));
                }
            }
            for output in run.outputs() {
                match output {
                    LessorOutput::Apply { worker, call, .. } => {
                        calls.insert((worker, call.0));
                    }
                    LessorOutput::Close { worker, call } => {
                        calls.remove(&(worker, call.0));
                    }
                    LessorOutput::Notice { .. } => {}
                }
            }
            prop_assert_eq!(run.lessor.legs(), 2 * u32::try_from(calls.len()).unwrap());
            let blocks = [A, B].map(|peer| run.lessor.blocks_of(run.now, peer)).iter().sum::<usize>();
            prop_assert!(blocks + run.lessor.blocks_free() <= 4);
        }
        run.down(A);
        run.down(B);
        run.advance(60_000);
        run.advance(60_000);
        prop_assert_eq!((run.lessor.legs(), run.lessor.blocks_free()), (0, 4));
        run.advance(10_000);
        prop_assert_eq!(run.lessor.poll_timeout(), None);
    }
}

impl Lessor {
    fn blocks_of(&self, now: Instant, peer: Peer) -> usize {
        let boot = self.peers.get(&peer).map_or(0, |state| state.boot);
        self.blocks.of(now, Holder { peer, boot }).len()
    }
}

struct Run {
    now: Instant,
    lessor: Lessor,
}

impl Run {
    fn new(blocks: u16, workers: u16) -> Self {
        let now = Instant::now();
        let config = LessorConfig {
            boot: 5,
            host: "server3".into(),
            advertise: [192, 0, 2, 3].into(),
            beat: ([192, 0, 2, 3], 7231).into(),
            standby: false,
            first_port: 10_000,
            blocks,
            workers,
        };
        Self { now, lessor: Lessor::new(now, config) }
    }

    /// Peer A has blocks 0 and 1 of four, one in each of two workers; peer B is there.
    fn leased() -> Self {
        let mut run = Self::new(4, 2);
        run.up(A, 7);
        run.up(B, 7);
        run.lease(A, 2);
        run
    }

    fn up(&mut self, peer: Peer, boot: u64) {
        self.lessor.handle_input(self.now, LessorInput::PeerUp { peer, boot });
    }

    fn down(&mut self, peer: Peer) {
        self.lessor.handle_input(self.now, LessorInput::PeerDown { peer });
    }

    fn command(&mut self, peer: Peer, command: Command) {
        self.lessor.handle_input(self.now, LessorInput::Command { peer, command });
    }

    fn notice(&mut self, notice: Notice) {
        self.lessor.handle_input(self.now, LessorInput::Notice(notice));
    }

    fn lease(&mut self, peer: Peer, blocks: u16) -> Vec<Block> {
        self.outputs();
        self.command(peer, Command::Lease(Lease { blocks, standby: None }));
        let Some(Notice::Leased(leased)) = self.said(peer).pop() else { panic!("no lease") };
        leased.blocks
    }

    fn inherit(&mut self, peer: Peer) {
        self.command(peer, Command::Inherit(Inherit));
    }

    fn open(&mut self, peer: Peer, call: u64, epoch: u32, ports: [u16; 2]) {
        let legs = ports.map(|port| LegSpec {
            port,
            remote: None,
            remote_rtcp: None,
            payload_types: vec![8],
            held: false,
            nat: false,
            latched: None,
        });
        self.command(peer, Command::Open(Open { call: CallId(call), epoch, legs }));
    }

    fn close(&mut self, peer: Peer, call: u64, epoch: u32) {
        self.command(peer, Command::Close(Close { call: CallId(call), epoch }));
    }

    fn advance(&mut self, ms: u64) -> Vec<LessorOutput> {
        self.now += Duration::from_millis(ms);
        self.lessor.handle_timeout(self.now);
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<LessorOutput> {
        std::iter::from_fn(|| self.lessor.poll_output()).collect()
    }

    /// What was said to one peer.
    fn said(&mut self, to: Peer) -> Vec<Notice> {
        let said = self.outputs().into_iter().filter_map(|output| match output {
            LessorOutput::Notice { peer, notice } if peer == to => Some(notice),
            LessorOutput::Notice { .. }
            | LessorOutput::Apply { .. }
            | LessorOutput::Close { .. } => None,
        });
        said.collect()
    }

    /// Worker, call and epoch of what was applied.
    fn applied(&mut self) -> Vec<(u16, u64, u32)> {
        let applied = self.outputs().into_iter().filter_map(|output| match output {
            LessorOutput::Apply { worker, call, epoch, .. } => Some((worker, call.0, epoch)),
            LessorOutput::Notice { .. } | LessorOutput::Close { .. } => None,
        });
        applied.collect()
    }
}
