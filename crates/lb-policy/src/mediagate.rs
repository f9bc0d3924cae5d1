//! Which media gateway carries a new call, and which one stands by for it.
//!
//! Every b2b chooses for itself, from what the controller publishes: a set-up waits for no reply.
//! The same list and the same key give the same choice everywhere.

use std::cmp::Reverse;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// What is known of one media gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gateway<'a> {
    /// Its node id; unique in the list.
    pub id: u16,
    /// The server it runs on, as its configuration names it. Gateways of one host die together.
    pub host: &'a str,
    /// Whether it takes new calls only when no gateway without this mark lives.
    pub standby: bool,
    /// Whether it lives and is admitted to new calls.
    pub alive: bool,
    /// Legs it carries now, including those the chooser gave it since it was heard.
    pub legs: u32,
    /// Legs it can carry.
    pub legs_max: u32,
}

/// Where a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The gateway that carries the call.
    pub holder: u16,
    /// The gateway to which the call moves when the holder dies; `None` when no other has room.
    pub standby: Option<u16>,
}

/// Chooses for the call that `key` names; `None` when no gateway may take it.
///
/// `signalled_on` is the host of the b2b that owns the call. In this order, the holder
/// 1. carries no `standby` mark, while one without it lives;
/// 2. has room for two legs;
/// 3. is not on `signalled_on`, while another is left;
/// 4. is among the least loaded, by sixteenths of what each can carry;
/// 5. has the highest keyed hash, so that equally loaded gateways share the calls.
///
/// The call's standby is found by [`choose_standby`].
pub fn choose(gateways: &[Gateway<'_>], signalled_on: &str, key: u64) -> Option<Choice> {
    let only_standbys = gateways.iter().all(|gateway| !gateway.alive || gateway.standby);
    let holder = gateways
        .iter()
        .filter(|gateway| gateway.standby == only_standbys && gateway.has_room())
        .min_by_key(|gateway| (gateway.host == signalled_on, gateway.rank(key)))?;
    Some(Choice {
        holder: holder.id,
        standby: choose_standby(gateways, holder.id, signalled_on, key),
    })
}

/// Chooses a new standby for a call that `holder` carries; `None` when no other gateway has room.
///
/// In this order, it is on another host than the holder, not on `signalled_on`, marked `standby`,
/// among the least loaded, and has the highest keyed hash. A holder that is not in the list shares
/// its host with nobody.
pub fn choose_standby(
    gateways: &[Gateway<'_>],
    holder: u16,
    signalled_on: &str,
    key: u64,
) -> Option<u16> {
    let holder_host =
        gateways.iter().find(|gateway| gateway.id == holder).map(|gateway| gateway.host);
    gateways
        .iter()
        .filter(|gateway| gateway.id != holder && gateway.has_room())
        .min_by_key(|gateway| {
            (
                Some(gateway.host) == holder_host,
                gateway.host == signalled_on,
                !gateway.standby,
                gateway.rank(key),
            )
        })
        .map(|gateway| gateway.id)
}

impl Gateway<'_> {
    /// Whether one more call can be carried.
    fn has_room(&self) -> bool {
        self.alive && self.legs.checked_add(LEGS_PER_CALL).is_some_and(|legs| legs <= self.legs_max)
    }

    /// The lower the better: first the load in sixteenths, coarse because it is old when it is
    /// read and everybody reads the same, then a hash that differs per call.
    fn rank(&self, key: u64) -> (u64, Reverse<u64>, u16) {
        let sixteenths = u64::from(self.legs) * 16 / u64::from(self.legs_max.max(1));
        let mut hasher = SipHasher13::new_with_keys(key, 0);
        hasher.write_u16(self.id);
        (sixteenths, Reverse(hasher.finish()), self.id)
    }
}

/// A call has two legs, and both lie on one gateway.
const LEGS_PER_CALL: u32 = 2;

#[cfg(test)]
mod tests;
