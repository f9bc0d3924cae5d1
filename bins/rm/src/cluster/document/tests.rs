use super::*;

const SMALL: &str = r#"
version = 3

[[segment]]
id = 1
site = "london"
weight = 300
sip = ["192.0.2.1:5060"]
nodes = [{ rm = 1, id = 11 }, { rm = 2, id = 12 }]

[[segment]]
id = 2
site = "paris"
sip = ["192.0.2.2:5060"]
nodes = [{ rm = 1, id = 21 }, { rm = 2, id = 22 }]

[[tenant]]
name = "all"
default_profile = "welcome"

[[profile]]
name = "welcome"
tenant = "all"
calls = 10
numbers = ["300-400"]
"#;

#[test]
fn a_document_says_who_divides_what() {
    let document = ClusterDocument::parse(SMALL).unwrap();

    assert_eq!((document.version, document.eager, document.sharing), (3, false, false));
    assert_eq!(document.warnings, []);
    let weights: Vec<_> = document.segments.iter().map(|(id, one)| (id.0, one.weight)).collect();
    assert_eq!(weights, [(1, 300), (2, 100)]);
    assert_eq!(
        document.segments[&Segment(1)].rms,
        BTreeMap::from([(1, NodeId(11)), (2, NodeId(12))])
    );
    let limits: Vec<_> = document.division.counters().iter().map(|one| one.limit).collect();
    assert_eq!(limits, [10]);
    assert_eq!(document, ClusterDocument::parse(SMALL).unwrap());
    assert_ne!(
        document.digest,
        ClusterDocument::parse(&SMALL.replace("300", "301")).unwrap().digest
    );
}

#[test]
fn a_call_is_matched_by_its_source_and_what_it_says() {
    let text = format!(
        "trusted = [\"10.0.0.0/8\"]\nemergency = [\"112\"]\n{SMALL}
        [[tenant]]
        name = \"bank\"
        parent = \"all\"
        [[gateway]]
        network = \"198.51.100.0/24\"
        tenant = \"bank\"\n"
    );
    let document = ClusterDocument::parse(&text).unwrap();
    let find = |source: &str, tenant| {
        let signs = Signs { tenant, number: "350", ..Signs::default() };
        let found = document.find_profile(source.parse().unwrap(), &signs);
        found.map(|found| document.tree().node(found.node).name.as_str())
    };

    assert_eq!(find("203.0.113.1", None), Ok("welcome"));
    assert_eq!(find("203.0.113.1", Some("bank")), Err(Unmatched::Forged));
    assert_eq!(find("10.1.2.3", Some("bank")), Ok("bank"));
    assert_eq!(find("192.0.2.2", Some("bank")), Ok("bank"), "a segment is believed");
    assert_eq!(find("198.51.100.7", None), Ok("bank"));
    assert_eq!(find("198.51.100.7", Some("welcome")), Err(Unmatched::Forged));
    assert!(document.is_emergency("112") && !document.is_emergency("1123"));
    let forged = document.answer_unmatched([203, 0, 113, 1].into(), Unmatched::Forged);
    assert_eq!((forged.status, forged.alarm), (403, true));
}

#[test]
fn shared_calls_go_to_the_same_site_first_then_as_preferred() {
    let segment = |id, site: &str, rest: &str| {
        format!(
            "[[segment]]\nid = {id}\nsite = \"{site}\"\nsip = [\"192.0.2.{id}:5060\"]\n\
             nodes = [{{ rm = 1, id = {id} }}]\n{rest}\n"
        )
    };
    let segments = [
        segment(1, "paris", ""),
        segment(2, "london", "prefer = [5, 4]"),
        segment(3, "london", ""),
        segment(4, "rome", ""),
        segment(5, "rome", ""),
    ];
    let text =
        format!("version = 1\nsharing = true\n{}[[tenant]]\nname = \"all\"", segments.concat());
    let document = ClusterDocument::parse(&text).unwrap();

    let order = |id| document.elsewhere(Segment(id)).iter().map(|(id, _)| id.0).collect::<Vec<_>>();
    assert_eq!(order(2), [3, 5, 4, 1]);
    assert_eq!(order(1), [2, 3, 4, 5]);
    assert_eq!(document.warnings.len(), 5, "each has one node");
    let off = ClusterDocument::parse(&text.replace("sharing = true", "")).unwrap();
    assert_eq!(off.elsewhere(Segment(2)), []);
}

