//! Phones, gateways and rebuilds at random: whatever happens, the invariants of the observer hold
//! on the way, and in the end each call is either whole or over and nothing is left behind.

use std::time::Duration;

use b2bua::Config;
use b2bua::admission::Refused;
use failover::NodeId;
use failover::record::{ClientState, Phase};

use crate::phone::{Phone, Text};
use crate::script;
use crate::world::{World, trace};

#[test]
fn random_calls_keep_every_invariant_and_leave_nothing_behind() {
    for seed in 0..seeds() {
        Chaos::new(seed, false).run();
    }
}

#[test]
fn random_calls_survive_rebuilds_at_random_moments() {
    for seed in 0..seeds() {
        Chaos::new(seed, true).run();
    }
}

/// At every message the standby holds enough to go on: that is what barriers are for.
#[test]
fn random_calls_survive_takeovers_by_a_standby_that_knows_only_what_barriers_say() {
    for seed in 0..seeds() {
        Chaos { takeovers: true, ..Chaos::new(seed, true) }.run();
    }
}

/// Somebody decides about each call, at once or late, for or against it; meanwhile it may be
/// cancelled, lose its owner, or wait for too long.
#[test]
fn random_calls_count_from_their_admission_to_their_end() {
    for seed in 0..seeds() {
        Chaos::new(seed, false).counted().run();
    }
}

#[test]
fn random_calls_count_until_their_end_whoever_owns_them() {
    for seed in 0..seeds() {
        Chaos { takeovers: true, ..Chaos::new(seed, true) }.counted().run();
    }
}

/// `SEEDS=20000` runs as many.
fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300)
}

struct Chaos {
    world: World,
    random: Random,
    rebuilds: bool,
    /// Rebuilt from what the standby holds, in a new epoch.
    takeovers: bool,
    seed: u64,
}

const PHONES: [&str; 3] = ["alice", "bob", "carol"];

impl Chaos {
    fn new(seed: u64, rebuilds: bool) -> Self {
        // Every other plan has timers, so short that they matter.
        let session_expires = if seed % 2 == 1 { 90 } else { 0 };
        let ring = Duration::from_secs(20);
        let config = Config { ring, session_expires, ..script::config() };
        let mut world = World::new(config);
        for id in 31..34 {
            world.add_gateway(id);
        }
        let mut chaos = Self { world, random: Random(seed), rebuilds, takeovers: false, seed };
        for index in 0..PHONES.len() {
            chaos.renew(index);
            chaos.say(index, |phone| phone.register(3600));
            chaos.say(index, |phone| phone.register_as("team"));
        }
        chaos
    }

    /// New calls wait until somebody decides.
    fn counted(mut self) -> Self {
        self.world.count_calls();
        self.world.desk.waits = true;
        for index in 0..PHONES.len() {
            self.renew(index);
            self.say(index, |phone| phone.register(3600));
            self.say(index, |phone| phone.register_as("team"));
        }
        self
    }

    /// Decides about some of the calls that wait.
    fn decide(&mut self) {
        while !self.world.desk.asks.is_empty() && 0 < self.random.below(3) {
            let reason = "SIP;cause=480;text=\"limit reached\"".into();
            let refused = Refused { status: 480, reason, elsewhere: None };
            let refused = (self.random.below(4) == 0).then_some(refused);
            self.world.decide(refused);
        }
    }

    fn check_counted(&self) {
        let counted = &self.world.desk.counted;
        let live = self.world.b2b.charges().map(|(call, _)| call);
        assert!(counted.iter().copied().eq(live), "seed {}: {counted:?}", self.seed);
    }

    fn run(&mut self) {
        trace(|| format!("seed {}", self.seed));
        let steps = 20 + self.random.below(100);
        for _ in 0..steps {
            match self.random.below(20) {
                0 => self.shake_gateways(),
                1..4 => {
                    let ms = self.random.below(3000);
                    self.world.advance(Duration::from_millis(ms));
                }
                4 if self.takeovers => self.world.take_over(),
                4 if self.rebuilds => self.world.rebuild(),
                _ => {
                    let phone = usize::try_from(self.random.below(3)).unwrap();
                    self.act(phone);
                }
            }
            self.decide();
            self.check_counted();
        }
        self.world.desk.waits = false;
        self.calm_down();
        self.check_calls();
        self.hang_up();
        self.check_nothing_left();
        self.check_counted();
    }

