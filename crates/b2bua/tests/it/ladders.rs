//! Golden ladders: each file is a call, step by step, with everything that was said. `UPDATE=1`
//! writes them anew.

use std::collections::BTreeSet;
use std::path::Path;

use crate::script;
use crate::world::{World, charge};

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

/// Encodes each record between any two steps, drops the machine and builds another one from the
/// bytes. Phones see the same messages in the same order, but for copies and gaps in our CSeq.
#[test]
fn a_rebuild_between_any_two_inputs_is_not_noticed() {
    for (path, text) in ladders() {
        let mut plain = World::new(script::config());
        script::run(&mut plain, &text);
        let mut rebuilt = World::new(script::config());
        rebuilt.rebuilds = true;
        script::run(&mut rebuilt, &text);
        for (name, phone) in &plain.phones {
            let other = &rebuilt.phones[name];
            assert_eq!(seen(phone), seen(other), "{name} in {}", path.display());
            assert!(other.acks.len() >= phone.acks.len(), "{name} in {}", path.display());
        }
        assert_eq!(causes(&plain), causes(&rebuilt), "{}", path.display());
        assert!(rebuilt.record_len_max <= 2048, "{}: {}", path.display(), rebuilt.record_len_max);
    }
}

/// Whoever counts calls is asked once for each, and told once when it ends; phones see no difference.
#[test]
fn every_ladder_happens_as_written_when_calls_are_counted() {
    for rebuilds in [false, true] {
        for (path, text) in ladders() {
            let mut plain = World::new(script::config());
            script::run(&mut plain, &text);
            let mut counted = World::new(b2bua::Config { admits: true, ..script::config() });
            counted.rebuilds = rebuilds;
            script::run(&mut counted, &text);
            for (name, phone) in &plain.phones {
                let other = &counted.phones[name];
                assert_eq!(seen(phone), seen(other), "{name} in {}", path.display());
            }
            assert_eq!(causes(&plain), causes(&counted), "{}", path.display());
            let live: Vec<_> = counted.b2b.charges().map(|(call, _)| call).collect();
            assert_eq!(counted.desk.counted.iter().copied().collect::<Vec<_>>(), live);
            assert_eq!(live.len(), counted.b2b.figures().calls, "{}", path.display());
            assert!(counted.details.iter().all(|detail| detail.charge == Some(charge())));
        }
    }
}

/// What a phone got, without numbers that may differ; copies, repeated requests and further ACKs of
/// one 2xx count once.
fn seen(phone: &crate::phone::Phone) -> Vec<String> {
    let mut acked = BTreeSet::new();
    let mut is_new = |message: &&crate::phone::Text| {
        message.method() != "ACK"
            || acked.insert((message.header("Call-ID").to_owned(), message.cseq()))
    };
    let mut seen: Vec<String> =
        phone.inbox.iter().filter(&mut is_new).map(crate::world::summary).collect();
    seen.dedup();
    seen
}

fn causes(world: &World) -> Vec<b2bua::Cause> {
    world.details.iter().map(|detail| detail.cause).collect()
}

fn ladders() -> Vec<(std::path::PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/testdata");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}
