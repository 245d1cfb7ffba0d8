//! Compiles the sources of `crates/core` with shuttle's locks and atomics instead of those of std.

fn main() {
    println!("cargo:rustc-cfg=larder_shuttle");
    println!("cargo:rerun-if-changed=build.rs");
}
