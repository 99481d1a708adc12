//! An OPA that is asked over HTTP.

use super::input::text;
use super::result::outcome;
use super::{InputField, OpaSettings};
use crate::http::{Client, Question, QueueSlots, ServerUrl, TlsError, TlsFiles};
use crate::{Engine, EngineError, Judged, Judgement};
use namewall_expression::Facts;
use regorus::Value;
use serde_json::{Map, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// OPA's servers are asked as CoreDNS' plugin asks them: a POST of `{"input": {FIELD: TEXT}}` to the URL
/// of a rule, which is answered with `{"result": …}`, or with none where the rule is undefined.
#[derive(Debug)]
pub struct Remote {
    url: ServerUrl,
    fields: Vec<InputField>,
    timeout: Duration,
    client: Arc<Client>,
    slots: Arc<QueueSlots>,
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
const DEFAULT_CONCURRENCY: u32 = 32;

impl Remote {
    pub(super) fn new(settings: &OpaSettings, url: &ServerUrl, tls: Option<&TlsFiles>) -> Result<Self, TlsError> {
        let concurrency = settings.concurrency.unwrap_or(DEFAULT_CONCURRENCY) as usize;
        Ok(Self {
            url: url.clone(),
            fields: settings.fields.clone(),
            timeout: settings.timeout.unwrap_or(DEFAULT_TIMEOUT),
            client: Arc::new(Client::new(url, tls, concurrency)?),
            slots: QueueSlots::new(concurrency),
        })
    }

    /// Reads the certificates again; whether they have changed. If they are bad, those before are kept.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.client.reload()
    }
}

impl Engine for Remote {
    fn judge_until(&self, facts: &dyn Facts, until: Instant) -> Judged {
        let at = self.url.host_port.clone();
        let failed = move |problem: &dyn std::fmt::Display| EngineError(format!("OPA at {at}: {problem}"));
        let Some(mut place) = self.slots.take() else {
            return Judged::Now(Err(failed(&"too many questions are under way")));
        };
        let fields = self.fields.iter();
        let input: Map<_, _> =
            fields.filter_map(|field| Some((field.name.to_string(), text(field, facts)?.into()))).collect();
        let body = json!({ "input": input }).to_string();
        let client = self.client.clone();
        Judged::Later(Box::new(move || {
            if !place.wait(until) {
                return Err(failed(&"no answer in time to the questions before"));
            }
            let question = Question { body: body.as_bytes(), bearer: None, until };
            let answer = client.ask(question).map_err(|error| failed(&error))?;
            judgement(&answer).map_err(|EngineError(problem)| failed(&problem))
        }))
    }

    fn patience(&self) -> Duration {
        self.timeout
    }
}

fn judgement(answer: &[u8]) -> Result<Judgement, EngineError> {
    let not_json =
        |problem: &dyn std::fmt::Display| EngineError(format!("it answers with what is not JSON: {problem}"));
    let text = str::from_utf8(answer).map_err(|error| not_json(&error))?;
    let document = Value::from_json_str(text).map_err(|error| not_json(&error))?;
    let members = document.as_object().map_err(|_| EngineError("it answers with what is not an object".into()))?;
    let result = members.get(&Value::from("result")).unwrap_or(&Value::Undefined);
    let outcome = outcome(result)?;
    let trace = match result {
        Value::Undefined => "it has no result".to_owned(),
        result => format!("its result is {result}"),
    };
    Ok(Judgement { outcome, trace: vec![trace], labels: Vec::new() })
}
