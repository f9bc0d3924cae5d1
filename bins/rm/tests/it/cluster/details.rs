//! What the nodes of a cluster say of its calls: the lines that an operator reads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::world::World;

/// What the nodes that run in this thread say of calls that are answered, from its creation on.
pub(crate) struct Details(PhantomData<*const ()>);

/// What was said of one call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Whom its INVITE named.
    pub(crate) to: String,
    /// How often a b2b wrote that it was answered.
    answered: usize,
    /// Each detail record.
    pub(crate) details: Vec<String>,
}

impl Details {
    pub(crate) fn listen() -> Self {
        install();
        SAID.set(Some(Vec::new()));
        Self(PhantomData)
    }

    /// What is wrong in the detail records of a world, by call: one that was answered and is not among
    /// `live` has none, or one has two. `may_repeat`: a second copy that is equal is none, as the
    /// owner may have died before it could say that it had written the first.
    pub(crate) fn wrong(
        &self,
        world: &World,
        live: &[String],
        may_repeat: bool,
    ) -> Vec<(String, Told)> {
        let told = told(world).into_iter().map(|(call, mut told)| {
            if may_repeat {
                told.details.dedup();
            }
            (call, told)
        });
        let wrong = told.filter(|(call, told)| {
            let expected = usize::from(!live.contains(call));
            told.details.len() != expected && (0 < told.answered || 1 < told.details.len())
        });
        wrong.collect()
    }

    /// How often a detail record was written that was there already.
    pub(crate) fn repeats(&self, world: &World) -> usize {
        told(world).values().map(|told| told.details.len().saturating_sub(1)).sum()
    }

    /// How many calls have a detail record.
    pub(crate) fn count(&self, world: &World) -> usize {
        told(world).values().filter(|told| !told.details.is_empty()).count()
    }
}

/// What was said so far, by call.
fn told(world: &World) -> BTreeMap<String, Told> {
    let said = SAID.with_borrow(|said| said.clone().unwrap_or_default());
    let mut told = BTreeMap::<String, Told>::new();
    for Line { message, call, to } in said {
        let told = told.entry(call).or_default();
        told.answered += usize::from(message == "call answered");
        if message == "call began" {
            told.to = to;
        }
    }
    for line in world.lines() {
        let object = line.strip_prefix("call ended ").expect("a call's detail");
        let detail: serde_json::Value = serde_json::from_str(object).unwrap();
        let call = detail["call"].as_str().unwrap().to_owned();
        told.entry(call).or_default().details.push(line.clone());
    }
    told
}

impl Drop for Details {
    fn drop(&mut self) {
        SAID.set(None);
    }
}

/// The warnings and errors of all nodes that run in this thread, from its creation on.
pub(crate) struct Warnings(PhantomData<*const ()>);

impl Warnings {
    pub(crate) fn listen() -> Self {
        install();
        WARNED.set(Some(Vec::new()));
        Self(PhantomData)
    }

    /// Returns how many there were with these words.
    pub(crate) fn count(&self, words: &str) -> usize {
        WARNED.with_borrow(|warned| {
            warned.iter().flatten().filter(|text| text.contains(words)).count()
        })
    }
}

impl Drop for Warnings {
    fn drop(&mut self) {
        WARNED.set(None);
    }
}

/// Lets this process hear its nodes. Before the first of them runs, as who logs first decides for
/// all threads whether anybody listens.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Journal).unwrap());
}

thread_local! {
    /// Calls that began or were answered; `None` while no one listens in this thread.
    static SAID: RefCell<Option<Vec<Line>>> = const { RefCell::new(None) };
    /// `None` while no one listens in this thread.
    static WARNED: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

struct Journal;

impl Subscriber for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_warning = *metadata.level() <= Level::WARN && metadata.target().starts_with("rm::");
        metadata.is_event() && (metadata.target() == "rm::journal" || is_warning)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        if event.metadata().target() != "rm::journal" {
            WARNED.with_borrow_mut(|warned| {
                let Some(all) = warned else { return };
                event.record(&mut line);
                all.push(line.message);
            });
            return;
        }
        SAID.with_borrow_mut(|said| {
            let Some(said) = said else { return };
            event.record(&mut line);
            if matches!(&line.message[..], "call began" | "call answered") {
                said.push(line);
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// One event in pieces.
#[derive(Clone, Default)]
struct Line {
    message: String,
    call: String,
    to: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            "call" => self.call = value,
            "to" => self.to = value,
            _ => {}
        }
    }
}
