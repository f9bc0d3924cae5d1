#![expect(clippy::disallowed_methods, reason = "tests need a first instant")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn blocks_are_asked_for_as_soon_as_the_gateway_is_known() {
    let mut run = Run::new();
    assert_eq!(run.lessee.allocate(run.now), None);

    run.welcome(1, 9856, 1);
    assert_eq!(run.outputs(), [lease(8)]);
}

#[test]
fn a_small_gateway_is_asked_for_a_quarter_of_what_it_has_or_a_block_for_each_worker() {
    let mut run = Run::new();
    run.welcome(1, 1024, 1);
    assert_eq!(run.outputs(), [lease(4)]);

    let mut run = Run::new();
    run.welcome(1, 256, 3);
    assert_eq!(run.outputs(), [lease(3)]);
}

#[test]
fn a_new_block_rests_for_as_long_as_the_gateway_says() {
    let mut run = Run::leased(2000);

    run.advance(1999);
    assert_eq!(run.lessee.allocate(run.now), None);
    run.advance(1);
    assert_eq!(run.allocate(), [10_000, 10_002]);
}

#[test]
fn both_numbers_of_a_call_lie_in_one_worker_and_the_workers_fill_evenly() {
    let mut run = Run::new();
    run.welcome(1, 9856, 2);
    run.lease([block(0, 0, 10_000, 0), block(1, 1, 10_128, 0)]);

    assert_eq!(run.allocate(), [10_000, 10_002]);
    assert_eq!(run.allocate(), [10_128, 10_130]);
    assert_eq!(run.allocate(), [10_004, 10_006]);
}

#[test]
fn a_freed_number_rests_for_two_seconds() {
    let mut run = Run::leased(0);
    let first = run.allocate();
    for port in first {
        run.lessee.free(run.now, 1, port);
    }
    let others = std::iter::from_fn(|| run.lessee.allocate(run.now)).count();
    assert_eq!(others, 31);

    run.advance(1999);
    assert_eq!(run.lessee.allocate(run.now), None);
    run.advance(1);
    assert_eq!(run.allocate(), first);
}

#[test]
fn more_blocks_are_asked_for_long_before_the_stock_is_empty() {
    let mut run = Run::new();
    run.welcome(1, 9856, 1);
    assert_eq!(run.outputs(), [lease(8)]);
    run.lease((0..8).map(|index| block(index, 0, 10_000 + 128 * index, 0)));
    assert_eq!(run.outputs(), []);

    run.allocate();
    assert_eq!(run.outputs(), [lease(1)]);
    for _ in 0..99 {
        run.allocate();
    }
    assert_eq!(run.outputs(), []);
    run.lease([block(8, 0, 11_024, 0)]);
    // 512 are wanted, 376 are there.
    assert_eq!(run.outputs(), [lease(3)]);
    run.lease((9..12).map(|index| block(index, 0, 10_000 + 128 * index, 0)));
    for _ in 0..200 {
        run.allocate();
    }
    // One block after the first number, and all the rest after the last.
    assert_eq!(run.outputs(), [lease(1)]);
    run.lease([block(12, 0, 11_536, 0)]);
    // 602 numbers were taken at once: 750 are wanted, 232 are there.
    assert_eq!(run.outputs(), [lease(9)]);
}

#[test]
fn a_gateway_without_blocks_is_asked_again_a_second_later() {
    let mut run = Run::new();
    run.welcome(1, 9856, 1);
    run.outputs();

    run.lease([]);
    assert_eq!(run.outputs(), []);
    assert_eq!(run.lessee.poll_timeout(), Some(run.now + RETRY));
    run.advance(1000);
    assert_eq!(run.outputs(), [lease(8)]);
}

#[test]
fn another_boot_of_the_gateway_voids_every_number() {
    let mut run = Run::leased(0);
    let ports = run.allocate();

    run.welcome(2, 9856, 1);
    assert_eq!(run.lessee.allocate(run.now), None);
    run.lessee.free(run.now, 1, ports[0]);
    run.advance(2000);
    assert_eq!(run.lessee.ready(run.now), 0);
}

#[test]
fn an_answer_of_an_earlier_boot_is_ignored() {
    let mut run = Run::new();
    run.welcome(2, 9856, 1);

    let leased = Leased { boot: 1, blocks: vec![block(0, 0, 10_000, 0)] };
    run.lessee.handle_input(run.now, LesseeInput::Leased(leased));
    assert_eq!(run.lessee.ready(run.now), 0);
}