#[test]
fn a_node_whose_own_file_says_something_else_is_told_of_it() {
    let document = ClusterDocument::parse(SMALL).unwrap();
    let id = |segment, rm| election::NodeId { segment: Segment(segment), rm };
    let peers = [(NodeId(12), id(1, 2)), (NodeId(21), id(2, 1)), (NodeId(22), id(2, 2))];
    let own = ["192.0.2.1:5060".parse().unwrap()];
    let claim =
        Claim { id: id(1, 1), node: NodeId(11), site: "london", advertised: &own, peers: &peers };
    assert_eq!(document.misfits(&claim), Vec::<String>::new());

    let theirs = ["192.0.2.2:5060".parse().unwrap()];
    let twisted = [(NodeId(12), id(2, 1)), (NodeId(21), id(2, 1))];
    let wrong = Claim { site: "paris", advertised: &theirs, peers: &twisted, ..claim };
    let misfits = document.misfits(&wrong);
    for (misfit, start) in misfits.iter().zip([
        "this node stands in \"paris\", and segment 1 in \"london\"",
        "192.0.2.2:5060 is advertised here, and is an address of segment 2",
        "node 12 has `segment = 2` and `rm = 1` here, which node 21 has",
        "node 22 is `rm = 2` of segment 2 in the cluster document, and no [[peer]] here",
    ]) {
        assert!(misfit.starts_with(start), "{misfit}");
    }
    assert_eq!(misfits.len(), 4, "{misfits:#?}");
    let stranger = Claim { id: id(7, 1), ..claim };
    assert_eq!(document.misfits(&stranger).len(), 3, "no such segment or place, another address");
}

#[test]
fn everything_wrong_is_told_at_once_and_by_line() {
    let text = r#"version = 0
method = "fair"

[[segment]]
id = 1
site = "london"
weight = 0
sip = ["192.0.2.1:5060"]
nodes = [{ rm = 1, id = 11 }, { rm = 1, id = 12 }]

[[segment]]
id = 1
site = "paris"
weight = 0
sip = ["192.0.2.1:5060"]
prefer = [9]
nodes = [{ rm = 1, id = 11 }]

[[segment]]
id = 3
site = "rome"
mode = "cold"
covers = [3, 4]
nodes = []

[[tenant]]
name = "a"
parent = "b"

[[tenant]]
name = "b"
parent = "a"

[[tenant]]
name = "c"
parent = "nobody"
calls = 10
burst = [5]

[[profile]]
name = "c"
tenant = "c"

[[profile]]
name = "d"
tenant = "c"
calls = 1
shares = [{ segment = 8, calls = 1 }]

[[route]]
targets = []
"#;
    let faults = ClusterDocument::parse(text).unwrap_err();

    let expected = [
        (1, "`version` is 0"),
        (2, "`method` is \"fair\""),
        (4, "the weights of all hot segments are zero"),
        (9, "`rm` in [segment.nodes] is 1, which node 11 of this segment is"),
        (12, "`id` in [segment] is 1, which the segment in line 4 has"),
        (15, "`sip` in [segment] has 192.0.2.1:5060, as segment 1 in line 4 has, on another site"),
        (16, "`prefer` in [segment] has 9, which is no [[segment]]"),
        (17, "`id` in [segment.nodes] is 11, which the node in line 9 has"),
        (19, "`nodes` is missing"),
        (23, "`covers` in [segment] has 3, which is cold itself"),
        (23, "`covers` in [segment] has 4, which is no [[segment]]"),
        (30, "\"b\" is its own ancestor"),
        (34, "the burst levels of \"c\" do not rise"),
        (34, "\"c\" belongs to \"nobody\", which does not exist"),
        (40, "two tenants or profiles are named \"c\""),
        (48, "`segment` in [profile.shares] is 8, which is no [[segment]]"),
        (50, "a route needs at least one target"),
    ];
    for (line, start) in expected {
        let found = faults.list().iter().any(|one| one.line == line && one.text.starts_with(start));
        assert!(found, "line {line}: {start}\nin\n{faults}");
    }
    assert_eq!(faults.list().len(), expected.len(), "{faults}");
}

