//! The program `larder`; all of its code is in the library of the same name.

use std::process::ExitCode;

/// The tables of the cache and of the simulator are looked at in random places.
#[global_allocator]
static ALLOCATOR: larder_mem::HugeAllocator = larder_mem::HugeAllocator;

fn main() -> ExitCode {
    larder_mem::map_large_pieces();
    larder::main()
}
