//! What must hold for every message, whatever happens: the invariants that a phone, or who listens
//! to all of them, can see.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use b2bua::Detail;

use crate::phone::Text;
use crate::world::GATE;

/// Watches all dialogs, by Call-ID and the phone's address: a callee may be rung at several places.
#[derive(Default)]
pub(crate) struct Observer {
    dialogs: BTreeMap<(String, SocketAddr), Dialog>,
    ended: Vec<Detail>,
    /// How often the machine was rebuilt.
    pub(crate) rebuilds: usize,
    pub(crate) dead: BTreeSet<String>,
}

#[derive(Default)]
struct Dialog {
    /// Branches of our requests.
    seen: BTreeSet<String>,
    /// The newest CSeq, by the phone's tag.
    cseqs: BTreeMap<String, u32>,
    /// Our INVITE without a final answer.
    ours: Option<u32>,
    /// The phone's 2xx without our ACK.
    unacked: BTreeSet<u32>,
    /// INVITEs of the phone that it has not acknowledged the answer of.
    theirs: BTreeSet<u32>,
    /// o= line without the version, version, rest of the SDP; of the last SDP we sent.
    sdp: Option<(String, u64, String)>,
    /// By the phone's tag: the branches of a fork are dialogs of their own.
    byes: BTreeMap<String, Bye>,
}

/// Our newest BYE.
struct Bye {
    cseq: u32,
    is_answered: bool,
    /// Who goes on may not know that it was said or answered.
    may_repeat: bool,
}

impl Observer {
    /// A phone is about to send this.
    pub(crate) fn sent(&mut self, from: SocketAddr, text: &Text) {
        let dialog = self.dialogs.entry((text.header("Call-ID").to_owned(), from)).or_default();
        let cseq = text.cseq();
        match (text.is_request(), text.method()) {
            (true, "INVITE") => drop(dialog.theirs.insert(cseq)),
            (true, "ACK") => drop(dialog.theirs.remove(&cseq)),
            (false, "INVITE") if 200 <= text.status() => {
                if dialog.ours == Some(cseq) {
                    dialog.ours = None;
                }
                if text.status() < 300 {
                    dialog.unacked.insert(cseq);
                }
            }
            (false, "BYE") => {
                let byes = dialog.byes.values_mut().filter(|bye| bye.cseq == cseq);
                byes.for_each(|bye| bye.is_answered = true);
            }
            _ => {}
        }
    }

    /// The machine is rebuilt from all that it knew, or from what its standby holds: that is not told at
    /// once that a BYE was answered. It may say each once more that is not answered as far as it knows.
    pub(crate) fn rebuilt(&mut self, knows_all: bool) {
        self.rebuilds += 1;
        for bye in self.dialogs.values_mut().flat_map(|dialog| dialog.byes.values_mut()) {
            bye.may_repeat = !(knows_all && bye.is_answered);
        }
    }

    /// We have sent this to a phone.
    pub(crate) fn received(&mut self, to: SocketAddr, text: &Text) {
        let call_id = text.header("Call-ID").to_owned();
        let ended = self.ended.iter().any(|detail| {
            detail.call_id == call_id || call_id.starts_with(&detail.call.to_string())
        });
        let dialog = self.dialogs.entry((call_id, to)).or_default();
        dialog.check_sdp(text);
        if !text.is_request() {
            return;
        }
        let cseq = text.cseq();
        if text.method() == "ACK" {
            dialog.unacked.remove(&cseq);
        }
        let branch = text.header("Via").split("branch=").nth(1).unwrap_or_default();
        let branch = branch.split(';').next().unwrap_or_default().to_owned();
        assert_eq!(text.headers("Via").count(), 1, "I12: one Via\n{}", text.0);
        assert_eq!(text.headers("Record-Route").count(), 0, "I12: no Record-Route\n{}", text.0);
        assert!(text.header("Via").contains(GATE), "I14: Via\n{}", text.0);
        if matches!(text.method(), "ACK" | "CANCEL") || !dialog.seen.insert(branch) {
            return;
        }
        let tag = text.tag("To").to_owned();
        let first = dialog.cseqs.get("").copied().unwrap_or(0);
        let newest = dialog.cseqs.get(&tag).copied().unwrap_or(0).max(first);
        assert!(newest < cseq, "I2: CSeq {newest} then {cseq}\n{}", text.0);
        dialog.cseqs.insert(tag.clone(), cseq);
        match text.method() {
            "INVITE" => {
                assert!(!ended, "I5: INVITE after the end\n{}", text.0);
                assert_eq!(dialog.ours, None, "I1: our INVITE is open\n{}", text.0);
                assert!(dialog.theirs.is_empty(), "I1: the phone's INVITE is open\n{}", text.0);
                assert!(dialog.unacked.is_empty(), "I1: a 2xx lacks its ACK\n{}", text.0);
                dialog.ours = Some(cseq);
                assert!(text.header("Contact").contains(GATE), "I14: Contact\n{}", text.0);
                for dead in &self.dead {
                    let mut lines = text.body().lines().filter(|line| !line.starts_with("o="));
                    assert!(lines.all(|line| !line.contains(dead)), "dead address\n{}", text.0);
                }
            }
            "BYE" => {
                let bye = Bye { cseq, is_answered: false, may_repeat: false };
                let before = dialog.byes.insert(tag, bye);
                let may_come = before.is_none_or(|before| before.may_repeat);
                assert!(may_come, "I6: a second BYE\n{}", text.0);
            }
            _ => {}
        }
    }

    pub(crate) fn ended(&mut self, detail: &Detail) {
        let again = self.ended.iter().any(|other| other.call == detail.call);
        assert!(!again, "I6: a second detail record of {}", detail.call);
        self.ended.push(detail.clone());
    }
}

impl Dialog {
    /// I3: the version rises if, and only if, the SDP differs; the rest of o= is constant.
    fn check_sdp(&mut self, text: &Text) {
        if !text.body().starts_with("v=0") {
            return;
        }
        let version = text.version();
        let origin = text.sdp("o=").replacen(&format!(" {version} "), " ", 1);
        let rest: Vec<&str> = text.body().lines().filter(|line| !line.starts_with("o=")).collect();
        let rest = rest.join("\n");
        if let Some((old_origin, old_version, old_rest)) = &self.sdp {
            assert_eq!(*old_origin, origin, "I3: o= changed\n{}", text.0);
            let step = u64::from(*old_rest != rest);
            if *old_version <= version {
                assert_eq!(old_version + step, version, "I3: version\n{}\n{old_rest}", text.0);
            }
        }
        if self.sdp.as_ref().is_none_or(|(_, old, _)| *old <= version) {
            self.sdp = Some((origin, version, rest));
        }
    }
}
