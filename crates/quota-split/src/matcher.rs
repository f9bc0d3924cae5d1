//! Which profile a call belongs to.

use std::collections::BTreeMap;

use crate::numbers::Owners;
use crate::{Answer, Kind, NodeId, Numbers, Policies, Tree, Violation};

/// Finds the profile of a call by what it says of itself and where it comes from.
///
/// A call belongs to the tenant that owns the gateway it comes from, else to the one that it names
/// and that its source may name, else to whoever has the number it dials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    owners: Owners,
    /// Profiles by the number that another system gave them.
    ids: BTreeMap<String, NodeId>,
}

/// What is known of a call before it is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs<'a> {
    /// The tenant that owns the gateway it comes from.
    pub gateway: Option<NodeId>,
    /// Whether its source is believed whatever tenant or profile it names. A gateway is believed
    /// within its tenant; who is neither may name none.
    pub trusted: bool,
    /// The parameter `gvp-tenant-id` of the Request-URI: a profile; with [`profile`](Self::profile)
    /// a tenant; or both with a dot between.
    pub tenant: Option<&'a str>,
    /// The header `X-Genesys-gsw-ivr-profile-id` or `-name`.
    pub profile: Option<&'a str>,
    /// The number that is dialled.
    pub number: &'a str,
}

/// Where a call counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// Its profile; a tenant when there is nothing below that tenant.
    pub node: NodeId,
    /// What told so.
    pub by: Sign,
}

/// What told the profile of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sign {
    /// The profile's header.
    Header,
    /// The parameter `gvp-tenant-id`, which is to be taken off before the call goes on.
    Parameter,
    /// The dialled number.
    Number,
    /// Nothing else: it is the default of its tenant.
    Default,
}

/// Why a call belongs to nobody. Nothing is counted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Unmatched {
    /// It names a tenant or profile that its source may not speak for: an operator is to be told.
    #[error("its source may not speak for the tenant or profile that it names")]
    Forged,
    /// It names a tenant that does not exist.
    #[error("it names a tenant that does not exist")]
    UnknownTenant,
    /// It names a profile that does not exist, or not in the tenant that it names.
    #[error("it names a profile that does not exist there")]
    UnknownProfile,
    /// It names nothing, nobody has its number, and its tenant has no default profile.
    #[error("no profile fits it, and there is no default")]
    NoProfile,
}

/// Why numbers or profiles cannot be told apart. The configuration is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatcherError {
    /// Two have one number in common.
    #[error("{numbers} of {owner:?} has numbers that {other:?} has already")]
    Overlap {
        /// What was to be given.
        numbers: Numbers,
        /// To whom.
        owner: String,
        /// Who has some of it.
        other: String,
    },
    /// Two profiles have one id.
    #[error("{owner:?} has the id {id:?}, as {other:?} has")]
    Id {
        /// The id.
        id: String,
        /// Whose it was to be.
        owner: String,
        /// Whose it is.
        other: String,
    },
}

impl Matcher {
    /// Gives numbers to a node.
    ///
    /// # Errors
    /// When somebody has some of them; then nothing was given.
    ///
    /// # Panics
    /// Panics when `owner` is not of `tree`.
    pub fn give(
        &mut self,
        tree: &Tree,
        owner: NodeId,
        numbers: Numbers,
    ) -> Result<(), MatcherError> {
        let name = |id| tree.node(id).name.clone();
        self.owners.give(&numbers, owner).map_err(|other| MatcherError::Overlap {
            numbers,
            owner: name(owner),
            other: name(other),
        })
    }

    /// Lets a profile be named by an id beside its name.
    ///
    /// # Errors
    /// When another has that id; then nothing was changed.
    ///
    /// # Panics
    /// Panics when `owner` is not of `tree`.
    pub fn call(&mut self, tree: &Tree, owner: NodeId, id: String) -> Result<(), MatcherError> {
        let name = |id: NodeId| tree.node(id).name.clone();
        if let Some(&other) = self.ids.get(&id) {
            return Err(MatcherError::Id { id, owner: name(owner), other: name(other) });
        }
        self.ids.insert(id, owner);
        Ok(())
    }

