//! The configuration files that the READMEs show.

use rm::cluster::ClusterDocument;

#[test]
fn the_files_in_the_readme_are_sound_and_fit_each_other() {
    let [signalling, media] = files(include_str!("../../../../README.md"))[..] else {
        panic!("the README shows two files")
    };

    let signalling = rm::Config::parse(signalling).unwrap();
    let media = mediagate::Config::parse(media).unwrap();

    let peers: Vec<_> = signalling.peers.iter().map(|peer| (peer.node.0, peer.links)).collect();
    assert_eq!(peers, [(media.node.0, media.links)]);
}

#[test]
fn a_program_knows_every_key_that_its_own_readme_shows() {
    let [signalling, witness, document] = files(include_str!("../../README.md"))[..] else {
        panic!("it shows three")
    };
    let witness = rm::Config::parse(witness).unwrap();
    assert_eq!(witness.witness, Some(witness.node));
    rm::Config::parse(signalling).unwrap();
    rm::Config::parse(&with_every_key(signalling)).unwrap();
    for text in [document.to_owned(), with_every_key(document)] {
        let document = ClusterDocument::parse(&text).unwrap();
        assert_eq!(document.warnings, []);
    }

    let readme = include_str!("../../../mediagate/README.md");
    let [media] = files(readme)[..] else { panic!("it shows one") };
    mediagate::Config::parse(media).unwrap();
    mediagate::Config::parse(&with_every_key(media)).unwrap();
}

#[test]
fn the_table_of_alarms_has_each_that_is_counted_and_no_other() {
    let source = include_str!("../../src/membership.rs");
    let (_, names) = source.split_once("fn alarm_name(").unwrap();
    let mut counted: Vec<&str> = quoted(names, '"').collect();
    assert!(counted.len() > 5, "{counted:?}");
    // These have a name without a kind.
    counted.extend(["document", "usage_dropped", "forged", "policy", "unknown_tenant"]);
    counted.sort_unstable();

    let (_, table) = include_str!("../../README.md").split_once("| alarm |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let names = rows.filter_map(|row| row.split('|').nth(1));
    let mut told: Vec<&str> = names.flat_map(|names| quoted(names, '`')).collect();
    told.sort_unstable();

    assert_eq!(told, counted);
}

/// Returns what stands between each two of these marks.
fn quoted(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

fn files(readme: &str) -> Vec<&str> {
    let blocks = readme.split("```toml\n").skip(1);
    blocks.filter_map(|rest| rest.split_once("```").map(|(file, _)| file)).collect()
}

/// Takes the mark off the keys that may be left out.
fn with_every_key(file: &str) -> String {
    let lines = file.lines().map(|line| line.strip_prefix("# ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}
