//! The rules that failures taught, each with what goes wrong without it.

/// A rule that the tests can leave out, to show that they would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// A link is up where both ends hear each other. Without it one-way cuts end in a livelock.
    TwoWayLinks,
    /// Link states are told on. Without it two nodes that are cut from each other both lead beside
    /// a third that sees both.
    ToldLinks,
    /// An epoch names the life that declared it. Without it a coordinator that lost its file uses a
    /// number twice.
    EpochOfOneLife,
    /// A candidate that led goes on saying so. Without it a pair passes the role to and fro.
    LeadWhileCampaigning,
    /// Who leads in the lowest segment keeps the role. Without it a return elects anew.
    Incumbent,
    /// A node that starts watches before it campaigns. Without it each start is an election.
    Boot,
    /// A newcomer is taken in after a time of stability. Without it a flapping link elects each time.
    Stability,
    /// A node whose own clock jumped judges nobody for a while. Without it a pause ends in a victory.
    SelfSuspicion,
    /// A node that hears others who do not hear it waits. Without it a pause that no clock shows
    /// ends in a victory.
    Away,
    /// Terms rise with declared epochs only. Without it attempts inflate them.
    TermPerVictory,
    /// Who speaks for a segment goes on speaking. Without it the return of a node of a pair changes who
    /// counts its calls.
    Turn,
    /// The promise is on disk. Without it a restarted node obeys an epoch it had refused.
    StoredPromise,
    /// Only who should lead campaigns. Without it every loss and every start is an election of all.
    LowestCampaigns,
    /// Conditions are evaluated after every event. Without it what was true while a node could not
    /// act on it is lost for good.
    Level,
    /// A coordinator is followed by members only. Without it a node goes over to one that does not
    /// count it.
    Member,
    /// Neighbours exchange all that they know. Without it old news reaches a newcomer only when they
    /// are repeated.
    Database,
    /// A candidate that a coordinator stands before is told of its victory. Without it who missed
    /// that waits for the coordinator's next link state.
    RepeatedVictory,
    /// Campaigns of a node are few in a timeout. Without it refusals make a storm.
    Budget,
    /// Only who may win is waited for. Without it nobody leads while the lowest starts.
    Electable,
    /// The wait for stability goes on while there is a newcomer. Without it one that was broken off
    /// never ends.
    StabilityGoesOn,
    /// A newcomer is watched while it starts. Without it a start takes twice as long.
    StartsAreWatched,
    /// A segment that starts stays a member. Without it others get its share while its calls live on,
    /// and the limit is passed.
    Vacancy,
}

/// The rules that are kept: all of them, outside tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    #[cfg(test)]
    left_out: Option<Rule>,
}

impl Rules {
    /// Keeps all rules but one.
    #[cfg(test)]
    pub(crate) fn without(rule: Rule) -> Self {
        Self { left_out: Some(rule) }
    }

    #[cfg(test)]
    pub(crate) fn keep(self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests leave rules out")]
    pub(crate) fn keep(self, _rule: Rule) -> bool {
        true
    }
}
