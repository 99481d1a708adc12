//! What the plugin does at each command. It writes a result or an error to
//! standard output, as the specification wants it.

use crate::attachment::{Attachment, AttachmentId};
use crate::client::{Agent, AskError};
use crate::environment::{Container, Pod, Request};
use crate::error::{CniError, Code};
use crate::link::{self, LinkError};
use crate::network::{NetworkConfig, WhenAgentAway};
use crate::records::Records;
use crate::result::PodEnd;
use crate::{NAME, OWN_INTERFACE, VERSIONS};
use namewall_dataplane::nft;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::Duration;

/// The longest configuration.
const LONGEST: u64 = 4 << 20;
/// How long DEL waits for an agent: it succeeds without one.
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long STATUS and CHECK wait.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// The agent answers this much before the plugin gives up.
const MARGIN: Duration = Duration::from_millis(250);

/// Runs the plugin with what the runtime says. Returns whether it succeeded.
pub fn run(
    variable: impl Fn(&str) -> Option<String>,
    input: &mut dyn Read,
    output: &mut dyn Write,
    log: &mut dyn Write,
) -> bool {
    let (mut version, mut text) = (VERSIONS[VERSIONS.len() - 1].to_owned(), Vec::new());
    let request = Request::read(variable);
    let done = request.and_then(|request| {
        let read = input.take(LONGEST).read_to_end(&mut text);
        read.map_err(|error| CniError::of(Code::Io, &error))?;
        if request == Request::Version {
            return Ok(Some(versions(&text)));
        }
        let config = NetworkConfig::read(&text)?;
        version.clone_from(&config.version);
        Call { config: &config, records: Records::new(&config.records), agent: Agent::at(&config.socket), log }
            .answer(&request)
    });
    let (answer, is_good) = match done {
        Ok(answer) => (answer, true),
        Err(error) => (Some(error.to_json(&version)), false),
    };
    if let Some(answer) = answer {
        // Who does not read the answer has no use for another.
        let _ = writeln!(output, "{answer}").and_then(|()| output.flush());
    }
    is_good
}

/// The versions, in the words of the one that is asked in.
fn versions(text: &[u8]) -> Value {
    let asked: Value = serde_json::from_slice(text).unwrap_or_default();
    let version = asked["cniVersion"].as_str().unwrap_or(VERSIONS[VERSIONS.len() - 1]).to_owned();
    json!({"cniVersion": version, "supportedVersions": VERSIONS})
}

struct Call<'a> {
    config: &'a NetworkConfig,
    records: Records,
    agent: Agent,
    /// Standard error, which runtimes log.
    log: &'a mut dyn Write,
}

