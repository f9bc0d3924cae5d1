use b2bua::{Cause, Slot};
use bytes::Bytes;
use failover::UnixMs;

use super::*;

#[test]
fn a_detail_is_its_calls_until_its_line_has_left() {
    let mut run = Run::default();
    run.details.write(detail(1));
    assert_eq!((run.said(), run.details.waiting()), (vec![1], 1));

    assert_eq!(run.details.written(1), Some(CallId(1)));
    assert_eq!((run.details.waiting(), run.details.written(1)), (0, None));
}

#[test]
fn a_lost_line_is_said_again_until_it_has_left() {
    let (mut run, now) = (Run::default(), now());
    run.details.write(detail(1));
    for number in 1..4 {
        assert_eq!(run.said(), [number]);
        run.details.unwritten(now, number);
        assert_eq!(run.details.waiting(), 1);
        let at = run.details.poll_timeout().unwrap();
        assert_eq!(at, now + PAUSE);
        assert!(run.details.due(at - Duration::from_millis(1)).is_empty());
        for detail in run.details.due(at) {
            run.details.write(detail);
        }
        assert_eq!(run.details.poll_timeout(), None);
    }
    assert_eq!((run.details.written(4), run.details.waiting()), (Some(CallId(1)), 0));
}

#[test]
fn many_lost_lines_come_again_in_parts() {
    let (mut run, now) = (Run::default(), now());
    for call in 0..600 {
        run.details.write(detail(call));
        run.details.unwritten(now, call + 1);
    }
    let mut counts = Vec::new();
    while let Some(at) = run.details.poll_timeout() {
        counts.push(run.details.due(at).len());
        assert!(run.details.poll_timeout().is_none_or(|next| at < next));
    }
    assert_eq!(counts, [256, 256, 88]);
}

#[test]
fn what_is_kept_has_a_bound_and_beyond_it_the_oldest_is_counted_as_lost() {
    let (mut details, now) = (Details::default(), now());
    for number in 1..=REFUSED_MAX as u64 + 3 {
        details.write(detail(number));
        let given_up = number.checked_sub(REFUSED_MAX as u64).filter(|call| 0 < *call);
        assert_eq!(details.unwritten(now, number), given_up.map(CallId));
    }
    assert_eq!((details.waiting(), details.lost), (REFUSED_MAX, 3));
    assert_eq!(details.due(now + PAUSE)[0].call, CallId(4));
}

#[test]
fn the_details_of_a_slot_that_is_lost_are_its_next_owners() {
    let (mut run, now) = (Run::default(), now());
    run.details.write(detail(1));
    run.details.write(detail(2));
    run.details.unwritten(now, 2);

    run.details.forget([Slot(7)].into_iter().collect());

    assert_eq!((run.details.waiting(), run.details.written(1)), (0, None));
    assert!(run.details.due(now + PAUSE).is_empty());
}

#[derive(Default)]
struct Run {
    details: Details,
}

impl Run {
    /// The numbers of the lines that are asked for.
    fn said(&mut self) -> Vec<u64> {
        let outputs = std::iter::from_fn(|| self.details.poll_output());
        outputs
            .map(|output| {
                let Output::Write { number, .. } = output else { panic!("{output:?}") };
                number
            })
            .collect()
    }
}

fn detail(call: u64) -> Box<Detail> {
    Box::new(Detail {
        slot: Slot(7),
        call: CallId(call),
        call_id: Bytes::from_static(b"x"),
        from: Bytes::new(),
        to: Bytes::new(),
        started_at: UnixMs(1),
        answered_at: None,
        ended_at: UnixMs(2),
        cause: Cause::Caller,
        moves: 0,
        charge: None,
    })
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn now() -> Instant {
    Instant::now()
}
