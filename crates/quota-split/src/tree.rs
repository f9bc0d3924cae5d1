//! Tenants, their profiles, and the limits at each of them.

use std::collections::BTreeMap;

use crate::{SegmentId, spread_key};

/// Who may carry how many calls: tenants within tenants, with IVR profiles as leaves.
///
/// A call counts at its profile and at every tenant above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: Box<[Node]>,
    parents: Box<[Option<NodeId>]>,
    keys: Box<[u64]>,
    leaves: Box<[bool]>,
    top: Option<NodeId>,
    by_name: BTreeMap<String, NodeId>,
}

/// One tenant or profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name, unique in the tree.
    pub name: String,
    /// The name of the tenant it belongs to; none at the top.
    pub parent: Option<String>,
    /// Whether it is a tenant or a leaf.
    pub kind: Kind,
    /// How many calls it may carry.
    pub limits: Limits,
    /// Shares fixed by hand instead of divided; they must add up to the highest limit of calls.
    pub manual: BTreeMap<SegmentId, u32>,
    /// What islands do with its limits; `None` does as its parent, and at the top `Full`.
    pub partition: Option<Partition>,
    /// Whether segments lend each other parts of its limits; `None` does as its parent, and at the
    /// top `Off`.
    pub lending: Option<Lending>,
    /// How much of what is idle of its own part a segment keeps back from lending, in percent: it then
    /// finds room at once when its calls come, and the others may be refused while it does not use
    /// it. `None` does as its parent, and at the top zero. More than 100 is as 100.
    pub reserve: Option<u8>,
}

/// What stands at a node of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A tenant, which may have tenants and profiles below it.
    #[default]
    Tenant,
    /// An IVR profile: a leaf.
    Profile,
}

/// What becomes of limits when segments cannot see each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Partition {
    /// Each island divides the whole limit among its members: up to as many limits as islands.
    #[default]
    Full,
    /// Each segment keeps what it had: never more than the limit, and the part of who is away idle.
    /// Never lent.
    Frozen,
    /// The island with more than half of all weight divides the limit once the others must have
    /// stopped taking calls; those that live there still count above it.
    WeightMajority,
}

/// Whether segments lend each other parts of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lending {
    /// Shares stay where the division puts them.
    #[default]
    Off,
    /// Once a second idle parts return to a pool, and who is short is given from it.
    Tick,
    /// As `Tick`; and a call that finds its share used up waits while a unit is borrowed for it.
    Hold,
}

/// How many calls one node may carry over all segments. `None` checks nothing here, zero refuses
/// everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Calls at a time, both ways together; calls within it have burst level 1.
    pub calls: Option<u32>,
    /// Where burst levels 2 and 3 end. Each must be at least the one before; a call is refused only
    /// above the last one set.
    pub burst: [Option<u32>; 2],
    /// Calls at a time that came in.
    pub inbound: Option<u32>,
    /// Calls at a time that went out.
    pub outbound: Option<u32>,
    /// New calls a second.
    pub per_second: Option<u32>,
    /// Whether calls above a limit are only told about.
    pub soft: bool,
}

/// A node by its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

/// Why nodes make no tree. The configuration is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// Two nodes have this name.
    #[error("two tenants or profiles are named {0:?}")]
    Duplicate(String),
    /// A parent is not there.
    #[error("{node:?} belongs to {parent:?}, which does not exist")]
    UnknownParent {
        /// The node.
        node: String,
        /// The parent it names.
        parent: String,
    },
    /// A profile has something below it.
    #[error("{node:?} belongs to {parent:?}, which is a profile")]
    BelowProfile {
        /// The node.
        node: String,
        /// The profile it names.
        parent: String,
    },
    /// This node is its own ancestor.
    #[error("{0:?} is its own ancestor")]
    Cycle(String),
    /// This node has more than [`DEPTH_MAX`] ancestors.
    #[error("{0:?} lies too deep")]
    TooDeep(String),
    /// There are more than [`NODES_MAX`] nodes.
    #[error("there are too many tenants and profiles")]
    TooMany,
    /// A burst level of this node lies below the one before, or has none before.
    #[error("the burst levels of {0:?} do not rise")]
    Burst(String),
    /// The manual shares of this node do not add up to its limit.
    #[error("the manual shares of {node:?} add up to {sum}, not to its limit")]
    ManualSum {
        /// The node.
        node: String,
        /// What its shares add up to.
        sum: u64,
    },
}

/// How many ancestors a node may have.
pub const DEPTH_MAX: usize = 32;

/// How many nodes a tree may have.
pub const NODES_MAX: usize = 1 << 22;

