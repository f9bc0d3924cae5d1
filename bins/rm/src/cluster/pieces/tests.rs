use election::Segment;
use quota_split::handover::{Grow, Stamp};

use super::*;
use crate::cluster::Routed;

const A: NodeId = NodeId { segment: Segment(1), rm: 1 };
const B: NodeId = NodeId { segment: Segment(2), rm: 1 };
const LEN: usize = 64;

#[test]
fn what_is_long_arrives_whole_and_only_a_window_is_ever_on_its_way() {
    let mut two = Two::new();

    assert!(two.say(grow(1, 3)).is_some(), "what is short goes at once");
    assert_eq!(two.say(grow(1, 900)), None);
    let most = two.run();

    assert_eq!(two.heard, [grow(1, 900)]);
    assert_eq!(most, WINDOW);
    assert_eq!(two.from.poll_timeout(), None, "nothing is left to do");
}

#[test]
fn every_piece_may_be_lost_once() {
    let mut two = Two::new();
    let mut seen = Vec::new();
    two.loses = Box::new(move |frame| {
        let ClusterFrame::Piece(piece) = frame else { return false };
        let new = !seen.contains(&piece.offset);
        seen.push(piece.offset);
        new
    });

    two.say(grow(1, 900));
    for _ in 0..60 {
        two.run();
        two.pass();
    }

    assert_eq!(two.heard, [grow(1, 900)]);
}

#[test]
fn what_never_arrives_is_given_up_and_the_next_thing_is_sent() {
    let mut two = Two::new();
    two.loses = Box::new(|_| true);
    two.say(grow(1, 900));
    two.run();
    two.say(grow(2, 900));

    for _ in 0..TRIES {
        two.pass();
        two.run();
    }
    two.loses = Box::new(|_| false);
    two.pass();
    two.run();

    assert_eq!(two.heard, [grow(2, 900)]);
}

#[test]
fn a_repeated_piece_adds_nothing_and_a_repeated_whole_is_heard_once() {
    let mut two = Two::new();
    two.say(grow(1, 900));
    let pieces = two.pieces();

    for _ in 0..2 {
        for piece in &pieces {
            for _ in 0..2 {
                two.hear(piece.clone());
            }
        }
    }

    assert_eq!(two.heard, [grow(1, 900)]);
    assert_eq!(two.garbled, 0);
}

#[test]
fn pieces_of_two_versions_are_never_mixed() {
    let mut two = Two::new();
    two.say(grow(1, 900));
    let old = two.pieces();
    two.from.unlink(B);
    two.say(grow(2, 900));
    let new = two.pieces();

    for (old, new) in old.iter().zip(&new) {
        two.hear(old.clone());
        two.hear(new.clone());
        two.hear(old.clone());
    }

    assert_eq!((&two.heard[..], two.garbled), (&[grow(2, 900)][..], 0));
}

#[test]
fn what_is_not_what_was_sent_is_not_taken_and_is_told() {
    let mut two = Two::new();
    two.say(grow(1, 900));
    let mut pieces = two.pieces();
    pieces[3].bytes[5] ^= 1;
    let fitting = pieces[0].clone();

    for piece in pieces {
        two.hear(piece);
    }
    assert_eq!((two.heard.len(), two.garbled), (0, 1), "a digest differs");
    for wrong in [
        Piece { bytes: Vec::new(), ..fitting.clone() },
        Piece { bytes: vec![0; PIECE_LEN + 1], len: u32::MAX, ..fitting.clone() },
        Piece { len: u32::MAX, ..fitting.clone() },
        Piece { offset: u32::MAX, ..fitting },
    ] {
        two.hear(wrong);
    }
    let transfer = Transfer { life: 9, number: 1 };
    let bytes = vec![1, 2, 3];
    let digest = digest(&bytes);
    two.hear(Piece { transfer, kind: 0x0401, len: 3, digest, offset: 0, bytes });

    assert_eq!((two.heard.len(), two.garbled), (0, 6), "sizes that cannot be, and a heartbeat");
}

#[test]
fn the_newest_of_one_matter_waits_and_each_matter_has_its_turn() {
    let mut two = Two::new();
    two.say(grow(1, 900));
    for seq in 2..40 {
        two.say(grow(seq, 900));
        two.say(report(seq));
    }
    two.say(grow(1, 900));

    two.run();

    let reports = two.heard.iter().filter(|it| matches!(it, ClusterFrame::ToCoordinator(_)));
    assert!((1..WAITING_MAX).contains(&reports.count()), "they are bounded");
    let grows: Vec<_> =
        two.heard.iter().filter(|it| matches!(it, ClusterFrame::ToMember(_))).collect();
    assert_eq!(grows, [&grow(1, 900), &grow(1, 900)]);
}

