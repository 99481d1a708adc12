//! Reading scenario files.

use crate::connections::{self, Fate};
use crate::expectation::Expectation;
use crate::lookup::{self, Lookup};
use crate::settings::{self, AgentSettings, Going};
use crate::topology::{self, Topology};
use crate::zones::{self, Name, Owner, Zones};
use namewall_cluster::Document;
use namewall_cluster::yaml::{self, Node, Value};
use namewall_policy::addr::parse_address;
use namewall_policy::ask::{Host, Target};
use namewall_policy::domain::DomainName;
use namewall_policy::{Finding, Source};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    /// Where the facts are from, or what is worth knowing.
    pub about: Option<String>,
    pub file: Arc<str>,
    /// Input that cannot be read is what the scenario is about.
    pub lenient: bool,
    pub objects: Vec<Document>,
    /// What could not be read of the objects.
    pub findings: Vec<Finding>,
    /// The DNS of the world outside.
    pub zones: Zones,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub enum Step {
    Change(Change),
    Answer {
        name: DomainName,
        addresses: Vec<IpAddr>,
        ttl: Duration,
    },
    Advance(Duration),
    Probe(Probe),
    /// Opens a connection and keeps it; one that cannot be opened breaks the scenario.
    Connect {
        name: String,
        from: Host,
        to: Target,
        source: Source,
    },
    /// What must have become of a connection.
    Connections {
        name: String,
        expect: Fate,
        source: Source,
    },
    /// What the agent is set to, from here on.
    Settings(AgentSettings),
    /// What names have outside, from here on.
    Zone(Vec<(Name, Option<Owner>)>),
    Resolve(Box<Lookup>),
    /// How many queries a server outside must have got.
    Queries {
        server: IpAddr,
        expect: Queries,
        source: Source,
    },
    /// A word to whoever follows along.
    Say {
        text: String,
        source: Source,
    },
    /// The agent goes.
    Stop(Going),
    /// It is back.
    Start,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queries {
    None,
    Some,
    Exactly(u64),
}

#[derive(Clone, Debug)]
pub enum Change {
    /// Creates or replaces.
    Apply {
        documents: Vec<Document>,
        findings: Vec<Finding>,
    },
    Patch {
        object: ObjectRef,
        with: Node,
    },
    Delete(ObjectRef),
    /// Null takes a label away.
    Relabel {
        object: ObjectRef,
        labels: Node,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectRef {
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

#[derive(Clone, Debug)]
pub struct Probe {
    pub text: String,
    pub from: Host,
    pub to: Target,
    pub expect: Expectation,
    pub source: Source,
}

#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot read {path}")]
    Read { path: String, source: std::io::Error },
    #[error("{}:{}:{}: {message}", place.file, place.line, place.column)]
    Form { place: Source, message: String },
    #[error("{file}: {message}")]
    Empty { file: String, message: &'static str },
    #[error("{file}")]
    Manifests { file: String, source: namewall_cluster::LoadError },
}

/// A place to complain about.
pub(crate) struct Reader<'a> {
    pub(crate) file: &'a Arc<str>,
    pub(crate) folder: PathBuf,
    /// Whether there is DNS outside.
    pub(crate) has_dns: bool,
}

type Result<T> = std::result::Result<T, ScenarioError>;

/// What a scenario has.
const KEYS: &[&str] = &["name", "about", "lenient", "topology", "steps", "probes"];

impl Scenario {
    pub fn load(path: &Path) -> Result<Self> {
        let display = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| ScenarioError::Read { path: display.clone(), source })?;
        Self::parse(&text, &display, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads a scenario; paths in it are relative to `folder`.
    pub fn parse(text: &str, file: &str, folder: &Path) -> Result<Self> {
        let file: Arc<str> = file.into();
        let mut reader = Reader { file: &file, folder: folder.to_owned(), has_dns: false };
        let documents = yaml::split_documents(text);
        let [document] = documents.as_slice() else {
            return Err(ScenarioError::Empty { file: file.to_string(), message: "a scenario is one YAML document" });
        };
        let node = match yaml::parse(*document) {
            Ok(Some(node)) => node,
            Ok(None) => return Err(ScenarioError::Empty { file: file.to_string(), message: "the file is empty" }),
            Err(error) => {
                let place = Source { file: file.clone(), line: error.mark.line, column: error.mark.column };
                return Err(ScenarioError::Form { place, message: error.message });
            }
        };
        reader.only(&node, KEYS)?;
        let Topology { objects, findings, zones } = match node.get("topology") {
            Some(topology) => topology::read(&reader, topology)?,
            None => Topology::default(),
        };
        reader.has_dns = zones.default_server().is_some();
        let mut steps = Vec::new();
        for step in reader.items(node.get("steps"))? {
            reader.step(step, &mut steps)?;
        }
        for probe in reader.items(node.get("probes"))? {
            steps.push(Step::Probe(reader.probe(probe)?));
        }
        if !steps.iter().any(Step::tests) {
            return Err(ScenarioError::Empty {
                file: file.to_string(),
                message: "there is no probe in it, so it tests nothing",
            });
        }
        let name = match node.get("name") {
            Some(name) => reader.text(name)?.to_owned(),
            None => file.to_string(),
        };
        let about = node.get("about").map(|about| reader.text(about).map(str::to_owned)).transpose()?;
        let lenient = reader.flag(&node, "lenient")?.unwrap_or(false);
        Ok(Self { name, about, file, lenient, objects, findings, zones, steps })
    }
}

impl Step {
    /// Whether anything is expected of it.
    fn tests(&self) -> bool {
        matches!(self, Self::Probe(_) | Self::Connections { .. } | Self::Resolve(_) | Self::Queries { .. })
    }
}

impl Reader<'_> {
    pub(crate) fn place(&self, node: &Node) -> Source {
        Source { file: self.file.clone(), line: node.mark.line, column: node.mark.column }
    }

    pub(crate) fn wrong<T>(&self, node: &Node, message: impl Into<String>) -> Result<T> {
        Err(ScenarioError::Form { place: self.place(node), message: message.into() })
    }

    pub(crate) fn only(&self, node: &Node, keys: &[&str]) -> Result<()> {
        if !matches!(node.value, Value::Map(_)) {
            return self.wrong(node, format!("expected a map with {}", keys.join(", ")));
        }
        match node.entries().iter().find(|entry| !keys.contains(&&*entry.key)) {
            Some(entry) => {
                self.wrong(&entry.node, format!("`{}` is not known here; use {}", entry.key, keys.join(", ")))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn items<'n>(&self, node: Option<&'n Node>) -> Result<&'n [Node]> {
        match node.map(|node| (&node.value, node)) {
            None | Some((Value::Null, _)) => Ok(&[]),
            Some((Value::Seq(items), _)) => Ok(items),
            Some((_, node)) => self.wrong(node, "expected a list"),
        }
    }

    pub(crate) fn text<'n>(&self, node: &'n Node) -> Result<&'n str> {
        node.as_str().map_or_else(|| self.wrong(node, "expected a text"), Ok)
    }

    pub(crate) fn document(&self, node: &Node) -> Document {
        Document::new(self.file, node.clone())
    }

    pub(crate) fn flag(&self, node: &Node, key: &str) -> Result<Option<bool>> {
        match node.get(key).map(|node| (node.plain(), node)) {
            None => Ok(None),
            Some((Value::Bool(flag), _)) => Ok(Some(*flag)),
            Some((_, node)) => self.wrong(node, format!("`{key}` is true or false")),
        }
    }

    pub(crate) fn count(&self, node: &Node, key: &str) -> Result<Option<usize>> {
        match node.get(key).map(|node| (node.plain(), node)) {
            None => Ok(None),
            Some((Value::Int(count @ 0..), _)) => Ok(Some(usize::try_from(*count).unwrap_or(usize::MAX))),
            Some((_, node)) => self.wrong(node, format!("`{key}` is a number")),
        }
    }

    pub(crate) fn step(&self, node: &Node, steps: &mut Vec<Step>) -> Result<()> {
        const STEPS: &[&str] = &[
            "apply",
            "patch",
            "delete",
            "relabel",
            "answer",
            "advance",
            "probe",
            "connect",
            "connections",
            "settings",
            "zone",
            "resolve",
            "queries",
            "say",
            "restart",
        ];
        self.only(node, STEPS)?;
        let [entry] = node.entries() else {
            return self.wrong(node, format!("a step is exactly one of {}", STEPS.join(", ")));
        };
        let body = &entry.node;
        if matches!(&*entry.key, "zone" | "resolve" | "queries") && !self.has_dns {
            return self.wrong(body, "there is no DNS outside; write who answers, under topology: dns: servers");
        }
        let step = match &*entry.key {
            "apply" => {
                let (documents, findings) = self.apply(body)?;
                Step::Change(Change::Apply { documents, findings })
            }
            "patch" => {
                self.only(body, &["kind", "namespace", "name", "with"])?;
                let Some(with) = body.get("with") else {
                    return self.wrong(body, "`with` is missing: what to merge in");
                };
                Step::Change(Change::Patch { object: self.object_ref(body)?, with: with.clone() })
            }
            "delete" => {
                self.only(body, &["kind", "namespace", "name"])?;
                Step::Change(Change::Delete(self.object_ref(body)?))
            }
            "relabel" => Step::Change(self.relabel(body)?),
            "answer" => self.answer(body)?,
            "advance" => Step::Advance(self.duration(body)?),
            "connect" => return connections::read_connect(self, body, steps),
            "connections" => return connections::read_fates(self, body, steps),
            "settings" => settings::read(self, body)?,
            "restart" => return settings::read_restart(self, body, steps),
            "zone" => Step::Zone(zones::read_changes(self, body)?),
            "resolve" => Step::Resolve(Box::new(lookup::read(self, body)?)),
            "queries" => return self.queries(body, steps),
            "say" => match body.as_str() {
                Some(text) => Step::Say { text: text.to_owned(), source: self.place(body) },
                None => return self.wrong(body, "`say` is followed by a text"),
            },
            _ => {
                for probe in self.items(Some(body))? {
                    steps.push(Step::Probe(self.probe(probe)?));
                }
                return Ok(());
            }
        };
        steps.push(step);
        Ok(())
    }

    /// An object, a path to manifests, or a list of either.
    fn apply(&self, body: &Node) -> Result<(Vec<Document>, Vec<Finding>)> {
        match &body.value {
            Value::Seq(items) => {
                let (mut documents, mut findings) = (Vec::new(), Vec::new());
                for item in items {
                    if matches!(item.value, Value::Seq(_)) {
                        return self.wrong(item, "expected an object or a path");
                    }
                    let (more, found) = self.apply(item)?;
                    documents.extend(more);
                    findings.extend(found);
                }
                Ok((documents, findings))
            }
            Value::Map(_) => Ok(Document::from_tree(self.file, body.clone())),
            Value::String(path) => topology::load(self, &[self.folder.join(&**path)])
                .map(|manifests| (manifests.documents, manifests.findings)),
            _ => self.wrong(body, "expected an object, a path, or a list of either"),
        }
    }

    fn object_ref(&self, body: &Node) -> Result<ObjectRef> {
        let field = |key: &str| body.get(key).map(|node| self.text(node).map(str::to_owned)).transpose();
        match (field("kind")?, field("name")?) {
            (Some(kind), Some(name)) => Ok(ObjectRef { kind, namespace: field("namespace")?, name }),
            _ => self.wrong(body, "`kind` and `name` are needed"),
        }
    }

    fn relabel(&self, body: &Node) -> Result<Change> {
        self.only(body, &["pod", "namespace", "node", "labels"])?;
        let Some(labels) = body.get("labels") else { return self.wrong(body, "`labels` is missing") };
        let object = match (body.get("pod"), body.get("namespace"), body.get("node")) {
            (Some(pod), None, None) => {
                let Some((namespace, name)) = self.text(pod)?.split_once('/') else {
                    return self.wrong(pod, "write NAMESPACE/POD");
                };
                ObjectRef { kind: "Pod".into(), namespace: Some(namespace.into()), name: name.into() }
            }
            (None, Some(name), None) => {
                ObjectRef { kind: "Namespace".into(), namespace: None, name: self.text(name)?.into() }
            }
            (None, None, Some(name)) => {
                ObjectRef { kind: "Node".into(), namespace: None, name: self.text(name)?.into() }
            }
            _ => return self.wrong(body, "exactly one of pod, namespace and node is needed"),
        };
        Ok(Change::Relabel { object, labels: labels.clone() })
    }

    fn answer(&self, body: &Node) -> Result<Step> {
        self.only(body, &["name", "addresses", "ttl"])?;
        let Some(name) = body.get("name") else { return self.wrong(body, "`name` is missing") };
        let name = match self.text(name)?.parse() {
            Ok(read) => read,
            Err(error) => return self.wrong(name, format!("{error}")),
        };
        let addresses = body.get("addresses").map(|node| settings::addresses(self, node)).transpose()?;
        let addresses = addresses.unwrap_or_default();
        let ttl = match body.get("ttl").map(Node::plain) {
            None => Duration::from_secs(30),
            Some(Value::Int(seconds @ 0..)) => Duration::from_secs(*seconds as u64),
            Some(_) => return self.wrong(body, "`ttl` is a number of seconds"),
        };
        Ok(Step::Answer { name, addresses, ttl })
    }

    /// `{203.0.113.53: some, 203.0.113.54: none, 203.0.113.55: 3}`.
    fn queries(&self, body: &Node, steps: &mut Vec<Step>) -> Result<()> {
        if !matches!(body.value, Value::Map(_)) {
            return self.wrong(body, "queries are a map, by server, like {203.0.113.53: some}");
        }
        for entry in body.entries() {
            let Some(server) = parse_address(&entry.key) else {
                return self.wrong(&entry.node, format!("`{}` is not an IP address", entry.key));
            };
            let expect = match entry.node.plain() {
                Value::Int(count @ 0..) => Queries::Exactly(*count as u64),
                Value::String(word) if **word == *"none" => Queries::None,
                Value::String(word) if **word == *"some" => Queries::Some,
                _ => return self.wrong(&entry.node, "queries are none, some, or a number"),
            };
            steps.push(Step::Queries { server, expect, source: self.place(&entry.node) });
        }
        Ok(())
    }

    /// `30`, `30s`, `5m`, `1h`, `250ms`.
    pub(crate) fn duration(&self, node: &Node) -> Result<Duration> {
        let text = match node.plain() {
            Value::Int(seconds @ 0..) => return Ok(Duration::from_secs(*seconds as u64)),
            Value::String(text) => text,
            _ => return self.wrong(node, "write a time like 30s, 5m or 1h"),
        };
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let milliseconds = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return self.wrong(node, "write a time like 30s, 5m or 1h"),
        };
        match number.parse::<u64>().ok().and_then(|n| n.checked_mul(milliseconds)) {
            Some(time) => Ok(Duration::from_millis(time)),
            None => self.wrong(node, "write a time like 30s, 5m or 1h"),
        }
    }

    /// `FROM -> TO: EXPECTATION`, which YAML reads as a map of one entry, or quoted.
    fn probe(&self, node: &Node) -> Result<Probe> {
        let (question, expectation) = match (&node.value, node.entries()) {
            (Value::String(text), _) => match text.rsplit_once(": ") {
                Some((question, expectation)) => (question.to_owned(), expectation.to_owned()),
                None => return self.wrong(node, "a probe is `FROM -> TO: allow` or `… : deny`"),
            },
            (_, [entry]) => (entry.key.to_string(), self.text(&entry.node)?.to_owned()),
            _ => return self.wrong(node, "a probe is `FROM -> TO: allow` or `… : deny`"),
        };
        let (from, to) = self.question(node, &question)?;
        let expect = expectation.parse().or_else(|error: String| self.wrong(node, error))?;
        Ok(Probe { text: question, from, to, expect, source: self.place(node) })
    }

    /// `FROM -> TO`.
    pub(crate) fn question(&self, node: &Node, question: &str) -> Result<(Host, Target)> {
        let Some((from, to)) = question.split_once("->") else {
            return self.wrong(node, format!("`{question}`: write FROM -> TO"));
        };
        let unquoted = |text: &str| text.trim().trim_matches('"').to_owned();
        let from = unquoted(from).parse::<Host>().or_else(|error| self.wrong(node, error.to_string()))?;
        let to = unquoted(to).parse::<Target>().or_else(|error| self.wrong(node, error.to_string()))?;
        if to.port.is_none() && to.protocol.has_ports() {
            return self.wrong(node, format!("`{question}`: a port is needed, like :443/TCP, or /ICMP"));
        }
        Ok((from, to))
    }
}
