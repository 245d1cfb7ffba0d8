//! The program `larder`; its code is in the library of the same name.

use std::process::ExitCode;

/// Maps large allocations with huge pages: lookups in the tables of the cache and of the simulator
/// are random.
#[global_allocator]
static ALLOCATOR: larder_mem::HugeAllocator = larder_mem::HugeAllocator;

fn main() -> ExitCode {
    larder_mem::map_large_pieces();
    larder::main()
}
