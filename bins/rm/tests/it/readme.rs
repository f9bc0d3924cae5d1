//! The configuration files that the README shows.

#[test]
fn the_files_in_the_readme_are_sound_and_fit_each_other() {
    let readme = include_str!("../../../../README.md");
    let files: Vec<&str> = readme
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(file, _)| file))
        .collect();
    let [signalling, media] = files[..] else { panic!("the README shows {} files", files.len()) };

    let signalling = rm::Config::parse(signalling).unwrap();
    let media = mediagate::Config::parse(media).unwrap();

    let peers: Vec<_> = signalling.peers.iter().map(|peer| (peer.node.0, peer.links)).collect();
    assert_eq!(peers, [(media.node.0, media.links)]);
}
