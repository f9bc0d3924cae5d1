use std::collections::BTreeMap;

use super::*;
use crate::{Node, Policy};

#[test]
fn a_gateway_decides_the_tenant_and_the_number_the_profile_inside_it() {
    let run = Run::new();

    let from_bank = Signs { gateway: run.id("bank"), ..Signs::default() };
    assert_eq!(run.find(Signs { number: "300", ..from_bank }), Ok(("loans", Sign::Number)));
    assert_eq!(run.find(Signs { number: "999", ..from_bank }), Ok(("desk", Sign::Default)));
    // The number of another tenant says nothing here.
    assert_eq!(run.find(Signs { number: "450", ..from_bank }), Ok(("desk", Sign::Default)));
}

#[test]
fn a_parameter_alone_names_a_profile_or_a_tenant() {
    let run = Run::new();
    let name =
        |tenant| Signs { tenant: Some(tenant), trusted: true, number: "300", ..Signs::default() };

    assert_eq!(run.find(name("desk")), Ok(("desk", Sign::Parameter)));
    assert_eq!(run.find(name("bank")), Ok(("loans", Sign::Parameter)));
    assert_eq!(run.find(name("bank.desk")), Ok(("desk", Sign::Parameter)));
    assert_eq!(run.find(name("bank.north.tellers")), Ok(("tellers", Sign::Parameter)));
    assert_eq!(run.find(name("shop.desk")), Err(Unmatched::UnknownProfile));
    assert_eq!(run.find(name("bank.nobody")), Err(Unmatched::UnknownProfile));
    // Nobody has this name: the number decides, as if nothing had been named.
    assert_eq!(run.find(name("nobody")), Ok(("loans", Sign::Number)));
    assert_eq!(run.find(Signs { number: "7", ..name("nobody") }), Ok(("welcome", Sign::Default)));
}

#[test]
fn with_the_header_of_a_profile_the_parameter_names_its_tenant() {
    let run = Run::new();
    let name = |tenant, profile| Signs { tenant, profile, trusted: true, ..Signs::default() };

    assert_eq!(run.find(name(None, Some("desk"))), Ok(("desk", Sign::Header)));
    assert_eq!(run.find(name(None, Some("104"))), Ok(("desk", Sign::Header)), "by its id");
    assert_eq!(run.find(name(Some("bank"), Some("desk"))), Ok(("desk", Sign::Header)));
    assert_eq!(run.find(name(Some("bank"), Some("tellers"))), Ok(("tellers", Sign::Header)));
    assert_eq!(run.find(name(Some("shop"), Some("desk"))), Err(Unmatched::UnknownProfile));
    assert_eq!(run.find(name(Some("nobody"), Some("desk"))), Err(Unmatched::UnknownTenant));
    assert_eq!(run.find(name(None, Some("bank"))), Err(Unmatched::UnknownProfile));
}

#[test]
fn without_any_name_the_number_decides_then_the_default_of_the_whole() {
    let run = Run::new();
    let dial = |number| Signs { number, ..Signs::default() };

    assert_eq!(run.find(dial("300")), Ok(("loans", Sign::Number)));
    assert_eq!(run.find(dial("450")), Ok(("shop", Sign::Number)), "nothing is below it");
    assert_eq!(run.find(dial("7")), Ok(("welcome", Sign::Default)));
}

#[test]
fn who_may_not_speak_for_a_tenant_is_found_out() {
    let run = Run::new();
    let forged = Err(Unmatched::Forged);

    for tenant in ["bank", "desk", "nobody"] {
        let signs = Signs { tenant: Some(tenant), number: "300", ..Signs::default() };
        assert_eq!(run.find(signs), forged, "a stranger names {tenant}");
    }
    let stranger = Signs { profile: Some("nobody"), ..Signs::default() };
    assert_eq!(run.find(stranger), forged);

    let gateway = Signs { gateway: run.id("shop"), ..Signs::default() };
    assert_eq!(run.find(Signs { tenant: Some("bank"), ..gateway }), forged);
    assert_eq!(run.find(Signs { profile: Some("desk"), ..gateway }), forged);
    assert_eq!(run.find(Signs { tenant: Some("shop"), ..gateway }), Ok(("shop", Sign::Parameter)));
    let trusted = Signs { tenant: Some("desk"), trusted: true, ..gateway };
    assert_eq!(run.find(trusted), Ok(("desk", Sign::Parameter)));
    assert!(Unmatched::Forged.usual_answer().alarm);
}

#[test]
fn a_default_that_lies_in_another_tenant_is_none() {
    let run = Run::new();

    // "north" inherits the default of "bank", whose calls do not count at "north".
    let north = Signs { gateway: run.id("north"), number: "7", ..Signs::default() };
    assert_eq!(run.find(north), Err(Unmatched::NoProfile));
}

#[test]
fn numbers_and_ids_have_one_owner() {
    let mut run = Run::new();
    let (tree, matcher) = (&run.tree, &mut run.matcher);
    let shop = tree.find("shop").unwrap();

    let overlap = matcher
        .give(tree, shop, "29*".parse().unwrap())
        .and_then(|()| matcher.give(tree, shop, "310-500".parse().unwrap()));
    let text = "310-500 of \"shop\" has numbers that \"loans\" has already";
    assert_eq!(overlap.unwrap_err().to_string(), text);
    let id = matcher.call(tree, shop, "104".to_owned()).unwrap_err();
    assert_eq!(id.to_string(), "\"shop\" has the id \"104\", as \"desk\" has");
}

struct Run {
    tree: Tree,
    policies: Policies,
    matcher: Matcher,
}

impl Run {
    fn new() -> Self {
        let node = |name: &str, parent: Option<&str>, kind| Node {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            kind,
            ..Node::default()
        };
        let (tenant, profile) = (Kind::Tenant, Kind::Profile);
        let tree = Tree::new(vec![
            node("all", None, tenant),
            node("welcome", Some("all"), profile),
            node("bank", Some("all"), tenant),
            node("loans", Some("bank"), profile),
            node("desk", Some("bank"), profile),
            node("bank.north", Some("bank"), tenant),
            node("tellers", Some("bank.north"), profile),
            node("north", Some("bank"), tenant),
            node("clerks", Some("north"), profile),
            node("shop", Some("all"), tenant),
        ])
        .unwrap();
        let default = |profile: &str| Policy {
            default_profile: Some(profile.to_owned()),
            ..Policy::default()
        };
        let policies = [("all", default("welcome")), ("bank", default("desk"))];
        let policies: BTreeMap<_, _> = policies.map(|(name, one)| (name.to_owned(), one)).into();
        let policies = Policies::new(&tree, &policies).unwrap();
        let mut matcher = Matcher::default();
        for (owner, numbers) in [("loans", "300-400"), ("shop", "45*")] {
            matcher.give(&tree, tree.find(owner).unwrap(), numbers.parse().unwrap()).unwrap();
        }
        matcher.call(&tree, tree.find("desk").unwrap(), "104".to_owned()).unwrap();
        Self { tree, policies, matcher }
    }

    fn id(&self, name: &str) -> Option<NodeId> {
        self.tree.find(name)
    }

    fn find(&self, signs: Signs<'_>) -> Result<(&str, Sign), Unmatched> {
        let found = self.matcher.find(&self.tree, &self.policies, &signs)?;
        Ok((self.tree.node(found.node).name.as_str(), found.by))
    }
}
