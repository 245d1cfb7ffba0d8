//! Compiles the sources of `crates/mem` with loom's locks and atomics instead of those of std.

fn main() {
    println!("cargo:rustc-cfg=larder_loom");
    println!("cargo:rerun-if-changed=build.rs");
}
