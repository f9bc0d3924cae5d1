//! Blocks in which calls go on whose first owner is gone.

use super::*;
use crate::lessee::{Lessee, LesseeInput, LesseeOutput};

#[test]
fn the_rest_of_a_block_goes_to_a_later_boot_that_has_the_calls_in_it() {
    let mut run = Run::new(4, 2);
    run.up(A, 7);
    run.lease(A, 4);
    run.open(A, 1, 3, [10_000, 10_002]);
    run.open(A, 2, 3, [10_128, 10_130]);
    run.up(A, 8);
    run.inherit(A);
    assert_eq!(run.lease(A, 9), [], "it does not know yet what it holds");

    run.advance(5000);
    run.command(A, Command::Sync(Sync { calls: vec![(CallId(1), 4), (CallId(2), 4)] }));
    assert_eq!(run.lease(A, 1).len(), 1);
    let given = run.lease(A, 9);
    let given: Vec<_> = given.iter().map(|block| (block.index, block.rest_ms)).collect();
    assert_eq!(given, [(3, 2000), (0, 2000), (1, 2000)], "free ones first");

    run.advance(120_000);
    run.open(A, 3, 4, [10_004, 10_006]);
    run.close(A, 1, 4);
    run.outputs();
    run.open(A, 4, 4, [10_000, 10_002]);
    assert_eq!((run.applied(), run.lessor.blocks_free()), (vec![(0, 4, 4)], 0));
}

#[test]
fn a_boot_that_does_not_know_yet_what_it_holds_is_given_no_block_with_calls() {
    let mut run = Run::new(2, 1);
    run.up(A, 7);
    run.lease(A, 2);
    run.open(A, 1, 3, [10_000, 10_002]);
    run.up(A, 8);
    run.inherit(A);
    run.advance(60_000);

    let mut given = || run.lease(A, 9).iter().map(|block| block.index).collect::<Vec<_>>();
    assert_eq!((given(), given()), (vec![1], vec![]));
    run.command(A, Command::Sync(Sync { calls: vec![(CallId(1), 4)] }));
    assert_eq!(run.lease(A, 9)[0].index, 0);
}

#[test]
fn blocks_with_open_calls_are_given_only_to_peers_that_keep_their_ports_back() {
    let mut run = Run::new(1, 1);
    run.up(A, 7);
    run.lease(A, 1);
    run.open(A, 1, 3, [10_000, 10_002]);
    run.up(A, 8);
    run.command(A, Command::Sync(Sync { calls: vec![(CallId(1), 4)] }));
    assert_eq!(run.lease(A, 1), []);

    run.inherit(A);
    run.up(A, 8);
    assert_eq!(run.lease(A, 1), [], "it is said anew on each link");
    run.inherit(A);
    assert_eq!(run.lease(A, 1).len(), 1);
}

#[test]
fn of_a_pair_only_who_has_all_calls_in_a_block_is_given_it_and_not_before_its_minute_is_over() {
    let mut run = Run::leased();
    for (call, ports) in [(1, [10_000, 10_002]), (2, [10_004, 10_006]), (3, [10_128, 10_130])] {
        run.open(A, call, 3, ports);
        run.open(B, call, 4, ports);
    }
    run.up(A, 8);
    run.open(A, 2, 5, [10_004, 10_006]);
    for (peer, calls) in [(A, vec![(CallId(2), 5)]), (B, vec![(CallId(1), 4), (CallId(3), 4)])] {
        run.inherit(peer);
        run.command(peer, Command::Sync(Sync { calls }));
    }
    run.advance(59_999);
    assert_eq!((run.lease(A, 1).len(), run.lease(A, 1).len()), (1, 1));
    assert_eq!((run.lease(A, 1), run.lease(B, 1)), (vec![], vec![]));

    run.advance(1);
    assert_eq!(run.lease(A, 9), []);
    let given = run.lease(B, 9);
    assert_eq!(given.iter().map(|block| block.index).collect::<Vec<_>>(), [1]);
    run.close(B, 1, 4);
    assert_eq!(run.lease(B, 9), []);
    let given = run.lease(A, 9);
    assert_eq!(given.iter().map(|block| block.index).collect::<Vec<_>>(), [0]);
}

/// Of 640 numbers 80 are named by calls; before, a block with one of them was of no use until that had ended.
#[test]
fn a_restarted_b2b_is_given_every_number_that_its_calls_do_not_name() {
    let mut run = Run::new(10, 1);
    run.up(A, 7);
    run.lease(A, 10);
    let calls = (0..40_u16).map(|call| 10_000 + (call * 37 % 320) * 4);
    let calls: Vec<(u64, [u16; 2])> = (1..).zip(calls.map(|port| [port, port + 2])).collect();
    for (call, ports) in &calls {
        run.open(A, *call, 3, *ports);
    }

    run.up(A, 8);
    let mut lessee = Lessee::new(None);
    for port in calls.iter().flat_map(|(_, ports)| ports) {
        lessee.keep_back(5, *port);
    }
    run.serve(&mut lessee);
    let calls: Vec<_> = calls.iter().map(|(call, _)| (CallId(*call), 4)).collect();
    run.command(A, Command::Sync(Sync { calls }));
    let mut taken = 0;
    for _ in 0..20 {
        run.advance(1000);
        lessee.handle_timeout(run.now);
        run.serve(&mut lessee);
        while let Some(ports) = lessee.allocate(run.now) {
            taken += 1;
            run.open(A, 100 + taken, 4, ports.ports);
        }
    }
    assert_eq!((taken, run.lessor.legs()), (280, 640));
}

/// It may be there still.
#[test]
fn a_later_boot_loses_nothing_to_an_earlier_one_that_returns() {
    let mut run = Run::new(2, 1);
    run.up(A, 7);
    run.lease(A, 1);
    run.up(A, 8);
    run.lease(A, 1);
    run.up(A, 7);
    run.inherit(A);
    run.command(A, Command::Digest(Digest::default()));
    assert_eq!(run.lease(A, 1), []);
    run.up(A, 8);
    run.inherit(A);
    run.command(A, Command::Digest(Digest::default()));
    assert_eq!(run.lease(A, 1).len(), 1);
}

impl Run {
    /// Carries frames between the gateway and peer A until nobody has any more to say.
    fn serve(&mut self, lessee: &mut Lessee) {
        loop {
            for notice in self.said(A) {
                match notice {
                    Notice::Welcome(welcome) => {
                        lessee.handle_input(self.now, LesseeInput::Welcome(welcome));
                    }
                    Notice::Leased(leased) => {
                        lessee.handle_input(self.now, LesseeInput::Leased(leased));
                    }
                    Notice::Failed(_)
                    | Notice::Latched(_)
                    | Notice::Silent(_)
                    | Notice::DigestDiffers(_)
                    | Notice::Missing(_) => panic!("every call goes well"),
                }
            }
            let Some(output) = lessee.poll_output() else { break };
            let command = match output {
                LesseeOutput::Inherit(inherit) => Command::Inherit(inherit),
                LesseeOutput::Lease(lease) => Command::Lease(lease),
                LesseeOutput::Return(block) => Command::Return(block),
            };
            self.command(A, command);
        }
    }
}
