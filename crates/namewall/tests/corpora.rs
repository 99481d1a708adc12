//! Replays the checked-in fuzz corpora (`fuzz/corpus/`), among them every input
//! that ever broke something. `make fuzz` looks for new ones.

use std::fs;
use std::path::Path;

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

#[test]
fn every_input_of_every_target_is_still_answered() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in fuzz::TARGETS {
        let folder = fs::read_dir(corpora.join(name)).expect("every target has a corpus");
        let mut inputs: Vec<_> = folder.map(|entry| entry.expect("the entry can be read").path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "the corpus of {name} is empty");
        for input in inputs {
            // Told before it runs: the last line is the input that broke it (after an abort: --nocapture).
            println!("{name}: {}", input.display());
            target(&fs::read(&input).expect("the input can be read"));
        }
    }
}
