//! A slab: values addressed by small numbers that are reused, in chunks that never move.

use super::ChunkedArray;

/// Values of type `T`, addressed by slot.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    values: ChunkedArray<Option<T>>,
    free: Vec<u32>,
    end: u32,
    len: u32,
}

impl<T: Clone> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab { values: ChunkedArray::default(), free: Vec::new(), end: 0, len: 0 }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        });
        let place = self.values.get_mut(slot);
        assert!(place.is_none(), "slot {slot} is in use");
        *place = Some(value);
        self.len += 1;
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> T {
        let value = self.values.get_mut(slot).take().expect("a slot in use");
        self.free.push(slot);
        self.len -= 1;
        value
    }

    /// Returns the value at `slot`, which is in use.
    pub(crate) fn get(&self, slot: u32) -> &T {
        self.values.get(slot).as_ref().expect("a slot in use")
    }

    /// Returns the value at `slot`, below [`Slab::end`], if it is in use.
    pub(crate) fn find(&self, slot: u32) -> Option<&T> {
        self.values.get(slot).as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut T {
        self.values.get_mut(slot).as_mut().expect("a slot in use")
    }

    /// Returns all slots in use, in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots_in(0..self.end)
    }

    /// Returns the slots in use of a range, in order.
    pub(crate) fn slots_in(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = u32> + '_ {
        (slots.start..slots.end.min(self.end)).filter(|&slot| self.values.get(slot).is_some())
    }

    /// Returns the end of the range of used slots.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_removed_values_are_reused() {
        let mut slab = Slab::new();
        let slots = [10, 20, 30].map(|value| slab.insert(value));
        assert_eq!(slab.remove(slots[1]), 20);
        assert_eq!((slab.len(), slab.end(), slab.find(slots[1])), (2, 3, None));
        assert_eq!(slab.insert(40), slots[1]);
        assert_eq!((slab.len(), slab.end(), slab.find(slots[1])), (3, 3, Some(&40)));
    }
}
