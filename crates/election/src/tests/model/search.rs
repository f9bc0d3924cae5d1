//! What the checker walks through.

use super::*;

impl Model for Cluster {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut world = World {
            nodes: [None, None, None],
            disks: [None; 3],
            heard: [[false; 3]; 3],
            hears: [[false; 3]; 3],
            cut: [[false; 3]; 3],
            net: BTreeSet::new(),
            left: NONE,
            lives: 0,
            epochs: BTreeMap::new(),
            promised: [None; 3],
            clash: false,
            fell: false,
            campaigns_before: [0; 3],
            epochs_before: 0,
        };
        (0..3).for_each(|at| self.start(&mut world, at, true));
        let mut world = self.settle(&world, false, 7).expect("a cold start comes to rest");
        Self::renumber(&mut world);
        world.left = self.faults;
        world.epochs_before = world.epochs.len();
        for (before, bully) in world.campaigns_before.iter_mut().zip(&world.nodes) {
            *before = bully.as_ref().map_or(0, Bully::campaigns);
        }
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (to, from) in PAIRS {
            if world.nodes[to].is_some() && world.nodes[from].is_some() && !world.cut[from][to] {
                actions.push(Action::Beat { from, to });
            } else if world.nodes[to].is_some() && world.heard[to][from] {
                actions.push(Action::Silence { at: to, of: from });
            }
            if !world.cut[from][to] {
                if 0 < world.left.cuts && from < to {
                    actions.push(Action::Cut { from, to, both: true });
                }
                if 0 < world.left.one_way_cuts {
                    actions.push(Action::Cut { from, to, both: false });
                }
            }
        }
        for at in 0..3 {
            // What only allows further campaigns matters to no run that is followed.
            let timers = Self::timers(world, at).into_iter().filter(|it| *it != Timer::Budget);
            actions.extend(timers.map(|it| Action::Timer(at, it)));
            if world.nodes[at].is_some() {
                if 0 < world.left.crashes {
                    actions.push(Action::Crash(at));
                }
                continue;
            }
            if 0 < world.left.restarts {
                actions.push(Action::Restart { at, file: true });
            }
            if 0 < world.left.losses {
                actions.push(Action::Restart { at, file: false });
            }
        }
        if 0 < world.left.heals && world.cut.iter().flatten().any(|cut| *cut) {
            actions.push(Action::Heal);
        }
        for packet in world.net.iter().filter(|packet| self.arrives(world, packet)) {
            actions.push(Action::Deliver(packet.clone()));
            if 0 < world.left.doubles {
                actions.push(Action::Double(packet.clone()));
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Beat { from, to } => {
                self.beat(&mut world, from, to);
                if self.meet && !world.cut[to][from] {
                    self.beat(&mut world, to, from);
                    self.beat(&mut world, from, to);
                }
            }
            Action::Silence { at, of } => self.silence(&mut world, at, of),
            Action::Deliver(packet) => {
                world.net.remove(&packet);
                self.deliver(&mut world, &packet);
            }
            Action::Double(packet) => {
                world.left.doubles -= 1;
                self.deliver(&mut world, &packet);
            }
            Action::Timer(at, timer) => self.fire(&mut world, at, timer),
            Action::Cut { from, to, both } => {
                world.cut[from][to] = true;
                if both {
                    world.left.cuts -= 1;
                    world.cut[to][from] = true;
                } else {
                    world.left.one_way_cuts -= 1;
                }
            }
            Action::Heal => {
                world.left.heals -= 1;
                world.cut = [[false; 3]; 3];
            }
            Action::Crash(at) => {
                world.left.crashes -= 1;
                world.nodes[at] = None;
                world.heard[at] = [false; 3];
                world.hears[at] = [false; 3];
            }
            Action::Restart { at, file } => {
                if file {
                    world.left.restarts -= 1;
                } else {
                    world.left.losses -= 1;
                }
                self.start(&mut world, at, file);
            }
        }
        Self::renumber(&mut world);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(UNIQUE, |_: &Self, world: &World| !world.clash),
            Property::always(KEPT, |_: &Self, world: &World| !world.fell),
            Property::always(REST, |model: &Self, world: &World| model.comes_to_rest(world)),
            Property::sometimes(SPLIT, |model: &Self, world: &World| {
                let islands = model.islands(world);
                islands.iter().any(|island| 1 < Self::leads(world, island).len())
            }),
            Property::sometimes(HEALED, |model: &Self, world: &World| {
                world.left != model.faults && model.is_at_rest(world)
            }),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        let mut nodes = world.nodes.iter().zip(world.campaigns_before);
        world.epochs.len() <= world.epochs_before + self.epochs_max
            && nodes.all(|(bully, before)| {
                let campaigns = bully.as_ref().map_or(0, Bully::campaigns);
                campaigns <= before + self.campaigns_max
            })
    }
}