impl Tree {
    /// Checks `nodes` and links them; they keep their order, and a parent may come after its children.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(nodes: Vec<Node>) -> Result<Self, TreeError> {
        Self::check(nodes).map_err(|mut all| all.swap_remove(0))
    }

    /// Does as [`new`](Self::new).
    ///
    /// # Errors
    /// Everything that is wrong, at least one thing.
    pub fn check(nodes: Vec<Node>) -> Result<Self, Vec<TreeError>> {
        if NODES_MAX < nodes.len() {
            return Err(vec![TreeError::TooMany]);
        }
        let mut errors = Vec::new();
        let mut by_name = BTreeMap::new();
        for (id, node) in ids().zip(&nodes) {
            if by_name.contains_key(&node.name) {
                errors.push(TreeError::Duplicate(node.name.clone()));
            } else {
                by_name.insert(node.name.clone(), id);
            }
            errors.extend(node.check().err());
        }
        let mut parents = Vec::with_capacity(nodes.len());
        let mut leaves = vec![true; nodes.len()];
        for node in &nodes {
            let parent = parent_of(node, &nodes, &by_name);
            let parent = parent.map_err(|error| errors.push(error)).ok().flatten();
            if let Some(parent) = parent {
                leaves[parent.index()] = false;
            }
            parents.push(parent);
        }
        let mut tops = ids().zip(&parents).filter(|(_, parent)| parent.is_none());
        let top = tops.next().filter(|_| tops.next().is_none()).map(|(top, _)| top);
        let keys = nodes.iter().map(|node| spread_key(&node.name)).collect();
        let (parents, leaves) = (parents.into(), leaves.into());
        let tree = Self { nodes: nodes.into(), parents, keys, leaves, top, by_name };
        errors.extend(tree.check_depths().err());
        if errors.is_empty() { Ok(tree) } else { Err(errors) }
    }

    /// Returns how many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Tells whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the nodes in the order given to [`Tree::new`].
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        ids().zip(&self.nodes)
    }

    /// Returns a node.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a larger tree.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Returns the node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// Returns what a node of another tree is here: the one of its name, or of the nearest name above it
    /// that is left; `None` where none is.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a tree larger than `other`.
    pub fn find_from(&self, other: &Self, id: NodeId) -> Option<NodeId> {
        other.path(id).find_map(|id| self.find(&other.node(id).name))
    }

    /// Returns the tenant that a node belongs to.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a larger tree.
    pub fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.parents[id.index()]
    }

    /// Tells whether nothing belongs to a node.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a larger tree.
    pub fn is_leaf(&self, id: NodeId) -> bool {
        self.leaves[id.index()]
    }

    /// Returns the tenant above all others, if there is one.
    pub fn top(&self) -> Option<NodeId> {
        self.top
    }

    /// Returns a node and everything above it, from below.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a larger tree.
    pub fn path(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(id), |&id| self.parent(id))
    }

    /// Returns what islands do with the limits of a node.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a larger tree.
    pub fn partition(&self, id: NodeId) -> Partition {
        self.path(id).find_map(|id| self.node(id).partition).unwrap_or_default()
    }

    /// Returns whether the limits of a node are lent. Frozen ones never are.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a larger tree.
    pub fn lending(&self, id: NodeId) -> Lending {
        if self.partition(id) == Partition::Frozen {
            return Lending::Off;
        }
        self.path(id).find_map(|id| self.node(id).lending).unwrap_or_default()
    }

    /// Returns how much of an idle part is kept back from lending at a node, in percent.
    ///
    /// # Panics
    ///
    /// Panics when `id` comes from a larger tree.
    pub fn reserve(&self, id: NodeId) -> u8 {
        self.path(id).find_map(|id| self.node(id).reserve).unwrap_or(0)
    }

    /// Returns the key of a node for [`Method::Spread`](crate::Method::Spread).
    pub(crate) fn key(&self, id: NodeId) -> u64 {
        self.keys[id.index()]
    }

    fn check_depths(&self) -> Result<(), TreeError> {
        for (id, node) in self.iter() {
            if self.path(id).nth(DEPTH_MAX + 1).is_none() {
                continue;
            }
            // More steps than there are nodes end on a cycle.
            return Err(match self.path(id).nth(self.len()) {
                Some(looped) => TreeError::Cycle(self.node(looped).name.clone()),
                None => TreeError::TooDeep(node.name.clone()),
            });
        }
        Ok(())
    }
}

impl Node {
    fn check(&self) -> Result<(), TreeError> {
        let levels = self.limits.levels();
        let mut before = Some(0);
        for level in levels {
            match (before, level) {
                (_, None) => before = None,
                (Some(lower), Some(level)) if lower <= level => before = Some(level),
                (Some(_) | None, Some(_)) => return Err(TreeError::Burst(self.name.clone())),
            }
        }
        let sum: u64 = self.manual.values().copied().map(u64::from).sum();
        if !self.manual.is_empty() && self.limits.hard().map(u64::from) != Some(sum) {
            return Err(TreeError::ManualSum { node: self.name.clone(), sum });
        }
        Ok(())
    }
}

impl TreeError {
    /// Returns the name of the node that is at fault, if it is one.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Duplicate(node) | Self::Cycle(node) | Self::TooDeep(node) | Self::Burst(node) => {
                Some(node)
            }
            Self::UnknownParent { node, .. }
            | Self::BelowProfile { node, .. }
            | Self::ManualSum { node, .. } => Some(node),
            Self::TooMany => None,
        }
    }
}

impl Limits {
    /// Returns where the burst levels 1, 2 and 3 end.
    pub fn levels(&self) -> [Option<u32>; 3] {
        [self.calls, self.burst[0], self.burst[1]]
    }

    /// Returns the limit above which a call is refused: the last level that is set.
    pub fn hard(&self) -> Option<u32> {
        self.burst[1].or(self.burst[0]).or(self.calls)
    }
}

impl NodeId {
    /// Returns the place in the list given to [`Tree::new`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

fn ids() -> impl Iterator<Item = NodeId> {
    (0..).map(NodeId)
}

fn parent_of(
    node: &Node,
    nodes: &[Node],
    by_name: &BTreeMap<String, NodeId>,
) -> Result<Option<NodeId>, TreeError> {
    let Some(parent) = &node.parent else { return Ok(None) };
    let (node, parent) = (node.name.clone(), parent.clone());
    let Some(&id) = by_name.get(&parent) else {
        return Err(TreeError::UnknownParent { node, parent });
    };
    match nodes[id.index()].kind {
        Kind::Tenant => Ok(Some(id)),
        Kind::Profile => Err(TreeError::BelowProfile { node, parent }),
    }
}

#[cfg(test)]
mod tests;
