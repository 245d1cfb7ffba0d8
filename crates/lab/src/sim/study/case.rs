//! One trace with one page size: the unit of simulation.

use super::{Size, StudyError, refused};
use crate::sim::interner::Interner;
use crate::sim::references::{Batch, ReferenceKey, References, Split};
use crate::sim::sizing::Open;
use crate::trace::BoxedSource;
use larder_schema::format;

/// A trace and the way its requests are split.
pub struct Case<'a> {
    /// The trace as the user named it.
    pub name: String,
    /// Opens the trace from its beginning.
    pub open: &'a Open<'a>,
    /// The split.
    pub split: Split,
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Case<'_> {
    /// Returns the bytes of a page; `None` if references are not pages.
    pub(super) fn page_bytes(&self) -> Option<u32> {
        self.split.page_bytes()
    }

    /// Opens the trace at its beginning.
    pub(super) fn source(&self) -> Result<BoxedSource, StudyError> {
        (self.open)().map_err(|error| StudyError::Reference(error.into()))
    }

    /// Returns the number of distinct pages of the trace.
    pub(super) fn footprint(&self) -> Result<u64, StudyError> {
        let (mut footprint, mut numbers) = (Interner::new(), Vec::new());
        self.for_each_batch(None, |batch| {
            footprint.numbers(&batch.references, &mut numbers);
            Ok(())
        })?;
        Ok(footprint.len() as u64)
    }

    /// Returns the references from the beginning.
    pub(super) fn references(&self) -> Result<References, StudyError> {
        Ok(References::new(self.source()?, self.split))
    }

    /// Passes all references to `run`, in batches; returns the source, which then knows all names.
    pub(super) fn for_each_batch(
        &self,
        by: Option<ReferenceKey>,
        run: impl FnMut(&Batch) -> Result<(), StudyError>,
    ) -> Result<References, StudyError> {
        let mut references = self.references()?.by(by);
        references.for_each_batch(run)?;
        Ok(references)
    }

    /// Returns the capacities of caches of these sizes, in pages.
    pub(super) fn capacities(&self, sizes: &[Size], pages: u64) -> Result<Vec<u32>, StudyError> {
        sizes.iter().map(|size| size.capacity(self.page_bytes(), pages)).collect()
    }

    /// Returns notes for the user about the trace that was read.
    pub(super) fn notes(&self, references: &References) -> Vec<String> {
        let mut notes = references.source().notes();
        let others = references.counts().others;
        if others > 0 {
            let verb = if others == 1 { "is" } else { "are" };
            let others = format::counted(others, "request");
            notes.push(format!(
                "{}: skipped {others} that {verb} neither read nor write",
                self.name
            ));
        }
        notes
    }

    /// Returns the error of a trace without references.
    pub(super) fn is_empty(&self) -> StudyError {
        refused(format!("simulate {}: it has no read and no write", self.name))
    }
}