#[test]
fn numbers_outlive_a_lost_link_if_the_gateway_still_holds_them() {
    let mut run = Run::leased(0);
    run.lessee.handle_input(run.now, LesseeInput::LinkDown);
    assert_eq!(run.lessee.poll_timeout(), None);
    assert_eq!(run.allocate(), [10_000, 10_002]);

    run.held = vec![block(0, 0, 10_000, 2000), block(4, 0, 10_512, 2000)];
    run.welcome(1, 9856, 1);
    // Block 4 was leased by an answer that got lost.
    assert_eq!(run.lessee.ready(run.now), 62);
    run.advance(2000);
    assert_eq!(run.lessee.ready(run.now), 62 + 64);

    run.lessee.handle_input(run.now, LesseeInput::LinkDown);
    run.held = Vec::new();
    run.welcome(1, 9856, 1);
    assert_eq!(run.lessee.ready(run.now), 0);
}

#[test]
fn a_second_welcome_on_a_link_says_nothing_about_blocks() {
    let mut run = Run::leased(0);
    run.outputs();

    run.welcome(1, 9856, 1);
    assert_eq!(run.lessee.ready(run.now), 64);
    assert_eq!(run.outputs(), []);
}

#[test]
fn idle_blocks_go_back_one_by_one() {
    let mut run = Run::new();
    run.welcome(1, 2048, 1);
    run.lease((0..20).map(|index| block(index, 0, 10_000 + 128 * index, 0)));
    run.outputs();
    let taken = run.allocate();

    // 512 are wanted; more than twice that and a block are there.
    run.advance(10_000);
    assert_eq!(run.outputs(), [give_back(19)]);
    run.advance(10_000);
    assert_eq!(run.outputs(), [give_back(18)]);
    run.advance(10_000);
    assert_eq!(run.outputs(), [give_back(17)]);
    run.advance(10_000);
    assert_eq!(run.outputs(), []);
    assert_eq!(taken, [10_000, 10_002]);
}

#[test]
fn a_block_that_cannot_be_is_not_taken() {
    let mut run = Run::new();
    run.welcome(1, 9856, 1);

    let odd = block(0, 0, 10_001, 0);
    let beyond = block(1, 0, 65_500, 0);
    let no_worker = block(2, 1, 10_000, 0);
    run.lease([odd, beyond, no_worker, block(3, 0, 10_000, 0), block(4, 0, 10_000, 0)]);
    assert_eq!(run.lessee.ready(run.now), 64);
}

#[test]
fn that_it_inherits_is_said_before_the_first_lease_of_each_link() {
    let mut run = Run::new();
    for _ in 0..2 {
        run.welcome(1, 9856, 1);
        assert_eq!(run.lessee.poll_output(), Some(LesseeOutput::Inherit(Inherit)));
        assert_eq!(run.outputs(), [lease(8)]);
        run.welcome(1, 9856, 1);
        assert_eq!(run.lessee.poll_output(), None);
        run.lessee.handle_input(run.now, LesseeInput::LinkDown);
    }
}

#[test]
fn what_calls_of_an_earlier_life_name_is_given_to_no_other_until_it_is_freed() {
    let mut run = Run::new();
    run.lessee.keep_back(1, 10_000);
    run.lessee.keep_back(7, 10_002);
    run.welcome(1, 9856, 1);
    run.lease([block(0, 0, 10_000, 0)]);
    assert_eq!(run.allocate(), [10_002, 10_004]);

    // A record that was read late.
    run.lessee.keep_back(1, 10_006);
    assert_eq!(run.allocate(), [10_008, 10_010]);
    let others = std::iter::from_fn(|| run.lessee.allocate(run.now)).count();
    assert_eq!(others, 29);

    run.lessee.free(run.now, 1, 10_000);
    run.lessee.free(run.now, 1, 10_006);
    run.advance(1999);
    assert_eq!(run.lessee.allocate(run.now), None);
    run.advance(1);
    assert_eq!(run.allocate(), [10_000, 10_006]);
}

#[test]
fn a_number_that_two_calls_name_rests_when_both_have_freed_it_and_once() {
    let mut run = Run::leased(0);
    let [port, _] = run.allocate();
    run.lessee.keep_back(1, port);

    run.lessee.free(run.now, 1, port);
    run.advance(2000);
    assert_eq!(run.lessee.ready(run.now), 62);
    for _ in 0..3 {
        run.lessee.free(run.now, 1, port);
        run.advance(2000);
        assert_eq!(run.lessee.ready(run.now), 63);
    }
}

#[test]
fn a_block_that_was_lost_and_comes_back_keeps_its_calls() {
    let mut run = Run::leased(0);
    let ports = run.allocate();
    run.lessee.handle_input(run.now, LesseeInput::LinkDown);
    run.welcome(1, 9856, 1);
    assert_eq!(run.lessee.ready(run.now), 0);

    run.lease([block(0, 0, 10_000, 0)]);
    assert_eq!(run.lessee.ready(run.now), 62);
    assert_eq!((ports, run.allocate()), ([10_000, 10_002], [10_004, 10_006]));
}

