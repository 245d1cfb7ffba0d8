//! An array that grows by chunks: elements never move, and memory is allocated as indices are used.

const CHUNK: usize = 1024;

/// An array of defaults, indexed by slot, that grows by chunks.
#[derive(Debug)]
pub(crate) struct ChunkedArray<T> {
    chunks: Vec<Option<Box<[T]>>>,
}

impl<T> Default for ChunkedArray<T> {
    fn default() -> Self {
        ChunkedArray { chunks: Vec::new() }
    }
}

impl<T: Clone + Default> ChunkedArray<T> {
    /// Returns the element at `index`. A call of [`ChunkedArray::get_mut`] must have created it.
    pub(crate) fn get(&self, index: u32) -> &T {
        let chunk = self.chunks[index as usize / CHUNK].as_ref().expect("a chunk in use");
        &chunk[index as usize % CHUNK]
    }

    /// Returns the element at `index`, if [`ChunkedArray::get_mut`] has allocated its chunk.
    #[inline]
    pub(crate) fn find(&self, index: u32) -> Option<&T> {
        let chunk = self.chunks.get(index as usize / CHUNK)?.as_ref()?;
        Some(&chunk[index as usize % CHUNK])
    }

    /// As [`ChunkedArray::find`], with mutable access.
    #[inline]
    pub(crate) fn find_mut(&mut self, index: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(index as usize / CHUNK)?.as_mut()?;
        Some(&mut chunk[index as usize % CHUNK])
    }

    /// Returns the element at `index`; a new one has the default value.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut T {
        let chunk = index as usize / CHUNK;
        if !matches!(self.chunks.get(chunk), Some(Some(_))) {
            self.allocate(chunk);
        }
        let chunk = self.chunks[chunk].as_mut().expect("an allocated chunk");
        &mut chunk[index as usize % CHUNK]
    }

    #[cold]
    fn allocate(&mut self, chunk: usize) {
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        self.chunks[chunk] = Some(vec![T::default(); CHUNK].into());
    }
}
