//! The target `fuse-directory` of larder-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| larder_fuzz::run("fuse-directory", input));
