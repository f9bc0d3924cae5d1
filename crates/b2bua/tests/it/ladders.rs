//! Golden ladders: each file is a call, step by step, with everything that was said. `UPDATE=1`
//! writes them anew.

use std::path::Path;

use crate::script;
use crate::world::World;

#[test]
fn every_ladder_happens_as_written() {
    for (path, text) in ladders() {
        let happened = script::run(&mut World::new(script::config()), &text);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &happened).unwrap();
            continue;
        }
        assert_eq!(happened, text, "{}", path.display());
    }
}

fn ladders() -> Vec<(std::path::PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/testdata");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}