    /// A phone as it comes out of the box, at the same address.
    fn renew(&mut self, index: usize) {
        let name = PHONES[index];
        let kept = self.world.phones.remove(name);
        self.world.add_phone(name, &format!("192.0.2.{}:5060", index + 1));
        if let (Some(old), Some(new)) = (kept, self.world.phones.get_mut(name)) {
            new.resume_numbers(&old);
        }
        // One refreshes what it begins, one what it accepts, if only by chance; one knows nothing of it.
        let refresher = ["uac", "uas"].get(index).filter(|_| self.seed % 2 == 1);
        if let (Some(refresher), Some(new)) = (refresher, self.world.phones.get_mut(name)) {
            new.timer =
                format!("Supported: timer\r\nSession-Expires: 90;refresher={refresher}\r\n");
            new.allow = "Allow: INVITE, ACK, BYE, CANCEL, UPDATE\r\n".repeat(1 - index);
        }
    }

    fn phone(&self, index: usize) -> &Phone {
        &self.world.phones[PHONES[index]]
    }

    fn say(&mut self, index: usize, write: impl FnOnce(&mut Phone) -> String) {
        let phone = self.world.phones.get_mut(PHONES[index]).unwrap();
        let text = write(phone);
        let from = phone.addr;
        self.world.send(from, &text);
    }

    fn shake_gateways(&mut self) {
        let id = 31 + u16::try_from(self.random.below(3)).unwrap();
        let what = match self.world.gateways[&NodeId(id)].alive {
            false => "returns",
            true if self.random.below(6) == 0 => "fails",
            true => "dies",
        };
        trace(|| format!("g{id} {what}"));
        script::step(&mut self.world, &format!("g{id} {what}"));
    }

    /// A phone does something that it may do now.
    fn act(&mut self, index: usize) {
        let phone = self.phone(index);
        if let Some(asked) = phone.todo.first().cloned()
            && self.random.below(10) < 7
        {
            return self.answer(index, &asked);
        }
        if self.phone(index).owes_ack() {
            if self.random.below(10) < 9 {
                self.acknowledge(index);
            }
            return;
        }
        let phone = self.phone(index);
        if !phone.talks() {
            if phone.todo.is_empty() && !phone.is_inviting() {
                let called = usize::try_from(self.random.below(4)).unwrap();
                // All of them are the team's phones.
                let other = PHONES.get(called).copied().unwrap_or("team");
                let with_sdp = self.random.below(8) != 0;
                self.say(index, |phone| phone.call(other, with_sdp));
            } else if phone.is_inviting() && self.random.below(6) == 0 {
                self.say(index, Phone::cancel);
            }
            return;
        }
        self.change(index);
    }

    fn change(&mut self, index: usize) {
        let busy = self.phone(index).is_inviting();
        let asked = self.phone(index).todo.iter().any(|asked| asked.method() == "INVITE");
        let what = self.random.below(12);
        match what {
            0..3 if !busy && !asked => {
                let direction =
                    ["sendrecv", "sendonly", "inactive"][usize::try_from(what).unwrap()];
                self.say(index, |phone| {
                    phone.direction = direction;
                    phone.invite(true, true)
                });
            }
            3 if !busy && !asked => self.say(index, |phone| phone.invite(true, false)),
            4 if !busy && !asked => self.say(index, |phone| phone.invite(false, false)),
            5 => self.say(index, |phone| phone.say("INFO", Some("Signal=1"))),
            9 => self.say(index, |phone| phone.say("UPDATE", None)),
            6 => self.say(index, |phone| phone.say("OPTIONS", None)),
            7 if busy => self.say(index, Phone::cancel_reinvite),
            8 if !busy && self.random.below(3) == 0 => {
                self.say(index, |phone| phone.say("BYE", None));
                self.renew(index);
            }
            _ => {}
        }
    }

    fn acknowledge(&mut self, index: usize) {
        let phone = self.phone(index);
        let answer = phone.final_answer().unwrap();
        let with_sdp = answer.status() < 300 && phone.invited_without_sdp();
        let is_over = 300 <= answer.status() && !phone.talks_at_all();
        self.say(index, |phone| phone.ack(with_sdp));
        if is_over {
            self.renew(index);
        }
    }

    fn answer(&mut self, index: usize, asked: &Text) {
        if self.phone(index).is_busy_for(asked) {
            let status = if asked.method() == "INVITE" { 486 } else { 481 };
            return self.say(index, |phone| phone.answer_aside(asked, status));
        }
        match asked.method() {
            "INVITE" => {
                let first = asked.tag("To").is_empty();
                let (status, sdp) = match self.random.below(20) {
                    0 => (100, false),
                    1 | 2 if first => (180, false),
                    3 if first => (183, true),
                    4 => (486, false),
                    5 => (488, false),
                    6 => (491, false),
                    7 => (500, false),
                    8 if self.random.below(2) == 0 => (481, false),
                    9 => (503, false),
                    10 | 11 => return,
                    _ => (200, true),
                };
                self.say(index, |phone| phone.answer_to(asked, status, sdp, "", None));
                if 300 <= status && (first || status == 481) {
                    self.renew(index);
                }
            }
            "CANCEL" => {
                self.say(index, |phone| phone.answer_to(asked, 200, false, "", None));
                let branch = asked.branch();
                let invite = self.phone(index).todo.iter().find(|other| other.branch() == branch);
                let Some(invite) = invite.cloned() else { return };
                let (status, sdp) =
                    if self.random.below(5) == 0 { (200, true) } else { (487, false) };
                self.say(index, |phone| phone.answer_to(&invite, status, sdp, "", None));
                if status == 487 && invite.tag("To").is_empty() {
                    self.renew(index);
                }
            }
            "BYE" => {
                self.say(index, |phone| phone.answer_to(asked, 200, false, "", None));
                for other in self.phone(index).todo.clone() {
                    let status = if other.method() == "INVITE" { 487 } else { 200 };
                    self.say(index, |phone| phone.answer_to(&other, status, false, "", None));
                }
                self.renew(index);
            }
            _ => self.say(index, |phone| phone.answer_to(asked, 200, false, "", None)),
        }
    }

