//! What Themis says → an outcome.

use super::codec::{Attribute, Effect, Response};
use super::value::Value;
use crate::{EngineError, Judgement};
use namewall_expression::Outcome;
use std::net::{IpAddr, SocketAddr};

/// The port of whom a query is redirected to, where none is given.
const DNS: u16 = 53;

/// Its obligations are the labels. What could not be told is an error; what went wrong beside a
/// decision is in the trace.
pub(super) fn judgement(response: &Response) -> Result<Judgement, EngineError> {
    let outcome = match response.effect {
        Effect::Permit => permitted(&response.obligations),
        Effect::Deny => denied(&response.obligations),
        Effect::NotApplicable => Outcome::Undefined,
        _ => return Err(EngineError(format!("{}: {}", response.effect, response.status))),
    };
    let mut trace = vec![response.effect.to_string()];
    if !response.status.is_empty() {
        trace.push(response.status.clone());
    }
    let labels =
        response.obligations.iter().map(|obligation| (obligation.name.to_string(), obligation.value.to_string()));
    Ok(Judgement { outcome, trace, labels: labels.collect() })
}

/// An action may restrict what is permitted.
fn permitted(obligations: &[Attribute]) -> Outcome {
    action(obligations).unwrap_or(Outcome::Allow)
}

/// A deny stays one, whatever action comes with it; the last obligation that says how counts.
fn denied(obligations: &[Attribute]) -> Outcome {
    let mut outcome = action(obligations).filter(|action| *action != Outcome::Allow).unwrap_or(Outcome::Block);
    for obligation in obligations {
        outcome = match &*obligation.name {
            "refuse" => Outcome::Refuse,
            "drop" => Outcome::Drop,
            "redirect_to" => redirect(&obligation.value).unwrap_or(outcome),
            _ => outcome,
        };
    }
    outcome
}

/// `policy_action`, as the plugin before the first one had it.
fn action(obligations: &[Attribute]) -> Option<Outcome> {
    let named = |name: &str| obligations.iter().rev().find(|obligation| &*obligation.name == name);
    let Value::Integer(action) = named("policy_action")?.value else { return None };
    Some(match action {
        1 => Outcome::Drop,
        2 => Outcome::Allow,
        4 => named("redirect_to").and_then(|to| redirect(&to.value)).unwrap_or(Outcome::Block),
        5 => Outcome::Refuse,
        // 3, and what nobody knows.
        _ => Outcome::Block,
    })
}

/// A server, by its address. Names are not: nobody is there to look them up.
fn redirect(to: &Value) -> Option<Outcome> {
    let address = match to {
        Value::Address(address) => SocketAddr::new(*address, DNS),
        other => {
            let text = other.to_string();
            let bare = || text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, DNS));
            text.parse::<SocketAddr>().ok().or_else(bare)?
        }
    };
    Some(Outcome::Redirect(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(effect: Effect, obligations: &[(&str, Value)], expected: Outcome) {
        let obligations = obligations.iter().map(|(name, value)| Attribute::new(name, value.clone())).collect();
        let said = judgement(&Response { effect, status: String::new(), obligations }).unwrap();
        assert_eq!(said.outcome, expected, "{:?}", said.labels);
    }

    #[test]
    fn effects_and_obligations_make_outcomes() {
        let there = Value::string("yes");
        let action = |number| ("policy_action", Value::Integer(number));
        let server = Outcome::Redirect("192.0.2.1:53".parse().unwrap());
        check(Effect::Permit, &[], Outcome::Allow);
        check(Effect::Permit, &[("log", there.clone()), ("refuse", there.clone())], Outcome::Allow);
        check(Effect::NotApplicable, &[], Outcome::Undefined);
        check(Effect::Deny, &[("policy_id", there.clone())], Outcome::Block);
        check(Effect::Deny, &[("refuse", there.clone())], Outcome::Refuse);
        check(Effect::Deny, &[("refuse", there.clone()), ("drop", there.clone())], Outcome::Drop);
        check(Effect::Deny, &[("redirect_to", Value::string("192.0.2.1"))], server);
        check(Effect::Deny, &[("redirect_to", Value::Address("192.0.2.1".parse().unwrap()))], server);
        check(Effect::Deny, &[("redirect_to", Value::string("walled.example"))], Outcome::Block);
        let other = Outcome::Redirect("[2001:db8::1]:5353".parse().unwrap());
        check(Effect::Deny, &[("redirect_to", Value::string("[2001:db8::1]:5353"))], other);
        check(Effect::Permit, &[action(2)], Outcome::Allow);
        check(Effect::Permit, &[action(1)], Outcome::Drop);
        check(Effect::Permit, &[action(4), ("redirect_to", Value::string("192.0.2.1"))], server);
        check(Effect::Permit, &[action(4)], Outcome::Block);
        check(Effect::Permit, &[action(9)], Outcome::Block);
        check(Effect::Deny, &[action(2)], Outcome::Block);
        check(Effect::Deny, &[action(5)], Outcome::Refuse);
    }

    #[test]
    fn what_cannot_be_told_is_an_error() {
        for effect in [Effect::Indeterminate, Effect::IndeterminateD, Effect::IndeterminateP, Effect::IndeterminateDP] {
            let said = judgement(&Response { effect, status: "no attribute".into(), obligations: Vec::new() });
            assert_eq!(said, Err(EngineError(format!("{effect}: no attribute"))));
        }
    }
}
