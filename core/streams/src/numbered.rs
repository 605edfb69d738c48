//! A table of numbered items. A number from another process may be wrong or old; the table detects it.

/// Numbers are not 0. A number is reused after 2^32 others of the same place.
pub(super) struct Numbered<T> {
    /// The generation of the current or next number, and the item.
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Numbered<T> {
    pub(crate) fn insert(&mut self, what: T) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[at as usize];
        place.1 = Some(what);
        (u64::from(place.0) << 32) | (u64::from(at) + 1)
    }

    /// The item with this number.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = (number as u32).checked_sub(1)?;
        let place = self.places.get_mut(at as usize)?;
        let current = u64::from(place.0) == number >> 32;
        place.1.as_mut().filter(|_| current)
    }

    pub fn any(&self, such: impl Fn(&T) -> bool) -> bool {
        !self.is_empty()
            && self
                .places
                .iter()
                .any(|place| place.1.as_ref().is_some_and(&such))
    }

    /// Removes the item with this number. The number becomes invalid.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let at = (number as u32).checked_sub(1)?;
        let place = self.places.get_mut(at as usize)?;
        if u64::from(place.0) != number >> 32 {
            return None;
        }
        let what = place.1.take()?;
        place.0 = place.0.wrapping_add(1);
        self.free.push(at);
        Some(what)
    }

    /// Whether an item has this number.
    pub fn has(&self, number: u64) -> bool {
        let at = (number as u32).wrapping_sub(1);
        let place = self.places.get(at as usize);
        place.is_some_and(|(generation, what)| {
            what.is_some() && u64::from(*generation) == number >> 32
        })
    }

    /// The numbers of all items.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let used = |(low, (generation, what)): (u64, &(u32, Option<T>))| {
            what.is_some().then(|| (u64::from(*generation) << 32) | low)
        };
        (1..).zip(&self.places).filter_map(used).collect()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Removes all items. Their numbers become invalid.
    pub(crate) fn remove_all(&mut self) -> Vec<T> {
        self.numbers()
            .into_iter()
            .filter_map(|number| self.remove(number))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_one_thing_once() {
        let mut numbered = Numbered::default();
        let [a, b] = ["a", "b"].map(|what| numbered.insert(what));
        assert!(a != 0 && b != 0 && a != b);
        assert_eq!(numbered.remove(a), Some("a"));
        assert_eq!(numbered.remove(a), None);
        let c = numbered.insert("c");
        assert!(![a, b].contains(&c));
        assert_eq!(numbered.remove(a), None);
        for wrong in [0, 1 << 40, u64::MAX, b + (1 << 32), b + 7] {
            assert_eq!(numbered.remove(wrong), None, "{wrong:#x}");
        }
        assert!(numbered.has(b) && numbered.has(c) && !numbered.has(a) && !numbered.has(0));
        assert_eq!(numbered.numbers(), [c, b]);
        let mut all = numbered.remove_all();
        all.sort_unstable();
        assert_eq!(all, ["b", "c"]);
        assert_eq!((numbered.remove(b), numbered.remove(c)), (None, None));
        let d = numbered.insert("d");
        assert!(![a, b, c].contains(&d));
        assert_eq!(numbered.remove_all(), ["d"]);
    }
}
