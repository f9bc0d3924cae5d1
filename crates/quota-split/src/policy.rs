//! Rules that a site keeps by itself: services, numbers, answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Kind, NodeId, Tree};

/// What every node may do, worked out once.
///
/// A node has what its parent sets for it by name, else what it sets itself, else what its parent
/// has; where nobody sets anything, everything is allowed.
#[derive(Clone, Debug)]
pub struct Policies {
    nodes: Box<[Arc<Effective>]>,
}

/// What one node sets. What is `None` or missing is inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The services that may be used, and no others.
    pub services: Option<BTreeSet<String>>,
    /// Which numbers may be dialled: the first rule that fits decides, and where none fits it is
    /// allowed.
    pub numbers: Option<Vec<NumberRule>>,
    /// The profile of calls that name none; it lies below the node that sets it.
    pub default_profile: Option<String>,
    /// How violations are answered.
    pub answers: BTreeMap<Violation, Answer>,
    /// What single children get whatever they set themselves, by their names.
    pub overrides: BTreeMap<String, Self>,
}

/// Whether numbers may be dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberRule {
    /// A whole number, or with a `*` at its end the start of one.
    pub pattern: String,
    /// Whether what fits is allowed.
    pub allow: bool,
}

/// What a call did not keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Violation {
    /// More calls, or more a second, than a limit.
    Usage,
    /// A service that is not allowed.
    Service,
    /// A number that must not be dialled.
    Number,
    /// No profile fits, and there is no default.
    Profile,
}

/// How a violation is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The SIP status, from 400 to 699. A 503 takes the whole site out of use at many peers.
    pub status: u16,
    /// The text of the Reason header.
    pub text: String,
    /// Whether an operator is told.
    pub alarm: bool,
}

/// Why policies do not fit their tree. The configuration is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// There is no node of this name.
    #[error("a policy is set for {0:?}, which does not exist")]
    UnknownNode(String),
    /// A node sets something for one that is not its child.
    #[error("{node:?} sets a policy for {child:?}, which is not its child")]
    NotAChild {
        /// The node.
        node: String,
        /// The name it gives.
        child: String,
    },
    /// An override holds overrides.
    #[error("what {0:?} sets for a child may not override that one's children")]
    Nested(String),
    /// A default profile is no profile below the node that sets it.
    #[error("the default profile {profile:?} of {node:?} is no profile below it")]
    DefaultProfile {
        /// The node.
        node: String,
        /// The name it gives.
        profile: String,
    },
    /// A status is no SIP failure.
    #[error("{status} at {node:?} is no status of a refusal")]
    Status {
        /// The node.
        node: String,
        /// The status.
        status: u16,
    },
    /// A pattern is neither a number nor the start of one.
    #[error("{pattern:?} at {node:?} is no pattern of numbers")]
    Pattern {
        /// The node.
        node: String,
        /// The pattern.
        pattern: String,
    },
}

#[derive(Clone, Debug, Default)]
struct Effective {
    services: Option<BTreeSet<String>>,
    numbers: Option<Vec<NumberRule>>,
    default_profile: Option<NodeId>,
    answers: BTreeMap<Violation, Answer>,
}

impl Policies {
    /// Checks and works out the policies of nodes, by name.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(tree: &Tree, policies: &BTreeMap<String, Policy>) -> Result<Self, PolicyError> {
        Self::check(tree, policies).map_err(|mut all| all.swap_remove(0))
    }

    /// Does as [`new`](Self::new).
    ///
    /// # Errors
    /// Everything that is wrong, at least one thing.
    pub fn check(
        tree: &Tree,
        policies: &BTreeMap<String, Policy>,
    ) -> Result<Self, Vec<PolicyError>> {
        let mut errors = Vec::new();
        for (name, policy) in policies {
            match tree.find(name) {
                Some(id) => policy.check(tree, id, &mut errors),
                None => errors.push(PolicyError::UnknownNode(name.clone())),
            }
        }
        if errors.is_empty() { Ok(Self::work_out(tree, policies)) } else { Err(errors) }
    }

    fn work_out(tree: &Tree, policies: &BTreeMap<String, Policy>) -> Self {
        let nothing = Arc::new(Effective::default());
        let mut nodes: Vec<Option<Arc<Effective>>> = vec![None; tree.len()];
        for (id, _) in tree.iter() {
            // From the top down, and each node once.
            let mut path: Vec<NodeId> = tree.path(id).collect();
            while let Some(id) = path.pop() {
                if nodes[id.index()].is_some() {
                    continue;
                }
                let parent = tree.parent(id);
                let mut effective = match parent.and_then(|parent| nodes[parent.index()].clone()) {
                    Some(inherited) => inherited,
                    None => nothing.clone(),
                };
                let name = &tree.node(id).name;
                let above = parent.and_then(|parent| policies.get(&tree.node(parent).name));
                let over = above.and_then(|policy| policy.overrides.get(name));
                for policy in policies.get(name).into_iter().chain(over) {
                    Arc::make_mut(&mut effective).apply(policy, tree);
                }
                nodes[id.index()] = Some(effective);
            }
        }
        Self { nodes: nodes.into_iter().flatten().collect() }
    }

    /// Tells whether a node may use a service.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn allows_service(&self, node: NodeId, service: &str) -> bool {
        let services = &self.nodes[node.index()].services;
        services.as_ref().is_none_or(|services| services.contains(service))
    }

    /// Tells whether a node may dial a number.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn allows_number(&self, node: NodeId, number: &str) -> bool {
        let rules = self.nodes[node.index()].numbers.iter().flatten();
        rules.into_iter().find(|rule| rule.fits(number)).is_none_or(|rule| rule.allow)
    }

    /// Returns the profile of a node's calls that name none.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn default_profile(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node.index()].default_profile
    }

    /// Returns how a violation at a node is answered.
    ///
    /// # Panics
    ///
    /// Panics when `node` comes from a larger tree.
    pub fn answer(&self, node: NodeId, violation: Violation) -> Answer {
        let answers = &self.nodes[node.index()].answers;
        answers.get(&violation).cloned().unwrap_or_else(|| violation.usual_answer())
    }
}