    /// All phones answer everything well for a while, and there are gateways again.
    fn calm_down(&mut self) {
        for id in 31..33 {
            if !self.world.gateways[&NodeId(id)].alive {
                script::step(&mut self.world, &format!("g{id} returns"));
            }
        }
        for _ in 0..90 {
            for index in 0..PHONES.len() {
                self.behave(index);
            }
            self.world.advance(Duration::from_millis(1000));
        }
        // What was asked in the last second.
        for index in 0..PHONES.len() {
            self.behave(index);
        }
    }

    fn behave(&mut self, index: usize) {
        while let Some(asked) = self.phone(index).todo.first().cloned() {
            if self.phone(index).is_busy_for(&asked) {
                self.answer(index, &asked);
                continue;
            }
            match asked.method() {
                "INVITE" => {
                    self.say(index, |phone| phone.answer_to(&asked, 200, true, "", None));
                }
                "CANCEL" => {
                    self.say(index, |phone| phone.answer_to(&asked, 200, false, "", None));
                    let branch = asked.branch();
                    let todo = &self.phone(index).todo;
                    let invite = todo.iter().find(|other| other.branch() == branch).cloned();
                    if let Some(invite) = invite {
                        self.say(index, |phone| phone.answer_to(&invite, 487, false, "", None));
                    }
                }
                _ => self.answer(index, &asked),
            }
        }
        if self.phone(index).owes_ack() {
            self.acknowledge(index);
        }
    }

    fn check_calls(&self) {
        for record in self.world.b2b.records() {
            let context = format!("seed {}: {record:?}", self.seed);
            if record.is_ended() {
                continue;
            }
            assert_eq!(record.phase, Phase::Talking, "I10: in doubt. {context}");
            let holder = record.holder.unwrap_or_else(|| panic!("no ports. {context}"));
            assert!(self.world.gateways[&holder.gateway].alive, "dead holder. {context}");
            let open = &self.world.gateways[&holder.gateway].open;
            assert!(open.contains_key(&record.call), "not open. {context}");
            assert_eq!(record.fork, None, "somebody still rings. {context}");
            for (index, leg) in record.legs.iter().enumerate() {
                let told = !record.is_stale(index) || leg.moving.apart;
                assert!(told, "I10: leg {index} is not told. {context}");
                assert!(leg.incoming.is_empty(), "an INVITE of {index} is open. {context}");
                let open = |state: &ClientState| {
                    !matches!(state, ClientState::Accepted { acked: true, .. })
                };
                let open = leg.outgoing.iter().any(|invite| open(&invite.state));
                assert!(!open, "an INVITE to {index} is open. {context}");
            }
        }
    }

    fn hang_up(&mut self) {
        for index in 0..PHONES.len() {
            if self.phone(index).talks() {
                self.say(index, |phone| phone.say("BYE", None));
                self.renew(index);
            }
        }
        for _ in 0..150 {
            for index in 0..PHONES.len() {
                self.behave(index);
            }
            self.world.advance(Duration::from_millis(1000));
        }
    }

    fn check_nothing_left(&self) {
        let left: Vec<_> = self.world.b2b.records().collect();
        assert!(left.is_empty(), "seed {}: {left:?}", self.seed);
        assert_eq!(self.world.b2b.figures().calls, 0, "seed {}", self.seed);
        assert_eq!(self.world.b2b.figures().moves_in_flight, 0, "seed {}", self.seed);
        for (id, gateway) in &self.world.gateways {
            assert!(gateway.open.is_empty(), "seed {}: open at {id}", self.seed);
            let all_free = gateway.taken.is_empty() || !gateway.alive;
            assert!(all_free, "seed {}: ports of {id}", self.seed);
        }
        let ended = u64::try_from(self.world.details.len()).unwrap();
        assert_eq!(self.world.begun(), ended, "seed {}: I6: one detail a call", self.seed);
    }
}

/// A small generator; the tests need no good one.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
