//! Scenarios in the simulator, and their checks.

use std::time::Duration;

use driver::sim::{self, Path};
use testkit::scenario::{PHONES, Problem, Scenario};
use testkit::{Command, Config, Fleet, State};

use crate::run::{A, B};

fn scenario(seed: u64, path: Path) -> Scenario<Fleet> {
    let phones = Config { phones: 4, ..Config::new([10, 0, 0, 9].into()) };
    let world = sim::Config::default();
    let mut scenario = Scenario::new(seed, world, phones);
    scenario.sim().set_path(PHONES, PHONES, path);
    let to = format!("sip:1001@{}", scenario.fleet().config().sip_addr(B));
    scenario.plan(Duration::ZERO, A, Command::Call { to });
    scenario
}

#[test]
fn calls_stand_and_end_on_a_bad_path() {
    let path = Path { loss: 0.05, duplicate: 0.05, reorder: 0.05, ..Path::default() };
    for seed in 0..100 {
        let mut scenario = scenario(seed, path);
        scenario.sim().run_for(Duration::from_secs(40));
        scenario.assert_none(&scenario.not_talking(&[(A, B)]));
        let heard = scenario.fleet().ear(A).heard(scenario.now());
        assert!(1 < heard.lost && 1 < heard.duplicated, "seed {seed}: {heard:?}");

        scenario.plan(Duration::ZERO, A, Command::Hold);
        scenario.sim().run_for(Duration::from_secs(40));
        let held = State::Talking { holds: false, held: true };
        assert_eq!(scenario.fleet().state(B), held, "seed {seed}\n{scenario}");

        scenario.plan(Duration::ZERO, B, Command::Hangup);
        scenario.sim().run_for(Duration::from_secs(80));
        scenario.assert_none(&scenario.not_idle());
    }
}

#[test]
fn a_run_can_be_stopped_at_any_message() {
    let mut scenario = scenario(1, Path::default());
    // INVITE, 180, 200, ACK.
    for message in 1..=4 {
        assert_eq!(scenario.not_talking(&[(A, B)]).len(), if message < 4 { 2 } else { 0 });
        assert!(scenario.run_until_message(Duration::from_secs(1), 1));
    }
    scenario.sim().run_for(Duration::from_secs(1));
    assert!(!scenario.run_until_message(Duration::from_secs(1), 1));
    scenario.assert_talking(&[(A, B)]);
}

#[test]
fn a_phone_that_talks_when_all_should_be_idle_is_a_ghost() {
    let mut scenario = scenario(1, Path::default());
    scenario.sim().run_for(Duration::from_secs(1));
    let to = format!("sip:1003@{}", scenario.fleet().config().sip_addr(B));
    scenario.plan(Duration::ZERO, A, Command::Hangup);
    scenario.plan(Duration::from_secs(1), B, Command::Call { to });
    scenario.sim().run_for(Duration::from_secs(2));

    let state = State::Talking { holds: false, held: false };
    assert!(scenario.not_idle().contains(&Problem::Ghost { phone: B, state }));
}
