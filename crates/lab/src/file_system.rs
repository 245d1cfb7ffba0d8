//! Files on a modeled device: where they lie, and the requests that this costs.

mod aged;
mod allocator;
mod extents;
mod interleaved;
mod ntfs;
mod store;

pub use aged::{AgedVolume, Ageing, file_bytes};
pub use allocator::Allocator;
pub use extents::FileMap;
pub use interleaved::Interleaved;
pub use ntfs::{FileId, FileRequest, Ntfs, Part};
pub use store::FileStore;
