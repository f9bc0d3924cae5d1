//! The table at the end, and the JSON object.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use examples::check::Check;
use examples::figures::millis_text;
use serde::Serialize;

use crate::survive::args::{Args, How, Role};
use crate::survive::layout::Layout;
use crate::survive::outage::Outage;
use crate::survive::restart::Restart;
use crate::survive::targets::{Terms, checks, hog_checks, restart_checks};

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Report {
    layout: Layout,
    how: How,
    calls: u32,
    kills: u32,
    slack: u32,
    seed: u64,
    pub(crate) realtime: bool,
    roles: Vec<RoleReport>,
    pub(crate) restarts: Vec<Restart>,
    pub(crate) hogs: Option<Outage>,
}

#[derive(Debug)]
struct RoleReport {
    role: Role,
    /// Measures that were void and repeated.
    void: u32,
    outages: Vec<Outage>,
}

/// The JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct Json<'a> {
    layout: Layout,
    how: How,
    /// Calls.
    n: u32,
    /// How many times each role died.
    kills: u32,
    /// How many times as wide as the targets the limits of time were.
    slack: u32,
    seed: u64,
    realtime: bool,
    /// Whether every target was met, per death and pooled.
    met: bool,
    roles: Vec<RoleJson<'a>>,
    restarts: &'a [Restart],
    hogs: Option<HogsJson<'a>>,
}

#[derive(Debug, Serialize)]
struct RoleJson<'a> {
    role: Role,
    void: u32,
    pooled: Outage,
    checks: Vec<Check>,
    deaths: &'a [Outage],
}

#[derive(Debug, Serialize)]
struct HogsJson<'a> {
    seen: &'a Outage,
    checks: Vec<Check>,
}

impl Report {
    pub(crate) fn new(args: &Args) -> Self {
        Self {
            layout: args.layout,
            how: args.how,
            calls: args.calls,
            kills: args.kills,
            slack: args.slack,
            seed: args.seed,
            realtime: false,
            roles: Vec::new(),
            restarts: Vec::new(),
            hogs: None,
        }
    }

    pub(crate) fn add(&mut self, role: Role, outage: Outage) {
        self.role(role).outages.push(outage);
    }

    pub(crate) fn set_void(&mut self, role: Role, void: u32) {
        self.role(role).void = void;
    }

