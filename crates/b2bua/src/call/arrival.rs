//! Whether a phone's media comes to where it moved.

use std::time::Duration;

use failover::UnixMs;
use failover::record::Phase;

use super::Call;
use crate::core::Core;
use crate::io::Event;

/// What is awaited of a leg since its media last moved. It stands in no record: the next owner does not
/// wait, as a mediagate says only once that it hears a leg, and when it hears nothing for long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    /// The media is where it moved in this process, and was not heard there.
    is_open: bool,
    /// When its media is overdue.
    due_at: Option<UnixMs>,
    /// The phone was told a second time.
    repeated: bool,
}

impl Arrival {
    /// The media has moved.
    pub(super) fn moved() -> Self {
        Self { is_open: true, ..Self::default() }
    }

    /// The leg is heard.
    pub(super) fn heard(&mut self) {
        *self = Self::default();
    }

    pub(super) fn due_at(&self) -> Option<UnixMs> {
        self.due_at
    }
}

impl Call {
    /// The phone has accepted the address to which its media moved: it should come there soon.
    pub(super) fn await_media(&mut self, core: &Core, leg: usize) {
        let waits = self.arrivals[leg].is_open && self.should_send(leg);
        self.arrivals[leg].due_at = waits.then(|| core.after(ARRIVAL));
    }

    /// Tells a phone its media address once more when nothing has come there, then only the operator.
    pub(super) fn miss_media(&mut self, core: &mut Core, leg: usize) {
        let unix = core.unix;
        if self.arrivals[leg].due_at.take_if(|at| *at <= unix).is_none() {
            return;
        }
        // What is told anew anyhow, or is on hold meanwhile, is not missed.
        if self.record.is_stale(leg) || !self.should_send(leg) {
            return;
        }
        if std::mem::replace(&mut self.arrivals[leg].repeated, true) {
            core.counters.unheard += 1;
            core.event(Event::Unheard { call: self.record.call, leg });
        } else {
            self.record.legs[leg].resync = true;
        }
    }

    fn should_send(&self, leg: usize) -> bool {
        self.record.phase == Phase::Talking && self.sends(leg)
    }
}

/// Media comes so long after the 200 at the latest.
const ARRIVAL: Duration = Duration::from_millis(500);
