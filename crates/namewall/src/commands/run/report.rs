//! `namewall status` and `namewall leases`.

use super::running;
use crate::cli::{Format, Leases, Live};
use crate::output::{self, BAD, SOFT, STRONG, WARN};
use anyhow::Result;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn status(args: &Live) -> Result<ExitCode> {
    let told = running()?.ask(&json!({"status": {}}))?;
    let mut out = output::stdout();
    let printed = match args.output {
        Format::Json => output::print_json(&mut out, &told),
        Format::Text => print_status(&mut out, &told).and_then(|()| Ok(out.flush()?)),
    };
    output::unless_closed(printed)?;
    Ok(ExitCode::SUCCESS)
}

fn print_status(out: &mut impl Write, told: &Value) -> Result<()> {
    if let Some(held) = told["held"].as_str() {
        writeln!(out, "{STRONG}waiting{STRONG:#} as process {}", told["pid"])?;
        writeln!(out, "policies  {BAD}{held}{BAD:#}")?;
        return Ok(());
    }
    let node = told["node"].as_str().unwrap_or("this machine");
    writeln!(
        out,
        "{STRONG}running{STRONG:#} on {node} for {}, as process {}",
        time(count(&told["seconds"])),
        told["pid"]
    )?;
    let kept = texts(&told["keptFiles"]);
    writeln!(out, "policies  {} for {} pods, changed {} times", told["policies"], told["pods"], told["changes"])?;
    for pod in texts(&told["notEnforced"]) {
        writeln!(out, "          {BAD}nothing is enforced for {pod}: it has an address of this machine{BAD:#}")?;
    }
    for file in &kept {
        writeln!(out, "          {WARN}{file} has an error; its last good version stays in force{WARN:#}")?;
    }
    let errors: Vec<&str> = texts(&told["findings"]).into_iter().filter(|text| text.starts_with("error")).collect();
    for error in errors.iter().take(LISTED) {
        writeln!(out, "          {BAD}{error}{BAD:#}")?;
    }
    if errors.len() > LISTED {
        writeln!(out, "          {BAD}and {} more errors; -o json has all{BAD:#}", errors.len() - LISTED)?;
    }
    // What is missing in the settings is told; warnings about policies are for `namewall check`.
    let warnings: Vec<&str> = texts(&told["findings"]).into_iter().filter(|text| text.starts_with("warning")).collect();
    for warning in warnings.iter().filter(|text| text.starts_with("warning[no-pod-network]")) {
        writeln!(out, "          {WARN}{warning}{WARN:#}")?;
    }
    if !warnings.is_empty() {
        writeln!(out, "          {WARN}{} warnings; -o json has all{WARN:#}", warnings.len())?;
    }
    if let Some(error) = told["lastError"].as_str() {
        writeln!(out, "          {BAD}{error}{BAD:#}")?;
    }
    let later = texts(&told["atNextStart"]);
    if !later.is_empty() {
        writeln!(
            out,
            "          {WARN}settings that have changed count from the next start on: {}{WARN:#}",
            later.join(", ")
        )?;
    }
    for key in ["standsIn", "lost", "failure", "leftOut"] {
        if let Some(text) = told["storage"][key].as_str() {
            writeln!(out, "          {BAD}{text}{BAD:#}")?;
        }
    }
    let dns = &told["dns"];
    let counts = &dns["counts"];
    let how = if dns["intercepts"].as_bool() == Some(true) { "pods' questions are taken" } else { "only asked openly" };
    writeln!(out, "DNS       {how}; {} questions, {} answers held", counts["queries"], counts["held"])?;
    for upstream in dns["upstreams"].as_array().into_iter().flatten() {
        let address = upstream["address"].as_str().unwrap_or_default();
        match upstream["up"].as_bool() {
            Some(true) if upstream["answered"].as_u64() == Some(0) => {
                writeln!(out, "          {address} has not answered yet")?;
            }
            Some(true) => writeln!(out, "          {address} answers")?,
            _ => writeln!(out, "          {BAD}{address} does not answer{BAD:#}")?,
        }
    }
    for (key, words) in [
        ("unanswered", "questions nobody answered (SERVFAIL)"),
        ("hold_failed", "answers the kernel was too slow for (SERVFAIL)"),
        ("hold_released", "answers released before the kernel was ready"),
        ("over_limit", "questions over a limit"),
        ("unasked", "forged or late replies, dropped"),
    ] {
        if count(&counts[key]) > 0 {
            writeln!(out, "          {WARN}{} {words}{WARN:#}", counts[key])?;
        }
    }
    let names = &told["names"];
    let denied = match count(&names["addressesDenied"]) {
        0 => String::new(),
        denied => format!(", {denied} denied"),
    };
    let (open, learned) = (&names["addressesOpen"], &names["answersLearned"]);
    writeln!(out, "names     {open} addresses open{denied}, {learned} answers learned")?;
    for (key, words) in [
        ("addressesRefused", "addresses refused: they point inside"),
        ("addressesForeign", "addresses of other owners, not opened"),
        ("evicted", "leases given up for want of room"),
        ("failures", "times the kernel did not take a lease"),
    ] {
        if count(&names[key]) > 0 {
            writeln!(out, "          {WARN}{} {words}{WARN:#}", names[key])?;
        }
    }
    if let Some(trouble) = told["shared"]["lastTrouble"].as_str() {
        writeln!(out, "          {WARN}last failure to share a name: {trouble}{WARN:#}")?;
    }
    let attached = &told["attachments"];
    if count(&attached["known"]) > 0 {
        let (known, enforced) = (&attached["known"], &attached["enforced"]);
        writeln!(out, "pods      {known} were attached by the CNI plugin, {enforced} of them are enforced")?;
    }
    for what in texts(&attached["unreadable"]) {
        writeln!(out, "          {BAD}{what}{BAD:#}")?;
    }
    print_guard(out, &told["guard"])?;
    print_second(out, &told["second"])?;
    if count(&told["cuts"]["forgotten"]) > 0 {
        let what = "connections that were cut are forgotten, for want of room: the far end may open them again";
        writeln!(out, "cut       {BAD}{} {what}{BAD:#}", told["cuts"]["forgotten"])?;
    }
    writeln!(out, "denied    {} packets were logged; a client that tries again counts again", told["denials"])?;
    let log = &told["denialLog"];
    if let Some(error) = log["error"].as_str() {
        writeln!(out, "          {BAD}denials are not logged now: {error}{BAD:#}")?;
    } else if count(&log["failures"]) > 0 {
        let what = "times the kernel's log of denials failed; denials of those times were not logged";
        writeln!(out, "          {WARN}{} {what}{WARN:#}", log["failures"])?;
    }
    Ok(())
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// More addresses than this are not listed.
const LISTED: usize = 5;

fn print_guard(out: &mut impl Write, guard: &Value) -> Result<()> {
    let (interfaces, wrong) = (&guard["interfaces"], guard["wrongSource"].as_u64().unwrap_or(0));
    writeln!(out, "guard     {interfaces} interfaces of pods, {wrong} packets with a source that is not the pod's")?;
    let routed = count(&guard["sourceRoutes"]);
    if routed > 0 {
        writeln!(out, "          {routed} packets with IPv4 options or an IPv6 routing header were dropped")?;
    }
    let tunnels = texts(&guard["closedTunnels"]);
    if !tunnels.is_empty() {
        let packets = guard["intoTunnels"].as_u64().unwrap_or(0);
        writeln!(out, "          tunnels of nodes are closed to pods ({}), {packets} packets", tunnels.join(", "))?;
    }
    let unknown = texts(&guard["unknown"]);
    if !unknown.is_empty() {
        let more = unknown.len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let some = unknown[..unknown.len().min(LISTED)].join(", ");
        writeln!(
            out,
            "          {WARN}no interface is known of {some}{more}: the address alone tells the pod{WARN:#}"
        )?;
    }
    if let Some(error) = guard["runtime"]["error"].as_str() {
        writeln!(out, "          {WARN}{error}{WARN:#}")?;
    }
    for problem in texts(&guard["runtime"]["problems"]) {
        writeln!(out, "          {WARN}the interface of {problem}{WARN:#}")?;
    }
    for refused in texts(&guard["refusedSources"]) {
        writeln!(out, "          {BAD}{refused}{BAD:#}")?;
    }
    for bridge in texts(&guard["unfilteredBridges"]) {
        let why = "passes frames between pods that no policy sees: load br_netfilter";
        writeln!(out, "          {BAD}{bridge} {why}{BAD:#}")?;
    }
    if let Some(error) = guard["error"].as_str() {
        writeln!(out, "          {BAD}{error}{BAD:#}")?;
    }
    Ok(())
}

/// Second interfaces of pods. Nothing if no pod was attached by the CNI plugin.
fn print_second(out: &mut impl Write, second: &Value) -> Result<()> {
    let (reached, unreached) = (count(&second["reached"]), count(&second["unreached"]));
    if reached + unreached == 0 {
        return Ok(());
    }
    let pods = second["pods"].as_array().map(Vec::as_slice).unwrap_or_default();
    writeln!(out, "second    {} pods have interfaces besides their own", pods.len())?;
    for pod in pods.iter().filter(|pod| pod["enforced"] != true) {
        let name = pod["pod"].as_str().unwrap_or_default();
        writeln!(out, "          {WARN}those of {name} are closed, or as they were{WARN:#}")?;
    }
    if unreached > 0 {
        let why = "pods are not reached, and no policy judges their second interfaces; start them again:";
        writeln!(out, "          {WARN}{unreached} {why}{WARN:#}")?;
        for pod in texts(&second["unreachedPods"]) {
            writeln!(out, "          {WARN}  {pod}{WARN:#}")?;
        }
    }
    for pod in texts(&second["unlogged"]) {
        writeln!(out, "          {WARN}denials are not logged of {pod}{WARN:#}")?;
    }
    match second["frames"].as_str() {
        Some("none") => {
            writeln!(out, "          {WARN}the kernel cannot judge what packet sockets send there{WARN:#}")?
        }
        Some("sources") => {
            writeln!(out, "          {WARN}of what packet sockets send there, only the source is judged{WARN:#}")?;
        }
        _ => {}
    }
    if count(&second["repaired"]) > 0 {
        let what = "times somebody changed namewall's tables inside a pod; they were made right";
        writeln!(out, "          {BAD}{} {what}{BAD:#}", second["repaired"])?;
    }
    for failure in texts(&second["failures"]) {
        writeln!(out, "          {BAD}{failure}{BAD:#}")?;
    }
    Ok(())
}

pub(crate) fn leases(args: &Leases) -> Result<ExitCode> {
    let asked = json!({"leases": {"name": args.name.as_ref().map(|name| name.name.to_string())}});
    let mut told = running()?.ask(&asked)?;
    if let (Some(wanted), Some(leases)) = (&args.name, told["leases"].as_array_mut()) {
        // A name that cannot be read is shown.
        let is_wanted = |lease: &Value| {
            lease["name"].as_str().and_then(|name| name.parse().ok()).is_none_or(|name| wanted.includes(&name))
        };
        leases.retain(is_wanted);
    }
    print_leases(&told["leases"], args.live.output)?;
    Ok(ExitCode::SUCCESS)
}

/// Leases, as whoever has them tells of them.
pub(crate) fn print_leases(leases: &Value, format: Format) -> Result<()> {
    let mut out = output::stdout();
    output::unless_closed(match format {
        Format::Json => output::print_json(&mut out, leases),
        Format::Text => write_leases(&mut out, leases).and_then(|()| Ok(out.flush()?)),
    })
}

fn write_leases(out: &mut impl Write, leases: &Value) -> Result<()> {
    let leases = leases.as_array().map(Vec::as_slice).unwrap_or_default();
    if leases.is_empty() {
        writeln!(out, "nothing is open by name")?;
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut rows = vec![["NAME", "ADDRESS", "LEFT", "ASKED BY", "ANSWERED BY", "RULE"].map(str::to_owned)];
    for lease in leases {
        let rules = texts(&lease["rules"]).join(", ");
        let denied = if lease["effect"] == "deny" { "denied by " } else { "" };
        rows.push([
            text(&lease["name"]),
            text(&lease["address"]),
            time(lease["secondsLeft"].as_u64().unwrap_or(0)),
            text(&lease["askedBy"]),
            answered_by(&lease["answer"]),
            format!("{denied}{rules} {SOFT}{}{SOFT:#}", text(&lease["pattern"])),
        ]);
    }
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    for (at, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (text, width) in row.iter().zip(widths) {
            line.push_str(&format!("{text:width$}  "));
        }
        line.push_str(&row[5]);
        if at == 0 { writeln!(out, "{STRONG}{line}{STRONG:#}")? } else { writeln!(out, "{line}")? }
    }
    Ok(())
}

/// The server that gave the answer, and the name that owns the address if it is another than the question's.
fn answered_by(answer: &Value) -> String {
    let server = answer["upstream"].as_str().unwrap_or("-");
    match texts(&answer["owners"]).last() {
        Some(owner) => format!("{server}, as {owner}"),
        None => server.to_owned(),
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}
