//! Slots that are found by number and used again.

/// A slot's number and how often it was used before, so that an old key never
/// finds a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) slot: u32,
    generation: u32,
}

/// Values in numbered slots.
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(super) fn insert(&mut self, value: T) -> Key {
        self.len += 1;
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.value = Some(value);
            return Key { slot, generation: entry.generation };
        }
        let slot = u32::try_from(self.slots.len()).expect("a table has fewer than 2^32 slots");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Key { slot, generation: 0 }
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let entry = self.slots.get_mut(slot as usize)?;
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        self.len -= 1;
        Some(value)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.slots.get_mut(key.slot as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let entry = self.slots.get(key.slot as usize)?;
        if entry.generation == key.generation { entry.value.as_ref() } else { None }
    }

    /// Whatever is in `slot` now.
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// The key of whatever is in `slot` now.
    pub(super) fn key(&self, slot: u32) -> Option<Key> {
        let entry = self.slots.get(slot as usize)?;
        entry.value.as_ref().map(|_| Key { slot, generation: entry.generation })
    }

    /// The slots whose values satisfy `wanted`.
    pub(super) fn filled(&self, wanted: impl Fn(&T) -> bool) -> Vec<u32> {
        let slots = (0..).zip(&self.slots);
        slots
            .filter(|(_, slot)| slot.value.as_ref().is_some_and(&wanted))
            .map(|(number, _)| number)
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
