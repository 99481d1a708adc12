//! A list in pieces that one version shares with the next: what a change costs
//! is a piece, and what two versions have in common is known without a look.

use std::ops::Index;
use std::sync::Arc;

/// All pieces but the last are of this size.
const PIECE: usize = 128;

#[derive(Clone, Debug)]
pub struct Pieces<T> {
    pieces: Arc<Vec<Arc<Vec<T>>>>,
    length: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Self { pieces: Arc::default(), length: 0 }
    }
}

impl<T> Pieces<T> {
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        self.pieces.get(at / PIECE)?.get(at % PIECE)
    }

    pub fn iter(&self) -> Iter<'_, T> {
        self.pieces.iter().flat_map(as_slice)
    }

    /// The places at which it is not certainly the same as another: all in pieces that are not shared.
    pub fn not_shared_with<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (usize, &'a T)> {
        let is_shared = |at: usize, piece| other.pieces.get(at).is_some_and(|theirs| Arc::ptr_eq(piece, theirs));
        let all_shared = Arc::ptr_eq(&self.pieces, &other.pieces);
        let own = self.pieces.iter().enumerate().filter(move |(at, piece)| !all_shared && !is_shared(*at, piece));
        own.flat_map(|(at, piece)| piece.iter().enumerate().map(move |(within, one)| (at * PIECE + within, one)))
    }

    pub fn is_shared_with(&self, other: &Self) -> bool {
        self.length == other.length && self.not_shared_with(other).next().is_none()
    }
}

fn as_slice<T>(piece: &Arc<Vec<T>>) -> std::slice::Iter<'_, T> {
    piece.iter()
}

/// Through all pieces.
pub type Iter<'a, T> = std::iter::FlatMap<
    std::slice::Iter<'a, Arc<Vec<T>>>,
    std::slice::Iter<'a, T>,
    fn(&Arc<Vec<T>>) -> std::slice::Iter<'_, T>,
>;

impl<T: Clone> Pieces<T> {
    pub fn push(&mut self, value: T) {
        let pieces = Arc::make_mut(&mut self.pieces);
        match pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => Arc::make_mut(last).push(value),
            None => pieces.push(Arc::new(vec![value])),
        }
        self.length += 1;
    }

    /// Another one in this place.
    pub fn set(&mut self, at: usize, value: T) {
        if let Some(place) = self.get_mut(at) {
            *place = value;
        }
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let piece = Arc::make_mut(&mut self.pieces).get_mut(at / PIECE)?;
        Arc::make_mut(piece).get_mut(at % PIECE)
    }

    /// Changes the list as a whole; nothing is shared after that.
    pub fn edit(&mut self, edit: impl FnOnce(&mut Vec<T>)) {
        let mut all: Vec<T> = self.iter().cloned().collect();
        edit(&mut all);
        *self = all.into_iter().collect();
    }
}

/// The places at which two versions differ, or one ends before the other.
pub fn differing<'a, T: PartialEq>(one: &'a Pieces<T>, other: &'a Pieces<T>) -> impl Iterator<Item = usize> + 'a {
    let changed = one.not_shared_with(other).filter(|(at, value)| other.get(*at) != Some(*value)).map(|(at, _)| at);
    changed.chain(one.len()..other.len())
}

impl<T> FromIterator<T> for Pieces<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let (mut pieces, mut length) = (Vec::new(), 0);
        let mut values = values.into_iter().peekable();
        while values.peek().is_some() {
            let mut piece: Vec<T> = Vec::with_capacity(PIECE);
            piece.extend(values.by_ref().take(PIECE));
            piece.shrink_to_fit();
            length += piece.len();
            pieces.push(Arc::new(piece));
        }
        Self { pieces: Arc::new(pieces), length }
    }
}

impl<T> Index<usize> for Pieces<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.pieces[at / PIECE][at % PIECE]
    }
}

impl<'a, T> IntoIterator for &'a Pieces<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_costs_its_piece_and_the_rest_is_shared() {
        let before: Pieces<usize> = (0..300).collect();
        let mut next = before.clone();
        assert!(next.is_shared_with(&before));
        next.set(130, 7);
        assert_eq!(next.not_shared_with(&before).count(), 128);
        assert_eq!(differing(&before, &next).collect::<Vec<_>>(), [130]);
        assert_eq!((before[130], next[130], next.len()), (130, 7, 300));
        assert!(next.iter().eq((0..300).map(|at| if at == 130 { 7 } else { at }).collect::<Vec<_>>().iter()));
    }

    #[test]
    fn what_is_longer_differs_by_what_it_has_more() {
        let before: Pieces<usize> = (0..127).collect();
        let mut next = before.clone();
        for at in 127..130 {
            next.push(at);
        }
        assert_eq!(differing(&before, &next).collect::<Vec<_>>(), [127, 128, 129]);
        assert_eq!(differing(&next, &before).collect::<Vec<_>>(), [127, 128, 129]);
        next.edit(|all| all.truncate(127));
        assert_eq!(differing(&before, &next).count(), 0);
        assert_eq!((next.get(127), next.is_shared_with(&before)), (None, false));
    }
}