#[test]
fn a_state_is_not_called_current_before_it_has_come() {
    let mut two = Two::new();
    let current = || ClusterFrame::Pair(PairMessage::Current { serial: 4 });
    assert_eq!(two.say(current()), Some(current()));
    two.say(grow(1, 900));
    assert_eq!(two.say(current()), Some(current()), "it does not wait behind other matters");
    two.from.leaving.get_mut(&B).unwrap().waiting.push_back(state());

    assert_eq!(two.say(current()), None);
    two.run();

    assert_eq!(two.heard, [grow(1, 900), state()]);
    assert_eq!(two.say(current()), Some(current()));
}

/// A sender, a receiver, and the frames between them.
struct Two {
    now: Instant,
    from: Pieces,
    to: Pieces,
    loses: Box<dyn FnMut(&ClusterFrame) -> bool>,
    heard: Vec<ClusterFrame>,
    garbled: u32,
}

impl Two {
    #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
    fn new() -> Self {
        let (from, to) = (Pieces::new(LEN, 7), Pieces::new(LEN, 8));
        let loses = Box::new(|_: &ClusterFrame| false);
        Self { now: Instant::now(), from, to, loses, heard: Vec::new(), garbled: 0 }
    }

    fn say(&mut self, frame: ClusterFrame) -> Option<ClusterFrame> {
        self.from.send(self.now, B, frame)
    }

    /// Delivers until nothing moves; returns how many pieces were on their way at a time.
    fn run(&mut self) -> usize {
        let mut most = 0;
        loop {
            let mut pieces = Vec::new();
            while let Some((_, frame)) = self.from.poll_send() {
                if !(self.loses)(&frame) {
                    pieces.push(frame);
                }
            }
            if pieces.is_empty() {
                return most;
            }
            most = most.max(pieces.len());
            for frame in pieces {
                if let ClusterFrame::Piece(piece) = frame {
                    self.hear(piece);
                } else {
                    self.heard.push(frame);
                }
            }
            while let Some((_, frame)) = self.to.poll_send() {
                let ClusterFrame::Pieces(taken) = frame else { panic!("{frame:?}") };
                self.from.taken(self.now, B, taken);
            }
        }
    }

    /// Returns all pieces of what is on its way, which arrive nowhere.
    fn pieces(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while let Some((_, ClusterFrame::Piece(piece))) = self.from.poll_send() {
            let taken = piece.offset + u32::try_from(piece.bytes.len()).unwrap();
            let transfer = piece.transfer;
            let last = taken == piece.len;
            pieces.push(piece);
            if !last {
                self.from.taken(self.now, B, PiecesTaken { transfer, taken });
            }
        }
        pieces
    }

    fn hear(&mut self, piece: Piece) {
        match self.to.take(A, piece) {
            Came::Nothing => {}
            Came::Frame(frame) => self.heard.push(frame),
            Came::Garbled => self.garbled += 1,
        }
    }

    fn pass(&mut self) {
        self.now += PATIENCE;
        self.from.handle_timeout(self.now);
        assert!(self.from.poll_timeout().is_none_or(|at| self.now < at));
    }
}

fn grow(seq: u32, cells: u32) -> ClusterFrame {
    let cells = (0..cells).map(|counter| (counter, counter)).collect();
    let body = ToMember::Grow(Grow { stamp: Stamp::default(), seq, rest: true, cells });
    ClusterFrame::ToMember(Routed { origin: A, to: B, hops: 7, body })
}

fn report(number: u32) -> ClusterFrame {
    let held = quota_split::handover::Held { counter: 1, held: 2, used: 3 };
    let stamp = Stamp::default();
    let report =
        quota_split::handover::Report { stamp, number, applied: 1, cells: vec![held; 300] };
    let body = ToCoordinator::Report(report);
    ClusterFrame::ToCoordinator(Routed { origin: A, to: B, hops: 7, body })
}

fn state() -> ClusterFrame {
    use quota_split::handover::{Member, Timing};
    use quota_split::{Document, Limits, Method, Node, SegmentId, Tree};
    let node = |number: u32| Node {
        name: format!("t{number}"),
        limits: Limits { calls: Some(9), ..Limits::default() },
        ..Node::default()
    };
    let tree = Tree::new((0..500).map(node).collect()).unwrap();
    let document = std::sync::Arc::new(Document::new(1, tree, Method::Dhondt));
    #[expect(clippy::disallowed_methods, reason = "an origin for virtual time")]
    let member = Member::new(Instant::now(), SegmentId(1), Timing::WAN, document, None, 0);
    ClusterFrame::Pair(PairMessage::State { serial: 4, state: Box::new(member.state()) })
}