impl Policy {
    fn check(&self, tree: &Tree, id: NodeId, errors: &mut Vec<PolicyError>) {
        let node = || tree.node(id).name.clone();
        for rule in self.numbers.iter().flatten() {
            let number = rule.pattern.strip_suffix('*').unwrap_or(&rule.pattern);
            let plain = number.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
            if !plain || rule.pattern.is_empty() {
                errors.push(PolicyError::Pattern { node: node(), pattern: rule.pattern.clone() });
            }
        }
        for answer in self.answers.values().filter(|one| !(400..700).contains(&one.status)) {
            errors.push(PolicyError::Status { node: node(), status: answer.status });
        }
        if let Some(name) = &self.default_profile {
            let profile = tree.find(name).filter(|&profile| {
                tree.node(profile).kind == Kind::Profile && tree.path(profile).any(|at| at == id)
            });
            if profile.is_none() {
                errors.push(PolicyError::DefaultProfile { node: node(), profile: name.clone() });
            }
        }
        for (child, policy) in &self.overrides {
            let found = tree.find(child).filter(|&child| tree.parent(child) == Some(id));
            match found {
                None => errors.push(PolicyError::NotAChild { node: node(), child: child.clone() }),
                Some(_) if !policy.overrides.is_empty() => errors.push(PolicyError::Nested(node())),
                Some(found) => policy.check(tree, found, errors),
            }
        }
    }
}

impl PolicyError {
    /// Returns the name of the node that is at fault; of an override, of the child that it is for.
    pub fn node(&self) -> &str {
        match self {
            Self::UnknownNode(node)
            | Self::Nested(node)
            | Self::NotAChild { node, .. }
            | Self::DefaultProfile { node, .. }
            | Self::Status { node, .. }
            | Self::Pattern { node, .. } => node,
        }
    }
}

impl Effective {
    fn apply(&mut self, policy: &Policy, tree: &Tree) {
        if policy.services.is_some() {
            self.services.clone_from(&policy.services);
        }
        if policy.numbers.is_some() {
            self.numbers.clone_from(&policy.numbers);
        }
        if let Some(profile) = &policy.default_profile {
            self.default_profile = tree.find(profile);
        }
        let answers = policy.answers.iter().map(|(violation, answer)| (*violation, answer.clone()));
        self.answers.extend(answers);
    }
}

impl NumberRule {
    fn fits(&self, number: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(start) => number.starts_with(start),
            None => number == self.pattern,
        }
    }
}

impl Violation {
    /// Returns the answer where nobody set another: never a 503, which would take all tenants off
    /// the site.
    pub fn usual_answer(self) -> Answer {
        let (status, text) = match self {
            Self::Usage => (480, "limit reached"),
            Self::Service => (403, "service not allowed"),
            Self::Number => (403, "number not allowed"),
            Self::Profile => (404, "no profile"),
        };
        Answer { status, text: text.to_owned(), alarm: false }
    }
}

impl Answer {
    /// Returns the value of the Reason header (RFC 3326).
    pub fn reason(&self) -> String {
        let text: String = self.text.chars().filter(|c| !c.is_control()).collect();
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        format!("SIP;cause={};text=\"{text}\"", self.status)
    }
}

#[cfg(test)]
mod tests;
