//! The small language of the ladders.

use std::time::Duration;

use b2bua::admission::{Elsewhere, Refused, Shared};
use b2bua::{Config, Input, MediaEvent, Route};
use failover::NodeId;

use crate::phone::Phone;
use crate::world::World;

/// Runs the steps of a ladder; returns it with what really happened.
pub(crate) fn run(world: &mut World, script: &str) -> String {
    let mut out = String::new();
    for line in script.lines() {
        if line.starts_with("  ") {
            continue;
        }
        out += line;
        out.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if world.rebuilds {
            world.rebuild();
        }
        step(world, line);
        if world.rebuilds {
            repeat(world);
        }
        for line in world.log.drain(..) {
            out += &line;
            out.push('\n');
        }
    }
    out
}

/// Returns a world with two mediagates, alice, and bob, who is registered.
pub(crate) fn ready(config: Config) -> World {
    let mut world = World::new(config);
    world.steps(&[
        "gateway 31",
        "gateway 32",
        "phone alice 192.0.2.1:5060",
        "phone bob 192.0.2.2:5060",
        "bob registers",
    ]);
    world
}

/// Lets phones repeat what a rebuild has swallowed.
fn repeat(world: &mut World) {
    let names: Vec<String> = world.phones.keys().cloned().collect();
    for _ in 0..2 {
        for name in &names {
            let phone = world.phones.get_mut(name).unwrap();
            let texts = [phone.unanswered(), phone.answer_anew()];
            let from = phone.addr;
            for text in texts.into_iter().flatten() {
                world.send(from, &text);
            }
        }
    }
}

/// Does one step.
pub(crate) fn step(world: &mut World, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    match &words[..] {
        ["phone", name, addr] => return world.add_phone(name, addr),
        ["calls", "wait"] | ["call", ..] => return at_desk(world, &words[1..]),
        ["gateway", id] => return world.add_gateway(id.parse().unwrap()),
        ["timers", expires, min] => {
            return world.set_timers(expires.parse().unwrap(), min.parse().unwrap());
        }
        ["wait", ms] => return world.advance(Duration::from_millis(ms.parse().unwrap())),
        [gateway, rest @ ..] if is_gateway(gateway) => return at_gateway(world, gateway, rest),
        _ => {}
    }
    let [name, action @ ..] = &words[..] else { panic!("{line}") };
    if *action == ["deaf"] {
        world.deaf.insert((*name).to_owned());
        return;
    }
    let phone = world.phones.get_mut(*name).unwrap_or_else(|| panic!("no phone: {line}"));
    if prepare(phone, action) {
        return;
    }
    let from = phone.addr;
    let text = match action {
        ["registers"] => phone.register(600),
        ["registers", "as", user] => phone.register_as(user),
        ["unregisters"] => phone.register(0),
        ["calls", user] => phone.call(user, true),
        ["calls", user, "without", "sdp"] => phone.call(user, false),
        ["cancels"] => phone.cancel(),
        ["cancels", "reinvite"] => phone.cancel_reinvite(),
        ["acks"] => phone.ack(false),
        ["acks", "with", "sdp"] => phone.ack(true),
        ["repeats"] => phone.last.clone().unwrap(),
        ["holds"] => {
            phone.direction = "sendonly";
            phone.invite(true, true)
        }
        ["resumes"] => {
            phone.direction = "sendrecv";
            phone.invite(true, true)
        }
        ["refreshes"] => phone.invite(true, false),
        ["reinvites", "without", "sdp"] => phone.invite(false, false),
        ["answers", "422", "at", "least", min] => {
            phone.answer(422, false, &format!("Min-SE: {min}\r\n"))
        }
        ["reinvites"] => phone.invite(true, true),
        ["says", method] => phone.say(method, None),
        ["says", method, body] => phone.say(method, Some(body)),
        ["answers", "cancel"] => phone.answer_cancel(),
        ["answers", status] => phone.answer(status.parse().unwrap(), false, ""),
        ["answers", status, "with", "sdp"] => phone.answer(status.parse().unwrap(), true, ""),
        ["answers", status, "as", tag, "with", "sdp"] => {
            let asked = phone.asked.clone().unwrap();
            phone.answer_to(&asked, status.parse().unwrap(), true, "", Some(tag))
        }
        ["answers", status, "as", tag] => {
            let asked = phone.asked.clone().unwrap();
            phone.answer_to(&asked, status.parse().unwrap(), false, "", Some(tag))
        }
        ["answers", status, "after", seconds] => {
            let extra = format!("Retry-After: {seconds}\r\n");
            phone.answer(status.parse().unwrap(), false, &extra)
        }
        _ => panic!("no such step: {line}"),
    };
    world.send(from, &text);
}