impl Call<'_> {
    fn answer(&mut self, request: &Request) -> Result<Option<Value>, CniError> {
        match request {
            Request::Add(container) => self.add(container).map(Some),
            Request::Check(container) => self.check(container).map(|()| None),
            Request::Delete(id) => {
                self.delete(id);
                Ok(None)
            }
            Request::CollectGarbage => self.collect_garbage().map(|()| None),
            Request::Status => self.status().map(|()| None),
            Request::Version => Ok(None),
        }
    }

    /// What the plugins before have done. It is the result, too.
    fn previous(&self) -> Result<Value, CniError> {
        let mut previous = self.config.previous.clone().ok_or_else(|| {
            CniError::new(Code::InvalidNetwork, "there is no prevResult")
                .with_details(format!("{NAME} gives pods no network: put it last in a list of plugins"))
        })?;
        if previous["cniVersion"].is_null() {
            previous["cniVersion"] = self.config.version.as_str().into();
        }
        Ok(previous)
    }

    fn add(&mut self, container: &Container) -> Result<Value, CniError> {
        let result = self.previous()?;
        let Some(pod) = &container.pod else {
            // Nothing opens for it: its address is no pod's.
            let _ = writeln!(self.log, "{NAME}: {} is of no pod; no agent is told of it", container.id);
            return Ok(result);
        };
        let attachment = self.attachment(container, pod, &result);
        let mut attachment = attachment.map_err(|error| error.into_error(Code::Io))?;
        // The agent may not enter the pod's network namespace; with these it judges the pod's second interfaces.
        let mut sockets = link::pod_sockets(&container.namespace).map_err(|error| CniError::of(Code::Io, &error))?;
        // Written first: an agent that starts meanwhile finds it.
        self.records.write(&attachment).map_err(|error| CniError::of(Code::Io, &error))?;
        let patience = self.config.timeout;
        let question =
            json!({"attach": attachment, "milliseconds": patience.saturating_sub(MARGIN).as_millis() as u64});
        match self.agent.ask_with(&question, &sockets.descriptors(), patience) {
            Ok(answer) => {
                // The next agent then knows that tables which are missing were removed by somebody. Without it they are
                // made all the same.
                attachment.is_inside = answer["inside"] == true;
                if attachment.is_inside {
                    let _ = self.records.write(&attachment);
                }
                Ok(result)
            }
            Err(error @ AskError::Away { .. }) if self.config.when_agent_away == WhenAgentAway::Allow => {
                let _ = writeln!(self.log, "{NAME}: {error}; {} is closed until one does", container.id);
                // Its addresses are closed on the node; its second interfaces are closed here.
                nft::close_inside(&mut sockets, OWN_INTERFACE).map_err(|error| CniError::of(Code::Io, &error))?;
                Ok(result)
            }
            Err(error) => {
                let _ = self.records.remove(&container.id);
                Err(refusal(&error, &format!("{}/{}", pod.namespace, pod.name)))
            }
        }
    }

    /// Always succeeds: what is left is removed by GC, or with the node.
    fn delete(&mut self, id: &AttachmentId) {
        if let Err(error) = self.records.remove(id) {
            let _ = writeln!(self.log, "{NAME}: {}", CniError::of(Code::Io, &error));
        }
        if let Err(error) = self.agent.ask(&json!({"detach": id}), DELETE_TIMEOUT) {
            let _ = writeln!(self.log, "{NAME}: {error}; it will find out when it starts");
        }
    }

    /// The record is there and says what the result says, the host's end is the same, and the agent enforces it.
    fn check(&mut self, container: &Container) -> Result<(), CniError> {
        let result = self.previous()?;
        let Some(pod) = &container.pod else { return Ok(()) };
        let changed = |what: String| Err(CniError::new(Code::Changed, what));
        let known = match self.records.get(&container.id) {
            Some(Ok(known)) => known,
            Some(Err(error)) => return changed(error.to_string()),
            None => return changed(format!("there is no record of {}", container.id)),
        };
        let now = self.attachment(container, pod, &result).map_err(|error| error.into_error(Code::Changed))?;
        let now = Attachment { is_inside: known.is_inside, ..now };
        if now != known {
            return changed(format!("{} was {known:?} and is {now:?}", container.id));
        }
        match self.agent.ask(&json!({"attached": container.id}), ASK_TIMEOUT) {
            Ok(answer) if answer["enforced"] == true => Ok(()),
            Ok(_) => changed(format!("the agent does not enforce {}", container.id)),
            Err(error) => Err(refusal(&error, &format!("{}/{}", pod.namespace, pod.name))),
        }
    }

    /// A pod at its interface, as the result and the kernel say it.
    fn attachment(&self, container: &Container, pod: &Pod, result: &Value) -> Result<Attachment, AttachmentError> {
        let end = PodEnd::read(result, container).map_err(AttachmentError::Result)?;
        let link =
            link::find(&container.namespace, &container.id.interface, &end.host).map_err(AttachmentError::Link)?;
        let Pod { namespace, name, uid } = pod.clone();
        Ok(Attachment {
            id: container.id.clone(),
            network: self.config.name.clone(),
            namespace,
            name,
            uid,
            netns: container.namespace.clone(),
            host: link.host,
            mac: link.mac.or(end.mac),
            addresses: end.addresses,
            is_inside: false,
        })
    }

    /// Removes what is listed by nobody, of this network. What cannot be read is of no network, and stays.
    fn collect_garbage(&mut self) -> Result<(), CniError> {
        let valid = self.config.valid.as_ref().ok_or_else(|| {
            CniError::new(Code::InvalidNetwork, "`cni.dev/valid-attachments` is missing: nothing is removed")
        })?;
        let (known, unreadable) = self.records.load().map_err(|error| CniError::of(Code::Io, &error))?;
        for error in unreadable {
            let _ = writeln!(self.log, "{NAME}: {error}");
        }
        let known = known.into_iter().filter(|one| one.network == self.config.name && !valid.contains(&one.id));
        known.for_each(|one| self.delete(&one.id));
        Ok(())
    }

    /// Without an agent no pod can be added, unless it is set that pods start all the same.
    fn status(&mut self) -> Result<(), CniError> {
        match self.agent.ask(&json!({"attached": null}), ASK_TIMEOUT) {
            Err(error @ AskError::Away { .. }) if self.config.when_agent_away == WhenAgentAway::Deny => {
                let details = refusal(&error, "").details;
                Err(CniError::of(Code::NotAvailable, &error).with_details(details))
            }
            _ => Ok(()),
        }
    }
}

/// Why a result and the kernel do not give an attachment.
enum AttachmentError {
    Result(CniError),
    Link(LinkError),
}

impl AttachmentError {
    /// With this code if the interface is not there.
    fn into_error(self, gone: Code) -> CniError {
        match self {
            Self::Result(error) => error,
            Self::Link(error) => CniError::of(if error.is_gone() { gone } else { Code::Io }, &error),
        }
    }
}

fn refusal(error: &AskError, pod: &str) -> CniError {
    match error {
        AskError::Away { .. } => CniError::of(Code::TryAgainLater, error).with_details(
            "see whether the DaemonSet namewall-agent runs on this node; `namewall cni uninstall` takes the plugin out, \
             `whenAgentAway: allow` lets pods start without an agent",
        ),
        AskError::Refused(why) => CniError::new(Code::TryAgainLater, format!("pod {pod} is not enforced: {why}")),
    }
}
