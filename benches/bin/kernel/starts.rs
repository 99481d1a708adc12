//! A process starts: from a Snapshot to a table that is enforced.

use crate::{Judged, snapshot};
use anyhow::Result;
use namewall_bench::figures::{Memory, figure, median, milliseconds, timed};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::Nft;
use namewall_policy::{Instant, Program, Snapshot, compile};
use namewall_sandbox::Namespace;

const TRIES: usize = 5;
const COPIES: usize = 4;

pub(crate) fn measure() -> Result<()> {
    let snapshot = snapshot();
    let held = Judged::BOTH.map(|judged| memory(&snapshot, judged));
    for (judged, held) in Judged::BOTH.into_iter().zip(held) {
        let table = held?.pop().and_then(|(_, nft)| nft.dataplane.table().cloned()).unwrap_or_default();
        let (chains, sets) = (table.chains.values(), table.sets.values());
        let count = |what: &str, count: usize| figure(&format!("start_{}_{what}", judged.name()), count as f64);
        count("chains", table.chains.len());
        count("rules", chains.map(|chain| chain.rules.len()).sum());
        count("sets", table.sets.len());
        count("elements", sets.map(|set| set.elements.len()).sum());
    }
    Judged::BOTH.into_iter().try_for_each(|judged| times(&snapshot, judged))
}

/// What one more of the same takes: the first of them live in what reading the
/// manifests left behind. They are given back, so that nothing is freed meanwhile.
fn memory(snapshot: &Snapshot, judged: Judged) -> Result<Vec<(Program, SingleThreaded<Nft>)>> {
    let mut held = Vec::new();
    let mut used = Memory::now();
    for _ in 0..COPIES {
        let namespace = Namespace::create()?;
        let before = Memory::now();
        let (program, _) = compile(snapshot);
        let mut nft = judged.open(&namespace)?;
        nft.replace(&program, Instant::default())?;
        held.push((program, nft));
        used = Memory::since(before);
    }
    figure(&format!("start_{}_process_mb", judged.name()), used.process);
    figure(&format!("start_{}_kernel_mb", judged.name()), used.kernel);
    Ok(held)
}

fn times(snapshot: &Snapshot, judged: Judged) -> Result<()> {
    let (mut compiled, mut cold, mut adopting, mut whole) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TRIES {
        let namespace = Namespace::create()?;
        let ((program, _), compiling) = timed(|| compile(snapshot));
        let mut first = judged.open(&namespace)?;
        let (done, applying) = timed(|| first.replace(&program, Instant::default()));
        done?;
        drop(first);
        let mut second = judged.open(&namespace)?;
        let (done, taking_over) = timed(|| second.replace(&program, Instant::default()));
        done?;
        compiled.push(milliseconds(compiling));
        cold.push(milliseconds(applying));
        adopting.push(milliseconds(taking_over));
        whole.push(milliseconds(compiling + applying));
    }
    let name = judged.name();
    figure(&format!("start_{name}_compile_ms"), median(&compiled));
    figure(&format!("start_{name}_apply_ms"), median(&cold));
    figure(&format!("start_{name}_adopt_ms"), median(&adopting));
    figure(&format!("start_{name}_ms"), median(&whole));
    Ok(())
}
