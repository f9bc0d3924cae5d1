use super::*;
use crate::Node;

#[test]
fn where_nothing_is_set_everything_is_allowed() {
    let run = Run::new(&[]).unwrap();
    assert!(run.policies.allows_service(run.id("ivr"), "voicexml"));
    assert!(run.policies.allows_number(run.id("ivr"), "+4930123"));
    assert_eq!(run.policies.default_profile(run.id("t1")), None);
}

#[test]
fn a_child_inherits_and_sets_its_own() {
    let run = Run::new(&[
        ("top", services(&["voicexml", "conference"])),
        ("t1", services(&["announcement"])),
    ])
    .unwrap();
    assert!(run.policies.allows_service(run.id("t2"), "conference"));
    assert!(!run.policies.allows_service(run.id("t1"), "conference"));
    assert!(run.policies.allows_service(run.id("ivr"), "announcement"), "inherited from t1");
}

#[test]
fn a_parent_overrides_one_child_and_those_below_inherit_it() {
    let overrides = [("t1".to_owned(), services(&["voicexml"]))].into();
    let top = Policy { overrides, ..services(&["conference"]) };
    let run = Run::new(&[("top", top), ("t1", services(&["announcement"]))]).unwrap();
    assert!(run.policies.allows_service(run.id("t1"), "voicexml"));
    assert!(!run.policies.allows_service(run.id("t1"), "announcement"));
    assert!(run.policies.allows_service(run.id("ivr"), "voicexml"));
    assert!(!run.policies.allows_service(run.id("t2"), "voicexml"));
}

#[test]
fn the_first_rule_that_fits_decides_about_a_number() {
    let rule = |pattern: &str, allow| NumberRule { pattern: pattern.into(), allow };
    let numbers = Some(vec![rule("00", true), rule("0049*", true), rule("00*", false)]);
    let run = Run::new(&[("top", Policy { numbers, ..Policy::default() })]).unwrap();
    for (number, allowed) in [("00", true), ("004930", true), ("0033", false), ("112", true)] {
        assert_eq!(run.policies.allows_number(run.id("ivr"), number), allowed, "{number}");
    }
}

#[test]
fn a_refusal_has_the_nearest_answer_and_never_a_503_by_itself() {
    let answer = Answer { status: 486, text: "all \"lines\" busy".into(), alarm: true };
    let answers = [(Violation::Usage, answer.clone())].into();
    let run = Run::new(&[("t1", Policy { answers, ..Policy::default() })]).unwrap();
    let found = run.policies.answer(run.id("ivr"), Violation::Usage);
    assert_eq!(found, answer);
    assert_eq!(found.reason(), r#"SIP;cause=486;text="all \"lines\" busy""#);
    assert_eq!(run.policies.answer(run.id("t2"), Violation::Usage).status, 480);
    for violation in [Violation::Usage, Violation::Service, Violation::Number, Violation::Profile] {
        assert_ne!(violation.usual_answer().status, 503);
    }
}

#[test]
fn a_text_cannot_break_out_of_its_header() {
    let answer = Answer { status: 480, text: "a\r\nVia: b\\".into(), alarm: false };
    assert_eq!(answer.reason(), r#"SIP;cause=480;text="aVia: b\\""#);
}

#[test]
fn policies_that_do_not_fit_the_tree_are_refused() {
    let fault = |name, policy| Run::new(&[(name, policy)]).err().unwrap();
    let profile = |name: &str| Policy { default_profile: Some(name.into()), ..Policy::default() };
    let (node, child) = ("top".to_owned(), "ivr".to_owned());

    assert_eq!(fault("nobody", Policy::default()), PolicyError::UnknownNode("nobody".into()));
    let overrides = [("ivr".to_owned(), Policy::default())].into();
    let policy = Policy { overrides, ..Policy::default() };
    assert_eq!(fault("top", policy), PolicyError::NotAChild { node, child });
    assert!(Run::new(&[("top", profile("ivr"))]).is_ok());
    for (name, default) in [("t2", "ivr"), ("top", "t1"), ("top", "nobody")] {
        let (node, profile_name) = (name.to_owned(), default.to_owned());
        let error = PolicyError::DefaultProfile { node, profile: profile_name };
        assert_eq!(fault(name, profile(default)), error);
    }
    let answer = Answer { status: 200, text: String::new(), alarm: false };
    let answers = [(Violation::Usage, answer)].into();
    let policy = Policy { answers, ..Policy::default() };
    assert_eq!(fault("top", policy), PolicyError::Status { node: "top".into(), status: 200 });
    for pattern in ["", "4*5", "45\r\n"] {
        let numbers = Some(vec![NumberRule { pattern: pattern.into(), allow: true }]);
        let policy = Policy { numbers, ..Policy::default() };
        let (node, pattern) = ("top".into(), pattern.into());
        assert_eq!(fault("top", policy), PolicyError::Pattern { node, pattern });
    }
}

struct Run {
    tree: Tree,
    policies: Policies,
}

impl Run {
    fn new(policies: &[(&str, Policy)]) -> Result<Self, PolicyError> {
        let node = |name: &str, parent: Option<&str>, kind| Node {
            name: name.into(),
            parent: parent.map(Into::into),
            kind,
            ..Node::default()
        };
        let tree = Tree::new(vec![
            node("ivr", Some("t1"), Kind::Profile),
            node("t1", Some("top"), Kind::Tenant),
            node("t2", Some("top"), Kind::Tenant),
            node("top", None, Kind::Tenant),
        ]);
        #[expect(clippy::unwrap_in_result, reason = "the tree is ours and fits")]
        let tree = tree.unwrap();
        let policies = policies.iter().map(|(name, policy)| ((*name).to_owned(), policy.clone()));
        Ok(Self { policies: Policies::new(&tree, &policies.collect())?, tree })
    }

    fn id(&self, name: &str) -> NodeId {
        self.tree.find(name).expect("a node of this name")
    }
}

fn services(names: &[&str]) -> Policy {
    let services = Some(names.iter().map(|name| (*name).to_owned()).collect());
    Policy { services, ..Policy::default() }
}