/// Changes how a phone will speak; returns whether that is the step.
fn prepare(phone: &mut Phone, action: &[&str]) -> bool {
    match action {
        ["takes", codecs] => {
            phone.codecs = Box::leak(codecs.replace(',', " ").into_boxed_str());
        }
        ["turns", direction] => {
            phone.direction = Box::leak((*direction).to_owned().into_boxed_str());
        }
        ["knows", "timers"] => phone.timer = "Supported: timer\r\n".to_owned(),
        ["asks", "for", expires] => {
            phone.timer = format!("Supported: timer\r\nSession-Expires: {expires}\r\n");
        }
        ["allows", methods] => {
            phone.allow = format!("Allow: {}\r\n", methods.replace(',', ", "));
        }
        _ => return false,
    }
    true
}

/// Whoever decides about new calls does something.
fn at_desk(world: &mut World, action: &[&str]) {
    let reason = |status: &str| format!("SIP;cause={status};text=\"limit reached\"").into();
    match action {
        ["wait"] => world.desk.waits = true,
        ["may", "be"] => world.decide(None),
        ["is", "refused", status] => world.decide(Some(Refused {
            status: status.parse().unwrap(),
            reason: reason(status),
            elsewhere: None,
        })),
        ["goes", "to", segments] => world.decide(Some(Refused {
            status: 480,
            reason: reason("480"),
            elsewhere: Some(elsewhere(segments)),
        })),
        ["may", "go", "to", segments] => world.desk.elsewhere = Some(elsewhere(segments)),
        _ => panic!("no such step: {action:?}"),
    }
}

fn elsewhere(segments: &str) -> Elsewhere {
    let targets = segments.split(',').map(|addr| addr.parse().unwrap()).collect();
    let shared = Shared { tried: vec![1], profile: "menu".into(), outbound: false };
    Elsewhere { targets, shared }
}

fn is_gateway(word: &str) -> bool {
    word.strip_prefix('g').is_some_and(|id| id.parse::<u16>().is_ok())
}

fn at_gateway(world: &mut World, name: &str, action: &[&str]) {
    let id = NodeId(name[1..].parse().unwrap());
    let gateway = world.gateways.get_mut(&id).unwrap();
    let boot = gateway.boot;
    let calls: Vec<_> = gateway.open.keys().copied().collect();
    match action {
        ["dies"] => {
            gateway.alive = false;
            gateway.open.clear();
            world.observer.dead.insert(gateway.ip.to_string());
            world.deaths.push((id, boot));
            world.input(Input::GatewayDead { gateway: id, boot });
        }
        ["returns"] => {
            gateway.boot.0 += 1000;
            gateway.alive = true;
            gateway.taken.clear();
            world.observer.dead.remove(&gateway.ip.to_string());
        }
        ["fills"] => gateway.full = true,
        ["fails"] => {
            for call in calls {
                let event = MediaEvent::Failed { call, epoch: b2bua::Epoch(1), leg: 0 };
                world.input(Input::Media { gateway: id, boot, event });
            }
        }
        ["hears", "nothing"] => {
            for call in calls {
                let event = MediaEvent::Silent { call, epoch: b2bua::Epoch(1), leg: 0 };
                world.input(Input::Media { gateway: id, boot, event });
            }
        }
        _ => panic!("no such step: {name} {action:?}"),
    }
}

/// A trunk route, for calls that no phone is registered for.
pub(crate) fn config() -> Config {
    let addr = |text: &str| text.parse::<std::net::SocketAddr>().unwrap().into();
    let targets = vec![addr("192.0.2.21:5060"), addr("192.0.2.22:5060")];
    Config {
        routes: vec![Route { prefix: b"9".to_vec(), targets }],
        ring: Duration::from_secs(60),
        stores: true,
        // The ladders that have timers say so.
        session_expires: 0,
        ..Config::default()
    }
}
