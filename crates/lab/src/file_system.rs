//! Files on a modeled device: where they lie, and the requests that this costs.

mod aged;
mod allocator;
mod extents;
mod interleaved;
mod store;

pub use aged::AgedVolume;
pub use allocator::Allocator;
pub use extents::FileMap;
pub use interleaved::Interleaved;
pub use store::FileStore;
