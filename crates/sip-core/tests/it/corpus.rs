//! Replays the seeds of the fuzz targets, and every finding that became one.

use std::path::Path;

use crate::checks;

#[test]
fn every_seed_of_the_fuzz_targets_passes() {
    for (target, check) in [
        ("message", checks::message as fn(&[u8])),
        ("stream", checks::stream),
        ("uri", checks::uri),
        ("sdp", checks::description),
        ("digest", checks::digest),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let seeds = std::fs::read_dir(&folder).expect("the corpus is in the tree");
        let mut count = 0;
        for seed in seeds {
            let path = seed.expect("a folder can be listed").path();
            check(&std::fs::read(&path).expect("a seed can be read"));
            count += 1;
        }
        assert!(0 < count, "{target} has no seed");
    }
}
