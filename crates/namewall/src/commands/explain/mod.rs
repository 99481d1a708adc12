//! `namewall explain`.

mod answer;
mod cuts;
mod json;
mod text;

pub(crate) use answer::{Answer, ConnectionQuestion, pod_network_hint};
pub(crate) use json::allowed_json;

use super::run::running;
use crate::cli::{Expect, Explain, Format, Question};
use crate::input::Loaded;
use crate::output;
use anyhow::Result;
use namewall_policy::Prediction;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run(args: &Explain) -> Result<ExitCode> {
    if !args.live {
        return answer(
            &args.question,
            Loaded::from_paths(&args.paths, &args.reading.settings)?.with(args.reading.lenient),
        );
    }
    let verdict = explain_live(&args.question)?;
    Ok(exit_code(&args.question, verdict))
}

/// Answers by what was loaded.
pub(crate) fn answer(asked: &Question, mut loaded: Loaded) -> Result<ExitCode> {
    loaded.report_errors();
    let alias = loaded.world().external_name(&asked.from, &asked.to.host);
    loaded.learn(&asked.dns, alias.as_ref());
    let mut answer = Answer::new(loaded.world(), &ConnectionQuestion { from: &asked.from, to: &asked.to })?;
    answer.alias = alias;
    let mut out = output::stdout();
    let printed = match asked.output {
        Format::Text => answer.print(&mut out).and_then(|()| Ok(out.flush()?)),
        Format::Json => {
            let mut value = answer.json();
            value["unread"] = loaded.unread.json();
            output::print_json(&mut out, &value)
        }
    };
    output::unless_closed(printed)?;
    Ok(loaded.unread.exit(exit_code(asked, answer.verdict)))
}

fn exit_code(asked: &Question, verdict: Prediction) -> ExitCode {
    let expected = match asked.expect {
        None => return ExitCode::SUCCESS,
        Some(Expect::Allow) => Prediction::Allow,
        Some(Expect::Deny) => Prediction::Deny,
        Some(Expect::Depends) => Prediction::Depends,
    };
    if verdict == expected { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Asks the namewall that runs here, which explains by its policies and leases.
fn explain_live(asked: &Question) -> Result<Prediction> {
    let is_json = asked.output == Format::Json;
    let question = json!({"from": asked.from.to_string(), "to": asked.to.to_string(), "json": is_json});
    let reply = running()?.ask(&json!({ "explain": question }))?;
    let mut out = output::stdout();
    let text = reply["text"].as_str().unwrap_or_default();
    output::unless_closed(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Into::into))?;
    Ok(match reply["verdict"].as_str() {
        Some("allow") => Prediction::Allow,
        Some("depends") => Prediction::Depends,
        _ => Prediction::Deny,
    })
}