#[test]
fn faults_among_tenants_are_told_by_line() {
    let text = format!(
        "{SMALL}
[[profile]]
name = \"other\"
tenant = \"all\"
numbers = [\"35*\", \"400-300\"]
id = \"7\"
[[profile]]
name = \"third\"
tenant = \"all\"
id = \"7\"
[[tenant]]
name = \"bank\"
default_profile = \"welcome\"
answers = {{ usage = {{ status = 200 }} }}
[[tenant.override]]
child = \"other\"
dial = [\"!x y\"]
[[gateway]]
network = \"198.51.100.0/24\"
tenant = \"all\"
[[gateway]]
network = \"198.51.100.9\"
tenant = \"bank\"
"
    );
    let faults = ClusterDocument::parse(&text).unwrap_err().to_string();

    for part in [
        "`numbers` in [profile] overlap: 35* of \"other\" has numbers that \"welcome\" has already",
        "`numbers` in [profile] is \"400-300\"",
        "`id` in [profile] is taken: \"third\" has the id \"7\", as \"other\" has",
        "the default profile \"welcome\" of \"bank\" is no profile below it",
        "`status` in [tenant.answers.usage] is 200; use 400 to 699",
        "\"bank\" sets a policy for \"other\", which is not its child",
        "`network` in [gateway] has addresses that are of \"all\" already",
    ] {
        assert!(faults.contains(part), "{part}\nin\n{faults}");
    }
}

#[test]
fn what_a_document_would_do_to_the_cluster_that_runs_is_told_by_line() {
    let before = ClusterDocument::parse(SMALL).unwrap();
    let id = |segment, rm| election::NodeId { segment: Segment(segment), rm };
    let running =
        BTreeMap::from([(NodeId(11), id(1, 1)), (NodeId(12), id(1, 2)), (NodeId(21), id(2, 1))]);
    let harms = |text: &str| {
        let harms = ClusterDocument::parse(text).unwrap().harms(Some(&before), &running);
        let told = harms.into_iter().map(|it| (it.fault.line, it.fault.text, it.may_be_meant));
        told.collect::<Vec<_>>()
    };
    let expect = |text: &str, expected: &[(usize, &str, bool)]| {
        let told = harms(text);
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for ((line, told, may), (at, part, meant)) in told.iter().zip(expected) {
            assert_eq!((line, *may, told.contains(part)), (at, *meant, true), "{told}");
        }
    };

    let newer = SMALL.replace("version = 3", "version = 4");
    expect(&newer, &[]);
    for (left, harms) in [(0, 1), ((1 << 20) - 1, 1), (1 << 20, 0)] {
        let version = format!("version = {}", VERSION_MAX - left);
        let told = format!("`version` leaves {left} higher ones");
        expect(&newer.replace("version = 4", &version), &[(2, &told[..], true)][..harms]);
    }

    // Those that do not run may be anybody.
    let other = newer.replace("{ rm = 2, id = 22 }", "{ rm = 2, id = 23 }");
    expect(&other, &[]);
    expect(&newer.replace("id = 11 }", "id = 13 }"), &[]);
    let strangers = other.replace("id = 21 }", "id = 24 }");
    expect(&strangers, &[(11, "segment 2 has none of the nodes that run there in its", true)]);
    let swapped = newer.replace("id = 11 }", "id = 0 }").replace("id = 12 }", "id = 11 }");
    let swapped = swapped.replace("id = 0 }", "id = 12 }");
    expect(
        &swapped,
        &[
            (9, "node 12 is `rm = 1` of segment 1 here, and runs as `rm = 2` of segment 1", false),
            (9, "node 11 is `rm = 2` of segment 1 here, and runs as `rm = 1` of segment 1", false),
        ],
    );
    let moved = newer.replace("id = 12 }", "id = 13 }").replace("id = 22 }", "id = 12 }");
    expect(&moved, &[(15, "node 12 is `rm = 2` of segment 2 here, and runs as", false)]);

    let silent = newer.replace("sip = [\"192.0.2.2:5060\"]\n", "");
    expect(&silent, &[]);
    let silent = silent.replace("version = 4", "version = 4\nsharing = true");
    expect(&silent, &[(12, "segment 2 has no `sip`: with `sharing` no call", true)]);
    let alone = silent.replace("\n[[segment]]\nid = 2", "\n[[gone]]\nid = 2");
    let (head, rest) = alone.split_once("[[gone]]").unwrap();
    let (_, rest) = rest.split_once("[[tenant]]").unwrap();
    let alone = format!("{head}[[tenant]]{rest}").replace("sip = [\"192.0.2.1:5060\"]\n", "");
    expect(&alone, &[(2, "segment 2 is left out, which has the weight 100 in version 3", true)]);
}

#[test]
fn a_segment_that_has_no_part_any_more_may_be_left_out() {
    let id = election::NodeId { segment: Segment(2), rm: 1 };
    let running = BTreeMap::from([(NodeId(21), id)]);
    let (head, rest) = SMALL.split_once("[[segment]]\nid = 2").unwrap();
    let (_, tail) = rest.split_once("[[tenant]]").unwrap();
    let without = ClusterDocument::parse(&format!("{head}[[tenant]]{tail}")).unwrap();
    for (site, harms) in
        [("\"paris\"", 1), ("\"paris\"\nweight = 0", 0), ("\"paris\"\nmode = \"cold\"", 0)]
    {
        let before = ClusterDocument::parse(&SMALL.replace("\"paris\"", site)).unwrap();
        assert_eq!(without.harms(Some(&before), &running).len(), harms, "{site}");
    }
}

/// However it is written, what is refused is what the text says.
#[test]
fn a_version_is_told_by_the_bound_that_it_passes() {
    let version = |version: &str| {
        let text = SMALL.replace("version = 3", &format!("version = {version}"));
        ClusterDocument::parse(&text).map(|document| document.version)
    };
    assert_eq!(version("4611686018427387904"), Ok(VERSION_MAX));
    for above in [
        "4611686018427387905",
        "9223372036854775807",
        "9223372036854775808",
        "99999999999999999999",
    ] {
        let told = format!("line 2: `version` is {above}; use 1 to {VERSION_MAX}\n");
        assert_eq!(version(above).unwrap_err().to_string(), told);
    }
}

/// A call that has been to all segments says so, and one that says more is not believed.
#[test]
fn a_call_may_have_tried_as_many_segments_as_a_cluster_has() {
    let tried = |count: usize| b2bua::admission::Shared {
        tried: (0..count).map(|id| u16::try_from(id).unwrap()).collect(),
        ..Default::default()
    };
    let most = tried(segments::SEGMENTS_MAX);
    assert_eq!(b2bua::admission::Shared::parse(&most.value()), Some(most));
    let more = tried(segments::SEGMENTS_MAX + 1);
    assert_eq!(b2bua::admission::Shared::parse(&more.value()), None);
}