    /// Returns the profile of a call.
    ///
    /// # Errors
    /// Why it has none.
    ///
    /// # Panics
    /// Panics when the gateway's tenant is not of `tree`, or `tree` and `policies` are not those that
    /// the numbers were given for.
    pub fn find(
        &self,
        tree: &Tree,
        policies: &Policies,
        signs: &Signs<'_>,
    ) -> Result<Matched, Unmatched> {
        let scope = Scope { tree, policies, signs };
        let names = signs.tenant.is_some() || signs.profile.is_some();
        if names && !signs.trusted && signs.gateway.is_none() {
            return Err(Unmatched::Forged);
        }
        if let Some((node, by)) = self.named(tree, signs)? {
            if !scope.may_name(node) {
                return Err(Unmatched::Forged);
            }
            let found = match tree.node(node).kind {
                Kind::Profile => Some(Matched { node, by }),
                Kind::Tenant => self.within(&scope, node, by),
            };
            return found.ok_or(Unmatched::NoProfile);
        }
        let found = match signs.gateway {
            Some(tenant) => self.within(&scope, tenant, Sign::Default),
            None => {
                let owner = self.owners.of(signs.number);
                let found = owner.and_then(|owner| scope.leaf(owner, Sign::Number));
                found.or_else(|| scope.leaf(tree.top()?, Sign::Default))
            }
        };
        match (found, signs.tenant) {
            (Some(found), _) => Ok(found),
            (None, Some(_)) => Err(Unmatched::UnknownTenant),
            (None, None) => Err(Unmatched::NoProfile),
        }
    }

    /// Returns what a call names. A parameter alone that names nobody leaves the choice to the number
    /// and the default.
    fn named(&self, tree: &Tree, signs: &Signs<'_>) -> Result<Option<(NodeId, Sign)>, Unmatched> {
        let tenant = |name: &str| tree.find(name).filter(|&id| tree.node(id).kind == Kind::Tenant);
        if let Some(profile) = signs.profile {
            let node = self.profile(tree, profile).ok_or(Unmatched::UnknownProfile)?;
            if let Some(name) = signs.tenant {
                let tenant = tenant(name).ok_or(Unmatched::UnknownTenant)?;
                if !tree.path(node).any(|at| at == tenant) {
                    return Err(Unmatched::UnknownProfile);
                }
            }
            return Ok(Some((node, Sign::Header)));
        }
        let Some(name) = signs.tenant else { return Ok(None) };
        if let Some(node) = tree.find(name) {
            return Ok(Some((node, Sign::Parameter)));
        }
        // A name may have dots of its own, so each is tried, the first one first.
        let halves = name.match_indices('.').map(|(at, _)| (&name[..at], &name[at + 1..]));
        let mut halves = halves.filter_map(|(a, b)| Some((tenant(a)?, b))).peekable();
        if halves.peek().is_none() {
            return Ok(None);
        }
        let node = halves.find_map(|(tenant, profile)| {
            self.profile(tree, profile).filter(|&id| tree.path(id).any(|at| at == tenant))
        });
        node.map(|node| Some((node, Sign::Parameter))).ok_or(Unmatched::UnknownProfile)
    }

    /// Returns the profile of this name or id.
    fn profile(&self, tree: &Tree, name: &str) -> Option<NodeId> {
        let named = tree.find(name).filter(|&id| tree.node(id).kind == Kind::Profile);
        named.or_else(|| self.ids.get(name).copied())
    }

    /// Returns the profile of a call of this tenant: by its number, else the tenant's default.
    fn within(&self, scope: &Scope<'_>, tenant: NodeId, by: Sign) -> Option<Matched> {
        let owner = self.owners.of(scope.signs.number);
        let owner = owner.filter(|&id| scope.tree.path(id).any(|at| at == tenant));
        let found = owner.and_then(|owner| scope.leaf(owner, Sign::Number));
        let found = found.or_else(|| scope.leaf(tenant, Sign::Default))?;
        // What is named stays to be taken off, whatever chose inside it.
        Some(if by == Sign::Parameter { Matched { by, ..found } } else { found })
    }
}

/// What surrounds one call.
struct Scope<'a> {
    tree: &'a Tree,
    policies: &'a Policies,
    signs: &'a Signs<'a>,
}

impl Scope<'_> {
    /// Whether the source may name a node.
    fn may_name(&self, node: NodeId) -> bool {
        match self.signs.gateway {
            Some(tenant) => self.signs.trusted || self.tree.path(node).any(|at| at == tenant),
            None => self.signs.trusted,
        }
    }

    /// Returns where a call of a node counts: there, if nothing is below it, else at its default. One
    /// that is inherited and lies elsewhere would count at another tenant.
    fn leaf(&self, node: NodeId, by: Sign) -> Option<Matched> {
        if self.tree.is_leaf(node) {
            return Some(Matched { node, by });
        }
        let profile = self.policies.default_profile(node)?;
        self.tree.path(profile).any(|at| at == node).then_some(Matched { node: profile, by })
    }
}

impl Unmatched {
    /// Returns the answer where nobody set another.
    pub fn usual_answer(self) -> Answer {
        match self {
            Self::Forged => {
                Answer { status: 403, text: "tenant not allowed".to_owned(), alarm: true }
            }
            Self::UnknownTenant => {
                Answer { status: 404, text: "no such tenant".to_owned(), alarm: true }
            }
            Self::UnknownProfile | Self::NoProfile => Violation::Profile.usual_answer(),
        }
    }
}

#[cfg(test)]
mod tests;