    /// Returns whether nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.restarts.is_empty() && self.hogs.is_none()
    }

    /// Returns whether every target was met, per death and pooled.
    pub(crate) fn is_met(&self) -> bool {
        let of_roles = self.roles.iter().flat_map(|role| {
            let all = role.outages.iter().map(|outage| self.checks(role.role, outage));
            all.chain([self.checks(role.role, &role.pooled())]).flatten()
        });
        let of_hogs = self.hogs.iter().flat_map(hog_checks);
        let of_restarts = self.restarts.iter().flat_map(restart_checks);
        of_roles.chain(of_restarts).chain(of_hogs).all(|check| check.is_met)
    }

    /// Returns the JSON object.
    pub(crate) fn json(&self) -> Json<'_> {
        let roles = self.roles.iter().map(|report| {
            let (role, void, pooled) = (report.role, report.void, report.pooled());
            let checks = self.checks(role, &pooled);
            RoleJson { role, void, pooled, checks, deaths: &report.outages }
        });
        let hogs = self.hogs.as_ref();
        Json {
            layout: self.layout,
            how: self.how,
            n: self.calls,
            kills: self.kills,
            slack: self.slack,
            seed: self.seed,
            realtime: self.realtime,
            met: self.is_met(),
            roles: roles.collect(),
            restarts: &self.restarts,
            hogs: hogs.map(|seen| HogsJson { seen, checks: hog_checks(seen) }),
        }
    }

    /// Returns the table for people.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{}, {} calls, how {}, seed {}, {} real-time class\n\n",
            self.layout.name(),
            self.calls,
            self.how.name(),
            self.seed,
            if self.realtime { "with" } else { "without" },
        );
        if 1 < self.slack {
            // Writing to a `String` cannot fail.
            let _ = writeln!(
                text,
                "limits of time are {} times the targets; what must be kept is not relaxed\n",
                self.slack
            );
        }
        if !self.roles.is_empty() || self.hogs.is_some() {
            self.write_outages(&mut text);
        }
        self.write_checks(&mut text);
        text
    }

    fn write_outages(&self, text: &mut String) {
        text.push_str(HEAD);
        for role in &self.roles {
            for (index, outage) in role.outages.iter().enumerate() {
                text.push_str(&row(&format!("{} {}", role.role.name(), index + 1), outage));
            }
            text.push_str(&row(&format!("{} all", role.role.name()), &role.pooled()));
        }
        if let Some(outage) = &self.hogs {
            text.push_str(&row("busy", outage));
        }
        text.push_str(
            "\ntimes in ms from the death; gap: longest silence of each direction of each call, \
             about 20 when\nnothing is missing; lost: RTP packets lost outside that gap, the example's own drops (own) \
             subtracted;\n\
             sip: messages that phones of kept calls received; new: first new call heard both ways\n",
        );
        let outages = self.roles.iter().flat_map(|role| &role.outages).chain(&self.hogs);
        let late = outages.map(|outage| outage.own_lateness).max();
        text.push_str(&format!(
            "the example's own clock came at most {} ms late\n\n",
            millis_text(late)
        ));
    }

    fn write_checks(&self, text: &mut String) {
        // Writing to a `String` cannot fail.
        for role in &self.roles {
            let (name, pooled) = (role.role.name(), role.pooled());
            for check in self.checks(role.role, &pooled) {
                let _ = writeln!(text, "{}", line(name, &check));
            }
            for (index, outage) in role.outages.iter().enumerate() {
                for check in self.checks(role.role, outage).iter().filter(|check| !check.is_met) {
                    let _ = writeln!(text, "{}", line(&format!("{name} {}", index + 1), check));
                }
            }
            if let Some(controls) = &pooled.controls {
                let _ = writeln!(text, "        {name}: {}", controls.line());
                let (crossed, came) = (controls.crossed_calls, kinds(&controls.crossed));
                let _ = writeln!(
                    text,
                    "        to {crossed} calls that were just being held, and resumed later, came: {came}\n\
                     \x20       (without a death: {} INVITE, ACK, 100 and 200 each)",
                    2 * crossed
                );
                let _ = writeln!(
                    text,
                    "        to calls that only talked came: {}",
                    kinds(&controls.quiet)
                );
            }
            for fault in pooled.faults.iter().take(20) {
                let _ = writeln!(text, "        {fault}");
            }
            if 0 < role.void {
                let _ = writeln!(text, "void    {name}: {} measures, each repeated", role.void);
            }
        }
        for (index, restart) in self.restarts.iter().enumerate() {
            let name = format!("{} {}", restart.role.map_or("everything", Role::name), index + 1);
            for check in restart_checks(restart) {
                let _ = writeln!(text, "{}", line(&name, &check));
            }
            let _ = writeln!(text, "        {name}: {}", restart.line());
            let _ =
                writeln!(text, "        to the phones of calls came: {}", kinds(&restart.messages));
            for fault in restart.faults.iter().take(20) {
                let _ = writeln!(text, "        {fault}");
            }
        }
        for check in self.hogs.iter().flat_map(hog_checks) {
            let _ = writeln!(text, "{}", line("busy", &check));
        }
    }

    /// Returns whether one death met its targets.
    pub(crate) fn meets(&self, role: Role, outage: &Outage) -> bool {
        self.checks(role, outage).iter().all(|check| check.is_met)
    }

    fn checks(&self, role: Role, outage: &Outage) -> Vec<Check> {
        let Self { how, calls, realtime, slack, .. } = *self;
        checks(role, Terms { how, calls, realtime, slack }, outage)
    }

    fn role(&mut self, role: Role) -> &mut RoleReport {
        let index = self.roles.iter().position(|known| known.role == role).unwrap_or_else(|| {
            self.roles.push(RoleReport { role, void: 0, outages: Vec::new() });
            self.roles.len() - 1
        });
        &mut self.roles[index]
    }
}

impl RoleReport {
    /// Returns all deaths as one.
    fn pooled(&self) -> Outage {
        Outage::pooled(&self.outages)
    }
}

const HEAD: &str = "                 kept       first re-INVITE     voice gap                       \
                    lost   own   sip     new\n\
                    \x20                              p50     p99     p50     p95     p99     max\n";

fn kinds(messages: &BTreeMap<String, u64>) -> String {
    let words = messages.iter().map(|(kind, count)| format!("{count} {kind}"));
    let text = words.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "nothing".to_owned() } else { text }
}

fn row(name: &str, outage: &Outage) -> String {
    let (first, gap) = (&outage.first_reinvite, &outage.gap);
    format!(
        "{name:<14} {:>5}/{:<5} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>5} {:>5} {:>7}\n",
        outage.kept,
        outage.calls,
        first.text(50),
        first.text(99),
        gap.text(50),
        gap.text(95),
        gap.text(99),
        gap.text(100),
        outage.lost_beyond_gap,
        outage.own_drops,
        outage.sip_seen,
        millis_text(outage.new_call),
    )
}

fn line(name: &str, check: &Check) -> String {
    let word = if check.is_met { "met    " } else { "MISSED " };
    format!("{word} {name}: {} {} (limit {})", check.name, check.measured, check.limit)
}
