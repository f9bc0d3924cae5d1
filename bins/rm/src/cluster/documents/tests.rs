use std::time::Duration;

use election::Segment;

use super::fetch::PART_LEN;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn who_wants_what_lies_beyond_all_ends_gets_nothing() {
    let mut node = Documents::new(config(1), None, Some(document(1, "")));
    let held = node.current().unwrap();
    let (version, digest, peer) = (1, held.digest, NodeId(2));
    node.handle_input(start(), Input::Link { peer, up: true });
    while node.poll_output().is_some() {}

    for offset in [u32::MAX, u32::MAX - 1, 1 << 20] {
        let frame = DocumentFrame::Wanted(DocumentWanted { version, digest, offset });
        node.handle_input(start(), Input::Frame { peer, frame });
        assert!(node.poll_output().is_none());
    }
}

#[test]
fn while_a_disk_hangs_no_more_than_a_few_documents_are_kept() {
    let mut node = Documents::new(config(1), None, None);
    let mut busy = 0;
    for version in 1..=20 {
        let text = text(version, "").into();
        node.handle_input(start(), Input::Put { id: version, text, force: false });
        while let Some(output) = node.poll_output() {
            match output {
                Output::Read { serial, bytes } => {
                    let document = read(&bytes);
                    node.handle_input(start(), Input::Read { serial, document });
                }
                Output::Answered { answer: Err(PutError::Busy), .. } => busy += 1,
                Output::Persist { .. } => {}
                other @ (Output::Send { .. }
                | Output::Document(_)
                | Output::Answered { .. }
                | Output::Alarm(_)) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(busy, 20 - READING_MAX);
}

#[test]
fn a_peer_that_names_one_version_after_another_is_told_of_so_often_and_no_more() {
    let mut node = Documents::new(config(1), None, Some(document(1, "")));
    let peer = NodeId(2);
    node.handle_input(start(), Input::Link { peer, up: true });
    let mut alarms = 0;
    for digest in 1..=2 * ALARMS_MAX as u64 {
        let held =
            DocumentHeld { version: 9, digest, len: 1, segment: Segment(2), site: "a".into() };
        let version = 100 + digest;
        let held = DocumentHeld { version, ..held };
        node.handle_input(start(), Input::Frame { peer, frame: DocumentFrame::Held(held) });
        let part = DocumentPart { version, digest, offset: 0, bytes: vec![0] };
        node.handle_input(start(), Input::Frame { peer, frame: DocumentFrame::Part(part) });
        while let Some(output) = node.poll_output() {
            alarms += usize::from(matches!(output, Output::Alarm(_)));
        }
    }
    assert_eq!(alarms, ALARMS_MAX);
}

#[test]
fn a_document_given_to_one_node_reaches_all() {
    let mut run = Run::new(4);
    run.link_all();
    run.put(2, &text(1, ""));

    run.settle();
    assert_eq!(run.versions(), [1, 1, 1, 1]);
    run.put(0, &text(7, ""));
    run.settle();
    assert_eq!(run.versions(), [7, 7, 7, 7]);
    assert_eq!(run.answers, [(2, Ok(1)), (0, Ok(7))]);
    assert_eq!(run.alarms, []);
}

#[test]
fn who_comes_back_gets_what_it_missed_and_passes_it_on() {
    let mut run = Run::new(3);
    run.put(0, &text(3, ""));
    run.settle();
    assert_eq!(run.versions(), [3, 0, 0]);

    run.link(0, 1, true);
    run.settle();
    run.link(1, 2, true);
    run.settle();
    assert_eq!(run.versions(), [3, 3, 3]);
    assert_eq!(run.outputs_of(2), 1, "it is told of it once");
}

#[test]
fn a_long_document_comes_in_parts_over_links_that_lose_some() {
    for seed in 0..20 {
        let mut run = Run::new(3);
        run.loss = Some(seed);
        run.link_all();
        let long = text(9, &"# filler that makes it long\n".repeat(20_000));
        assert!(4 * PART_LEN < long.len());
        run.put(1, &long);

        run.settle();
        assert_eq!(run.versions(), [9, 9, 9], "seed {seed}");
        assert_eq!(run.text(0), long);
        assert!(run.longest <= PART_LEN + 64, "{}", run.longest);
    }
}

#[test]
fn what_all_others_of_a_large_cluster_want_at_once_keeps_no_heartbeat_for_long() {
    let mut node = Documents::new(config(1), None, None);
    let others: Vec<NodeId> = (2..=40).map(NodeId).collect();
    let long = text(9, &"# filler that makes it long\n".repeat(40_000));
    let digest = super::super::document::digest(long.as_bytes());
    let now = start();
    for &peer in &others {
        node.handle_input(now, Input::Link { peer, up: true });
    }
    let text = long.into();
    node.handle_input(now, Input::Put { id: 1, text, force: false });
    let mut sent = 0;
    while let Some(output) = output(&mut node, now) {
        match output {
            Output::Send { peer, frame: DocumentFrame::Held(held) } if held.version == 9 => {
                let wanted = DocumentWanted { version: 9, digest, offset: 0 };
                let frame = DocumentFrame::Wanted(wanted);
                node.handle_input(now, Input::Frame { peer, frame });
            }
            Output::Send { frame, .. } => sent += frame.encode().1.len(),
            Output::Document(_)
            | Output::Answered { .. }
            | Output::Alarm(_)
            | Output::Read { .. }
            | Output::Persist { .. } => {}
        }
    }

    // 10 Mbit/s carry so much in little more than a second.
    assert!((1 << 20..1_300_000).contains(&sent), "{sent} bytes");
}

#[test]
fn a_fetch_goes_on_with_another_peer_when_the_first_is_gone() {
    let mut run = Run::new(3);
    let long = text(2, &"# filler that makes it long\n".repeat(20_000));
    run.put(0, &long);
    run.put(1, &long);
    run.settle();
    run.link(0, 2, true);
    run.steps(8);
    run.link(0, 2, false);
    run.link(1, 2, true);

    run.settle();
    assert_eq!(run.versions(), [2, 2, 2]);
    assert!(run.parts < 2 * long.len().div_ceil(PART_LEN), "it did not begin anew");
}

#[test]
fn a_lower_version_and_another_text_of_the_same_are_refused() {
    let mut run = Run::new(1);
    run.put(0, &text(5, ""));
    run.settle();
    run.put(0, &text(5, ""));
    run.put(0, &text(4, ""));
    run.put(0, &text(5, "# other\n"));
    run.put(0, "version = 6\n");
    run.settle();

    let statuses: Vec<_> = run.answers.iter().map(|(_, answer)| answer.clone()).collect();
    let old = PutError::Old { given: 4, have: 5 };
    assert_eq!(statuses[..4], [Ok(5), Ok(5), Err(old), Err(PutError::Conflict(5))]);
    assert_eq!(statuses[4].as_ref().unwrap_err().status(), 400);
    assert_eq!(run.versions(), [5]);
    assert_eq!(run.outputs_of(0), 1);
}

#[test]
fn what_would_harm_those_that_are_heard_is_refused_and_by_force_taken_where_it_may_be_meant() {
    let now = start();
    let place = |segment| election::NodeId { segment: Segment(segment), rm: 1 };
    let two = |version: u64, second: u16| {
        text(version, "").replace(
            "[[tenant]]",
            &format!(
                "[[segment]]\nid = 2\nsite = \"london\"\nnodes = [{{ rm = 1, id = {second} }}]\n[[tenant]]"
            ),
        )
    };
    let who = Config { members: [(NodeId(2), place(2))].into(), ..config(1) };
    let before = ClusterDocument::parse(&two(1, 2)).unwrap();
    let mut node = Documents::new(who, None, Some(before));
    let put = |node: &mut Documents, text: &str, force| {
        let text = Bytes::copy_from_slice(text.as_bytes());
        node.handle_input(now, Input::Put { id: 1, text, force });
        let mut answered = None;
        for now in [now, now + SECOND] {
            node.handle_timeout(now);
            while let Some(output) = output(node, now) {
                if let Output::Answered { answer, .. } = output {
                    answered = Some(answer);
                }
            }
        }
        answered.expect("it is answered")
    };
    let why = |answer: Result<u64, PutError>| {
        let error = answer.unwrap_err();
        assert_eq!(error.status(), 409);
        error.to_string()
    };

    // Nobody hears the second node: it may have been replaced.
    assert_eq!(put(&mut node, &two(2, 3), false), Ok(2));
    node.handle_input(now, Input::Link { peer: NodeId(2), up: true });
    let told = why(put(&mut node, &two(3, 4), false));
    assert!(told.starts_with("line 6: segment 2 has none of the nodes that run"), "{told}");
    assert_eq!(put(&mut node, &two(3, 4), true), Ok(3));
    // What nobody can mean no force helps.
    let taken = two(4, 1).replacen("id = 1 }", "id = 2 }", 1);
    let told = why(put(&mut node, &taken, true));
    assert!(told.starts_with("line 5: node 2 is `rm = 1` of segment 1"), "{told}");
    assert!(told.contains("node 1 is `rm = 1` of segment 2"), "all that is: {told}");
    assert!(why(put(&mut node, &text(4, ""), false)).contains("segment 2 is left out"));
    assert_eq!(put(&mut node, &text(4, ""), true), Ok(4));
    // It is there already: nothing is asked of who gives it again.
    assert_eq!(put(&mut node, &text(4, ""), false), Ok(4));
}

#[test]
fn two_texts_of_one_version_change_nobody_until_a_higher_one_comes() {
    let mut run = Run::new(2);
    run.put(0, &text(5, ""));
    run.put(1, &text(5, "# other\n"));
    run.settle();
    run.link_all();
    run.settle();

    assert_ne!(run.text(0), run.text(1));
    let conflict = |peer| Alarm::Conflict { peer: NodeId(peer), version: 5 };
    assert_eq!(run.alarms, [(1, conflict(0)), (0, conflict(1))]);
    run.put(1, &text(6, ""));
    run.settle();
    assert_eq!(run.text(0), run.text(1));
    assert_eq!(run.versions(), [6, 6]);
}

#[test]
fn who_gives_two_texts_of_one_version_at_once_hears_of_it_at_both_nodes() {
    let mut run = Run::new(3);
    run.link_all();
    run.settle();
    run.put(0, &text(5, ""));
    run.put(1, &text(5, "# other\n"));
    run.settle();

    let twice = |peer| Err(PutError::Twice { peer: NodeId(peer), version: 5 });
    run.answers.sort_by_key(|(id, _)| *id);
    assert_eq!(run.answers, [(0, twice(1)), (1, twice(0))]);
    assert_eq!(run.answers[0].1.as_ref().unwrap_err().status(), 409);
    assert_ne!(run.text(0), run.text(1));
    // Who gives the same again is told the same.
    run.answers.clear();
    run.put(1, &text(5, "# other\n"));
    run.settle();
    assert_eq!(run.answers, [(1, twice(0))]);
    run.put(1, &text(6, ""));
    run.settle();
    assert_eq!((run.versions(), &run.answers[1..]), (vec![6, 6, 6], &[(1, Ok(6))][..]));
}

#[test]
fn another_text_of_a_version_that_a_peer_is_known_to_have_is_not_taken() {
    let mut run = Run::new(1);
    let (now, peer) = (run.now, NodeId(9));
    run.nodes[0].handle_input(now, Input::Link { peer, up: true });
    let held =
        DocumentHeld { version: 5, digest: 1, len: 1, segment: Segment(9), site: "x".into() };
    let frame = DocumentFrame::Held(held);
    run.nodes[0].handle_input(now, Input::Frame { peer, frame });
    run.put(0, &text(5, ""));
    while run.step() {}

    assert_eq!(run.answers, [(0, Err(PutError::Conflict(5)))]);
    assert_eq!((run.versions(), run.outputs_of(0)), (vec![0], 0));
}

#[test]
fn whoever_gives_a_document_waits_for_the_peers_that_are_heard_and_a_second_at_the_most() {
    let mut run = Run::new(2);
    run.link(0, 1, true);
    run.settle();
    let begun = run.now;
    run.nodes[0].handle_input(begun, Input::Link { peer: NodeId(9), up: true });
    run.put(0, &text(1, ""));
    while run.step() {}
    assert_eq!((run.versions(), &run.answers[..]), (vec![1, 1], &[][..]), "one says nothing");
    run.settle();
    assert_eq!((run.now, &run.answers[..]), (begun + SECOND, &[(0, Ok(1))][..]));

    run.put(0, &text(2, ""));
    while run.step() {}
    run.nodes[0].handle_input(run.now, Input::Link { peer: NodeId(9), up: false });
    while run.step() {}
    assert_eq!((run.now, &run.answers[1..]), (begun + SECOND, &[(0, Ok(2))][..]));
}

#[test]
fn nobody_hears_of_a_document_before_it_is_on_disk() {
    let now = start();
    let mut documents = Documents::new(config(1), None, Some(document(1, "")));
    documents.handle_input(now, Input::Link { peer: NodeId(2), up: true });
    let put = Input::Put { id: 4, text: text(2, "").into(), force: false };
    documents.handle_input(now, put);

    let mut serials = Vec::new();
    while let Some(output) = documents.poll_output() {
        match output {
            Output::Persist { serial, .. } => serials.push(serial),
            Output::Read { serial, bytes } => {
                let document = read(&bytes);
                documents.handle_input(now, Input::Read { serial, document });
            }
            Output::Send { frame: DocumentFrame::Held(held), .. } => assert_eq!(held.version, 0),
            output @ (Output::Send { .. }
            | Output::Document(_)
            | Output::Answered { .. }
            | Output::Alarm(_)) => panic!("{output:?}"),
        }
    }
    assert_eq!(serials, [1, 3]);
    assert_eq!(documents.current().unwrap().version, 1, "the first one is in force at once");
    documents.handle_input(now, Input::Persisted(3));
    assert!(matches!(documents.poll_output(), Some(Output::Document(one)) if one.version == 2));
    let said = documents.poll_output();
    let Some(Output::Send { peer, frame: frame @ DocumentFrame::Held(_) }) = said else {
        panic!("{said:?}")
    };
    assert!(documents.poll_output().is_none());
    // The peer says the same once it has it.
    documents.handle_input(now, Input::Frame { peer, frame });
    let answered = |output| matches!(output, Some(Output::Answered { id: 4, answer: Ok(2) }));
    assert!(answered(documents.poll_output()));
}

#[test]
fn the_file_of_the_configuration_is_taken_while_nothing_newer_is_stored() {
    let start = |stored: Option<&str>, file| {
        let mut documents = Documents::new(config(1), stored.map(str::as_bytes), file);
        let version = documents.current().map(|current| current.version);
        (version, documents.poll_output())
    };

    assert!(matches!(start(None, None), (None, None)));
    assert!(matches!(start(None, Some(document(1, ""))), (Some(1), Some(Output::Persist { .. }))));
    assert!(matches!(start(Some(&text(2, "")), Some(document(1, ""))), (Some(2), None)));
    assert!(matches!(start(Some(&text(2, "")), Some(document(2, ""))), (Some(2), None)));
    let (version, output) = start(Some(&text(2, "")), Some(document(2, "# other\n")));
    assert!(matches!((version, output), (Some(2), Some(Output::Alarm(Alarm::File(2))))));
    let (version, output) = start(Some("junk"), Some(document(2, "")));
    assert!(matches!((version, output), (Some(2), Some(Output::Alarm(Alarm::Stored)))));
}

#[test]
fn what_cannot_be_read_is_told_once_and_not_fetched_again() {
    let mut run = Run::new(1);
    let now = run.now;
    let peer = NodeId(8);
    run.nodes[0].handle_input(now, Input::Link { peer, up: true });
    let junk = b"version = 4\n".to_vec();
    let digest = super::super::document::digest(&junk);
    let (len, version) = (u32::try_from(junk.len()).unwrap(), 4);
    let held = DocumentHeld { version, digest, len, segment: Segment(9), site: "x".into() };
    let held = || Input::Frame { peer, frame: DocumentFrame::Held(held.clone()) };
    run.nodes[0].handle_input(now, held());
    let part = DocumentPart { version, digest, offset: 0, bytes: junk };
    let frame = DocumentFrame::Part(part);
    run.nodes[0].handle_input(now, Input::Frame { peer, frame });
    while run.step() {}
    assert_eq!(run.alarms, [(0, Alarm::Unreadable { peer, version: 4 })]);

    run.nodes[0].handle_input(now, held());
    assert!(run.nodes[0].poll_output().is_none());
    assert_eq!(run.nodes[0].poll_timeout(), None);
}

#[test]
fn nodes_of_a_segment_that_name_different_sites_are_told_of() {
    let now = start();
    let mut documents = Documents::new(config(1), None, None);
    let mut hear = |peer, segment, site: &str| {
        documents.handle_input(now, Input::Link { peer: NodeId(peer), up: true });
        let (segment, site) = (Segment(segment), site.to_owned());
        let held = DocumentHeld { version: 0, digest: 0, len: 0, segment, site };
        let frame = DocumentFrame::Held(held);
        documents.handle_input(now, Input::Frame { peer: NodeId(peer), frame });
        let mut outputs = std::iter::from_fn(|| documents.poll_output());
        outputs.any(|output| matches!(output, Output::Alarm(Alarm::Site(_))))
    };

    assert!(!hear(2, 1, "london"));
    assert!(!hear(3, 2, "paris"));
    assert!(hear(4, 1, "paris"));
    assert!(!hear(4, 1, "paris"), "once for each cause");
}

/// Nodes of one cluster, their disks and the links between them.
struct Run {
    now: Instant,
    nodes: Vec<Documents>,
    links: BTreeSet<(usize, usize)>,
    /// Feeds the draw of which frames are lost, one in five.
    loss: Option<u64>,
    on_the_way: VecDeque<(usize, usize, DocumentFrame)>,
    answers: Vec<(u64, Result<u64, PutError>)>,
    alarms: Vec<(usize, Alarm)>,
    told: Vec<usize>,
    longest: usize,
    parts: usize,
}

impl Run {
    fn new(nodes: usize) -> Self {
        Self {
            now: start(),
            nodes: (0..nodes).map(|_| Documents::new(config(1), None, None)).collect(),
            links: BTreeSet::new(),
            loss: None,
            on_the_way: VecDeque::new(),
            answers: Vec::new(),
            alarms: Vec::new(),
            told: vec![0; nodes],
            longest: 0,
            parts: 0,
        }
    }

    fn link(&mut self, a: usize, b: usize, up: bool) {
        for (from, to) in [(a, b), (b, a)] {
            if up {
                self.links.insert((from, to))
            } else {
                self.links.remove(&(from, to))
            };
            self.on_the_way.retain(|(x, y, _)| up || (*x, *y) != (from, to));
            let peer = NodeId(u16::try_from(to).unwrap());
            self.nodes[from].handle_input(self.now, Input::Link { peer, up });
        }
    }

    fn link_all(&mut self) {
        for a in 0..self.nodes.len() {
            (0..a).for_each(|b| self.link(a, b, true));
        }
    }

    fn put(&mut self, node: usize, text: &str) {
        let id = u64::try_from(node).unwrap();
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.nodes[node].handle_input(self.now, Input::Put { id, text, force: false });
    }

    /// Lets everything happen until nothing more does.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            while self.step() {}
            let due = self.nodes.iter().filter_map(Documents::poll_timeout).min();
            let Some(due) = due else { return };
            assert!(due <= self.now + 10 * SECOND);
            self.now = self.now.max(due);
            for node in &mut self.nodes {
                node.handle_timeout(self.now);
                assert!(node.poll_timeout().is_none_or(|at| self.now < at));
            }
        }
        panic!("this never ends");
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        for from in 0..self.nodes.len() {
            while let Some(output) = self.nodes[from].poll_output() {
                moved = true;
                self.carry_out(from, output);
            }
        }
        if let Some((from, to, frame)) = self.on_the_way.pop_front() {
            moved = true;
            let peer = NodeId(u16::try_from(from).unwrap());
            let (kind, payload) = frame.encode();
            self.longest = self.longest.max(payload.len());
            self.parts += usize::from(matches!(frame, DocumentFrame::Part(_)));
            let frame = DocumentFrame::decode(kind, &payload).unwrap();
            if !self.is_lost() || matches!(frame, DocumentFrame::Held(_)) {
                self.nodes[to].handle_input(self.now, Input::Frame { peer, frame });
            }
        }
        moved
    }

    fn carry_out(&mut self, from: usize, output: Output) {
        match output {
            Output::Send { peer, frame } => {
                let to = usize::from(peer.0);
                if self.links.contains(&(from, to)) {
                    self.on_the_way.push_back((from, to, frame));
                }
            }
            Output::Read { serial, bytes } => {
                let mut reader = Reader::new(None);
                reader.read(serial, bytes);
                self.nodes[from].handle_input(self.now, reader.poll().unwrap());
            }
            Output::Persist { serial, .. } => {
                self.nodes[from].handle_input(self.now, Input::Persisted(serial));
            }
            Output::Document(_) => self.told[from] += 1,
            Output::Answered { id, answer } => self.answers.push((id, answer)),
            Output::Alarm(alarm) => self.alarms.push((from, alarm)),
        }
    }

    fn is_lost(&mut self) -> bool {
        let Some(seed) = &mut self.loss else { return false };
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % 5 == 0
    }

    fn versions(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.current().map_or(0, |one| one.version)).collect()
    }

    fn text(&self, node: usize) -> &str {
        self.nodes[node].current().map_or("", |one| &one.text)
    }

    fn outputs_of(&self, node: usize) -> usize {
        self.told[node]
    }
}

/// Returns the next thing that a node asks for, once it has read and stored what it wants to.
fn output(node: &mut Documents, now: Instant) -> Option<Output> {
    loop {
        match node.poll_output()? {
            Output::Read { serial, bytes } => {
                let document = read(&bytes);
                node.handle_input(now, Input::Read { serial, document });
            }
            Output::Persist { serial, .. } => node.handle_input(now, Input::Persisted(serial)),
            other @ (Output::Send { .. }
            | Output::Document(_)
            | Output::Answered { .. }
            | Output::Alarm(_)) => return Some(other),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn start() -> Instant {
    Instant::now()
}

fn config(segment: u16) -> Config {
    let id = election::NodeId { segment: Segment(segment), rm: 1 };
    Config { node: NodeId(1), id, site: "london".to_owned(), members: BTreeMap::new() }
}

fn document(version: u64, rest: &str) -> ClusterDocument {
    ClusterDocument::parse(&text(version, rest)).unwrap()
}

fn text(version: u64, rest: &str) -> String {
    format!(
        "version = {version}\n{rest}[[segment]]\nid = 1\nsite = \"london\"\n\
         nodes = [{{ rm = 1, id = 1 }}]\n[[tenant]]\nname = \"all\"\n"
    )
}