proptest! {
    /// No number is given out while it is in use or rests, both of a call lie in one block's worker, and a handled
    /// timeout is not due again.
    #[test]
    fn no_number_is_given_twice_within_its_rest(
        steps in proptest::collection::vec((0_u8..7, 0_usize..50, 0_u64..1500), 1..300),
    ) {
        let mut run = Run::new();
        run.welcome(1, 1024, 2);
        let mut next = 0;
        let mut used: Vec<u16> = Vec::new();
        let mut rests: BTreeMap<u16, Instant> = BTreeMap::new();
        for (kind, pick, ms) in steps {
            match kind {
                0 | 1 => {
                    if let Some(Ports { ports, .. }) = run.lessee.allocate(run.now) {
                        prop_assert_eq!((ports[0] - 10_000) / 128 % 2, (ports[1] - 10_000) / 128 % 2);
                        for port in ports {
                            prop_assert!(port.is_multiple_of(2) && !used.contains(&port));
                            prop_assert!(rests.get(&port).is_none_or(|until| *until <= run.now));
                            used.push(port);
                        }
                    }
                }
                2 if !used.is_empty() => {
                    let port = used.swap_remove(pick % used.len());
                    // Where the block is not ours the gateway lets it rest.
                    let is_ours = run.lessee.block_of(port).is_some();
                    if is_ours && !used.contains(&port) {
                        rests.insert(port, run.now + QUARANTINE);
                    }
                    run.lessee.free(run.now, 1, port);
                }
                3 => {
                    run.advance(ms);
                    prop_assert!(run.lessee.poll_timeout().is_none_or(|at| run.now < at));
                }
                4 => run.lessee.handle_input(run.now, LesseeInput::LinkDown),
                5 => {
                    let port = 10_000 + 2 * u16::try_from(pick * pick).unwrap();
                    run.lessee.keep_back(1, port);
                    used.push(port);
                }
                _ => run.welcome(1, 1024, 2),
            }
            for output in run.outputs() {
                match output {
                    LesseeOutput::Lease(lease) => {
                        let blocks: Vec<Block> = (next..16.min(next + lease.blocks))
                            .map(|index| block(index, index % 2, 10_000 + 128 * index, 0))
                            .collect();
                        next += u16::try_from(blocks.len()).unwrap();
                        run.held.extend(&blocks);
                        run.lease(blocks);
                    }
                    LesseeOutput::Inherit(_) => {}
                    LesseeOutput::Return(returned) => {
                        run.held.retain(|block| block.index != returned.block);
                        let first = 10_000 + 128 * returned.block;
                        prop_assert!(!used.iter().any(|port| (first..first + 128).contains(port)));
                    }
                }
            }
        }
    }
}

struct Run {
    now: Instant,
    lessee: Lessee,
    /// What the gateway would say in its next welcome.
    held: Vec<Block>,
}

impl Run {
    fn new() -> Self {
        Self { now: Instant::now(), lessee: Lessee::new(Some(12)), held: Vec::new() }
    }

    /// One block of 64 legs from port 10,000.
    fn leased(rest_ms: u16) -> Self {
        let mut run = Self::new();
        run.welcome(1, 9856, 1);
        run.lease([block(0, 0, 10_000, rest_ms)]);
        run
    }

    fn welcome(&mut self, boot: u64, legs_max: u32, workers: u16) {
        let welcome = Welcome {
            boot,
            host: "server3".into(),
            advertise: [192, 0, 2, 3].into(),
            legs_max,
            workers,
            beat: ([192, 0, 2, 3], 7231).into(),
            standby: false,
            draining: false,
            blocks: self.held.clone(),
        };
        self.lessee.handle_input(self.now, LesseeInput::Welcome(welcome));
    }

    fn lease(&mut self, blocks: impl IntoIterator<Item = Block>) {
        let leased = Leased { boot: 1, blocks: blocks.into_iter().collect() };
        self.lessee.handle_input(self.now, LesseeInput::Leased(leased));
    }

    fn allocate(&mut self) -> [u16; 2] {
        self.lessee.allocate(self.now).unwrap().ports
    }

    fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.lessee.handle_timeout(self.now);
    }

    /// What is asked for and given back.
    fn outputs(&mut self) -> Vec<LesseeOutput> {
        let outputs = std::iter::from_fn(|| self.lessee.poll_output());
        outputs.filter(|output| !matches!(output, LesseeOutput::Inherit(_))).collect()
    }
}

fn block(index: u16, worker: u16, first_port: u16, rest_ms: u16) -> Block {
    Block { index, worker, first_port, rest_ms }
}

fn lease(blocks: u16) -> LesseeOutput {
    LesseeOutput::Lease(Lease { blocks, standby: Some(12) })
}

fn give_back(block: u16) -> LesseeOutput {
    LesseeOutput::Return(Return { boot: 1, block })
}
