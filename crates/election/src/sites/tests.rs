use super::*;
use crate::tests::origin;

const STABILITY: Duration = Duration::from_secs(6);

#[test]
fn a_cold_segment_has_no_share_while_all_hot_ones_serve() {
    let mut run = Run::new([(9, Cold::default())]);

    assert_eq!(run.decide(&[1, 2, 9]), [1, 2], "who serves is not yet known");
    run.serve(&[1, 2]);
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2]);
}

#[test]
fn a_cold_segment_gets_a_share_at_once_when_a_hot_one_is_away() {
    let mut run = Run::new([(9, Cold::default())]);

    assert_eq!(run.decide(&[1, 9]), [1, 9]);
    assert_eq!(run.decide(&[9]), [9], "an island of its own");
}

#[test]
fn a_hot_segment_that_drains_counts_as_away() {
    let mut run = Run::new([(9, Cold::default())]);
    run.serve(&[1, 2]);
    run.decide(&[1, 2, 9]);

    run.sites.set_serving(Segment(2), false);

    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
}

#[test]
fn a_cold_segment_gives_its_share_back_once_all_hot_ones_have_served_for_long_enough() {
    let mut run = Run::new([(9, Cold::default())]);
    run.decide(&[1, 9]);

    run.sites.begin();
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9], "the return alone is not enough");
    run.serve(&[1]);
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
    run.serve(&[2]);
    run.decide(&[1, 2, 9]);
    let due = run.sites.next_at().unwrap();
    assert_eq!(due, run.now + STABILITY);
    run.now = due - Duration::from_millis(1);
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
    run.now = due;
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2]);
    assert_eq!(run.sites.next_at(), None);
}

#[test]
fn nothing_is_due_for_a_segment_that_another_document_makes_hot() {
    let mut run = Run::new([(9, Cold::default())]);
    run.decide(&[1, 9]);
    run.serve(&[1, 2]);
    run.decide(&[1, 2, 9]);
    assert!(run.sites.next_at().is_some());

    run.sites.configure(&[1, 2, 9].map(Segment).into(), BTreeMap::new());

    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
    assert_eq!(run.sites.next_at(), None);
}

#[test]
fn a_new_epoch_starts_the_wait_for_stability_anew() {
    let mut run = Run::new([(9, Cold::default())]);
    run.decide(&[1, 9]);
    run.serve(&[1, 2]);
    run.decide(&[1, 2, 9]);

    run.now += STABILITY;
    run.sites.begin();

    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
    assert_eq!(run.sites.next_at(), None);
}

#[test]
fn a_cold_segment_stands_in_only_for_what_it_covers() {
    let covers = Some([Segment(2)].into());
    let mut run = Run::new([(9, Cold { covers, witness: false })]);

    assert_eq!(run.decide(&[2, 9]), [2], "1 is away");
    assert_eq!(run.decide(&[1, 9]), [1, 9]);
}

#[test]
fn a_witness_keeps_a_lone_cold_segment_passive() {
    let cold = Cold { covers: None, witness: true };
    let mut run = Run::new([(8, cold.clone()), (9, cold)]);

    assert_eq!(run.decide(&[9]), [0; 0]);
    assert_eq!(run.decide(&[8, 9]), [8, 9], "each is the other's witness");
    let mut run = Run::new([(9, Cold { covers: None, witness: true })]);
    run.sites.set_serving(Segment(2), false);
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9], "a draining segment says so itself");
}

#[test]
fn a_new_coordinator_goes_on_from_what_the_last_one_decided() {
    let mut run = Run::new([(9, Cold::default())]);

    run.sites.adopt(&[Segment(1), Segment(9)].into());
    run.sites.begin();

    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
}

#[test]
fn a_cold_segment_that_was_away_with_the_hot_one_comes_back_without_a_share() {
    let mut run = Run::new([(9, Cold::default())]);

    assert_eq!(run.decide(&[1]), [1], "2 and 9 are away");
    run.sites.begin();
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2], "9 never had a share");
}

#[test]
fn a_cold_segment_that_comes_back_with_a_share_keeps_it_until_the_hot_ones_have_served() {
    let mut run = Run::new([(9, Cold::default())]);
    run.decide(&[1]);

    run.sites.begin();
    run.sites.keep(&[Segment(2), Segment(9)].into());

    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
    run.serve(&[1, 2]);
    run.decide(&[1, 2, 9]);
    run.now += STABILITY;
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2]);
}

#[test]
fn a_cold_segment_that_covers_nothing_known_stays_as_it_is() {
    let covers = Some([Segment(77)].into());
    let mut run = Run::new([(9, Cold { covers, witness: false })]);
    run.serve(&[1, 2]);

    assert_eq!(run.decide(&[1, 2, 9]), [1, 2]);
    run.sites.adopt(&[Segment(9)].into());
    run.now += STABILITY;
    assert_eq!(run.decide(&[1, 2, 9]), [1, 2, 9]);
}

/// A cluster of the hot segments 1 and 2 and some cold ones.
struct Run {
    sites: Sites,
    now: Instant,
}

impl Run {
    fn new<const N: usize>(cold: [(u16, Cold); N]) -> Self {
        let cold: BTreeMap<Segment, Cold> =
            cold.into_iter().map(|(segment, cold)| (Segment(segment), cold)).collect();
        let all = cold.keys().copied().chain([Segment(1), Segment(2)]).collect();
        let mut sites = Sites::new(STABILITY);
        sites.configure(&all, cold);
        Self { sites, now: origin() }
    }

    fn serve(&mut self, segments: &[u16]) {
        for segment in segments {
            self.sites.set_serving(Segment(*segment), true);
        }
    }

    fn decide(&mut self, members: &[u16]) -> Vec<u16> {
        let members = members.iter().copied().map(Segment).collect();
        self.sites.decide(self.now, &members).into_iter().map(|segment| segment.0).collect()
    }
}
