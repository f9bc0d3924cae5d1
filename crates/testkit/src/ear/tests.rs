use super::*;

struct Run {
    ear: Ear,
    start: Instant,
}

impl Run {
    #[expect(clippy::disallowed_methods, reason = "any first instant does")]
    fn new() -> Self {
        let start = Instant::now();
        let mut ear = Ear::default();
        ear.open(start);
        Self { ear, start }
    }

    /// Packet `number`, sent when its turn was, comes at `at` ms.
    fn hear(&mut self, at: u64, number: u64) {
        let stamp = Stamp { ssrc: 1, number, sent: Some(Duration::from_millis(20 * number)) };
        self.ear.hear(self.at(at), Duration::from_millis(at), &stamp);
    }

    fn at(&self, at: u64) -> Instant {
        self.start + Duration::from_millis(at)
    }

    fn take(&mut self, at: u64) -> Heard {
        self.ear.take(self.at(at))
    }
}

#[test]
fn an_undisturbed_stream_has_no_silence_beyond_its_period() {
    let mut run = Run::new();
    for number in 0..100 {
        run.hear(20 * number + 3, number);
    }
    let heard = run.take(100 * 20);

    assert_eq!(heard.received, 100);
    assert_eq!(heard.silence, Duration::from_millis(20));
    assert_eq!((heard.lost, heard.late, heard.duplicated), (0, 0, 0));
}

#[test]
fn what_is_lost_in_the_longest_silence_stands_apart_from_other_loss() {
    let mut run = Run::new();
    for number in (0..10).chain(14..20).chain(21..30) {
        run.hear(20 * number, number);
    }
    let heard = run.take(590);

    assert_eq!(heard.silence, Duration::from_millis(100));
    assert_eq!((heard.lost, heard.lost_in_silence, heard.lost_beyond_silence()), (5, 4, 1));
}

#[test]
fn a_silence_that_has_not_ended_counts() {
    let mut run = Run::new();
    run.hear(0, 0);

    assert_eq!(run.take(500).silence, Duration::from_millis(500));
    // The next window knows where the silence began.
    assert_eq!(run.take(900).silence, Duration::from_millis(900));
}

#[test]
fn a_packet_overtaken_by_another_is_late_and_not_lost() {
    let mut run = Run::new();
    run.hear(0, 0);
    run.hear(40, 2);
    run.hear(41, 1);
    run.hear(41, 1);
    let heard = run.take(50);

    assert_eq!((heard.received, heard.lost, heard.late, heard.duplicated), (3, 0, 1, 1));
}

#[test]
fn a_packet_long_on_its_way_is_late() {
    let mut run = Run::new();
    run.hear(5, 0);
    run.hear(20 + 5 + 61, 1);

    assert_eq!(run.take(100).late, 1);
}

#[test]
fn a_held_stream_is_not_silent() {
    let mut run = Run::new();
    run.hear(0, 0);
    run.ear.close(run.at(20));
    assert_eq!(run.take(5000).silence, Duration::from_millis(20));

    run.ear.open(run.at(5000));
    run.hear(5030, 1);
    let heard = run.take(5040);
    assert_eq!(heard.silence, Duration::from_millis(10));
}

#[test]
fn foreign_numbers_wrap() {
    let mut run = Run::new();
    for number in [65534, 65535, 0, 1] {
        let stamp = Stamp { ssrc: 9, number, sent: None };
        run.ear.hear(run.at(0), Duration::ZERO, &stamp);
    }
    let heard = run.take(0);

    assert_eq!((heard.received, heard.lost, heard.foreign), (4, 0, 4));
}
