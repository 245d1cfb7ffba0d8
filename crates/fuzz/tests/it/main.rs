//! Runs of the fuzz targets on the corpora.

#![expect(clippy::tests_outside_test_module, reason = "all of this is a test")]

use std::path::Path;

#[test]
fn every_input_of_the_corpora_passes_its_target() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut bytes = 0;
    for (name, target) in larder_fuzz::TARGETS {
        let directory = std::fs::read_dir(corpora.join(name)).unwrap();
        let inputs: Vec<_> = directory.map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{name} has a corpus");
        for path in inputs {
            println!("{}", path.display());
            let input = std::fs::read(path).unwrap();
            bytes += input.len();
            target(&input);
        }
    }
    assert!(bytes < 200 << 10, "the corpora have {bytes} bytes: minimize them");
}
