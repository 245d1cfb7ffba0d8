//! Ranges of pages with a value each: ordered, without overlap.
//!
//! Invariant: no range is empty, and no two overlap.

use std::collections::BTreeMap;

/// A map from ranges of pages to values.
#[derive(Clone, Debug)]
pub(crate) struct SpanMap<T> {
    /// First page to end (exclusive) and value.
    spans: BTreeMap<u64, (u64, T)>,
}

impl<T> Default for SpanMap<T> {
    fn default() -> Self {
        SpanMap { spans: BTreeMap::new() }
    }
}

impl<T: Copy> SpanMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Sets the value of the pages from `first` up to, but not including, `end`.
    pub(crate) fn set(&mut self, first: u64, end: u64, value: T) {
        if first < end {
            self.retain(first, end, |_, _| false);
            self.spans.insert(first, (end, value));
        }
    }

    /// Calls `keep` with the page count and the value of each piece between `first` and `end`, and
    /// removes the pieces for which it returns false.
    pub(crate) fn retain(&mut self, first: u64, end: u64, mut keep: impl FnMut(u64, T) -> bool) {
        // The preceding range may extend into this one.
        let mut from = first;
        if let Some((&begin, &(to, value))) = self.spans.range(..first).next_back()
            && to > first
        {
            let stop = to.min(end);
            if !keep(stop - first, value) {
                self.spans.insert(begin, (first, value));
                if to > end {
                    self.spans.insert(end, (to, value));
                }
            }
            from = stop;
        }
        while from < end {
            let Some((&begin, &(to, value))) = self.spans.range(from..end).next() else { return };
            let stop = to.min(end);
            if !keep(stop - begin, value) {
                self.spans.remove(&begin);
                if to > end {
                    self.spans.insert(end, (to, value));
                }
            }
            from = stop;
        }
    }

    /// Returns the number of pages between `first` and `end` whose value satisfies `matches`.
    pub(crate) fn count(&self, first: u64, end: u64, matches: impl Fn(T) -> bool) -> u64 {
        let head = self.at(first).map_or(first, |(begin, ..)| begin);
        let pieces =
            self.spans.range(head..end.max(head)).filter(|(_, (_, value))| matches(*value));
        pieces.map(|(&begin, &(to, _))| to.min(end).saturating_sub(begin.max(first))).sum()
    }

    /// Returns the range that contains a page: its first page, its end (exclusive), its value.
    pub(crate) fn at(&self, page: u64) -> Option<(u64, u64, T)> {
        let (&first, &(end, value)) = self.spans.range(..=page).next_back()?;
        (page < end).then_some((first, end, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of each page, for the comparison with the model.
    fn pages(spans: &SpanMap<u8>) -> Vec<Option<u8>> {
        (0..64).map(|page| spans.at(page).map(|(_, _, value)| value)).collect()
    }

    #[test]
    fn random_changes_agree_with_an_array() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for _ in 0..200 {
            let (mut spans, mut model) = (SpanMap::default(), vec![None; 64]);
            for _ in 0..60 {
                let (first, length) = (next(60), next(5));
                let end = (first + length).min(64);
                let index = |page: u64| usize::try_from(page).unwrap();
                if next(2) == 0 {
                    let value = u8::try_from(next(3)).unwrap();
                    spans.set(first, end, value);
                    model[index(first)..index(end)].fill(Some(value));
                } else {
                    let removed_value = u8::try_from(next(3)).unwrap();
                    let mut visited = 0;
                    spans.retain(first, end, |pages, value| {
                        visited += pages;
                        value != removed_value
                    });
                    let range = &mut model[index(first)..index(end)];
                    assert_eq!(visited, range.iter().flatten().count() as u64);
                    range
                        .iter_mut()
                        .filter(|it| **it == Some(removed_value))
                        .for_each(|it| *it = None);
                }
                assert_eq!(pages(&spans), model);
                let ones = model[index(first)..index(end)].iter().filter(|it| **it == Some(1));
                assert_eq!(spans.count(first, end, |value| value == 1), ones.count() as u64);
            }
        }
    }
}
