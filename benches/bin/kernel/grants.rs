//! A name was answered: how long until its addresses are open.

use crate::{Judged, snapshot};
use anyhow::{Context, Result};
use namewall_bench::figures::{Memory, figure, quantile};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::Nft;
use namewall_dataplane::render::{Ids, render};
use namewall_policy::domain::RulePattern;
use namewall_policy::{Instant, Lease, Program, compile};
use namewall_sandbox::Namespace;
use nix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant as Clock};

const GRANTS: usize = 3_000;
const WARM_UP: usize = 300;
/// Leases that are put there, at once.
const BULK: usize = 1_000;
const NOW: Instant = Instant(Duration::ZERO);
const EXPIRY: Instant = Instant(Duration::from_secs(3_600));

pub(crate) fn measure(most: usize) -> Result<()> {
    let (program, _) = compile(&snapshot());
    Judged::BOTH.into_iter().try_for_each(|judged| among(&program, judged, most))
}

/// Beside that table.
fn among(program: &Program, judged: Judged, most: usize) -> Result<()> {
    let pattern = pattern_of_one_group(program, judged)?;
    let namespace = Namespace::create()?;
    let mut nft = judged.open(&namespace)?;
    nft.replace(program, NOW)?;
    let mut leases = Leases { pattern, next: 0 };
    let before = Memory::now();
    for present in [0, 100_000, 1_000_000].into_iter().filter(|present| *present <= most) {
        while leases.next < present {
            nft.grant(&leases.take(BULK), NOW)?;
        }
        // Only of the first: the second lives in what the first left behind.
        if present == most && judged == Judged::BOTH[0] {
            let used = Memory::since(before);
            figure("leases_process_mb", used.process);
            figure("leases_kernel_mb", used.kernel);
        }
        for addresses in [1, 16] {
            let name = format!("grant_{addresses}_of_{present}_{}", judged.name());
            grants(&mut nft, &mut leases, addresses, &name)?;
        }
    }
    Ok(())
}

fn grants(nft: &mut SingleThreaded<Nft>, leases: &mut Leases, addresses: usize, name: &str) -> Result<()> {
    let (mut waited, mut worked) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + GRANTS {
        let wanted = leases.take(addresses);
        let (start, cpu) = (Clock::now(), cpu_time()?);
        nft.grant(&wanted, NOW)?;
        let (waiting, working) = (start.elapsed(), cpu_time()? - cpu);
        if number >= WARM_UP {
            waited.push(waiting.as_secs_f64() * 1e6);
            worked.push(working.as_secs_f64() * 1e6);
        }
    }
    figure(&format!("{name}_p50_us"), quantile(&waited, 0.5));
    figure(&format!("{name}_p99_us"), quantile(&waited, 0.99));
    // Without what others took of the machine meanwhile.
    figure(&format!("{name}_cpu_p50_us"), quantile(&worked, 0.5));
    figure(&format!("{name}_cpu_p99_us"), quantile(&worked, 0.99));
    Ok(())
}

fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// So that an address is one element.
fn pattern_of_one_group(program: &Program, judged: Judged) -> Result<RulePattern> {
    let groups = render(program, &judged.scope(), &Ids::default()).lease_groups;
    let mut patterns: Vec<&RulePattern> =
        groups.iter().filter(|(_, groups)| groups.len() == 1).map(|(pattern, _)| pattern).collect();
    patterns.sort_by_key(|pattern| pattern.names.written());
    patterns.first().copied().cloned().context("some name is in one rule only")
}

/// Leases, each of another name for another address.
struct Leases {
    pattern: RulePattern,
    next: usize,
}

impl Leases {
    fn take(&mut self, count: usize) -> Vec<Lease> {
        let example = self.pattern.names.example();
        let first = Ipv4Addr::new(11, 0, 0, 0).to_bits() + self.next as u32;
        self.next += count;
        let lease = |at: u32| Lease {
            pattern: self.pattern.clone(),
            name: format!("n{}.{example}", first + at).parse().unwrap_or_else(|_| example.clone()),
            address: IpAddr::V4(Ipv4Addr::from_bits(first + at)),
            expiry: EXPIRY,
            asked_by: None,
        };
        (0..count as u32).map(lease).collect()
    }
}
