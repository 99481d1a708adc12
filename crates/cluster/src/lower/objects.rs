//! Documents on their way to a Snapshot. A cluster has many pods and few
//! policies: what is a workload is read at once and its tree dropped, and of what
//! no policy looks at only its kind is kept.

use super::pool::Pool;
use super::workloads::{Described, read_workload};
use super::{Lowered, Settings, is_object_name};
use crate::document::{Document, Gather};
use crate::kinds::{self, Kind, Recognised};
use namewall_policy::{Finding, Source};
use std::sync::Arc;

/// A workload that is read already.
#[derive(Debug)]
pub(super) struct ReadWorkload {
    pub(super) kind: &'static Kind,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) place: Source,
    /// `None` if it stands for no pod, as one that has ended.
    pub(super) described: Option<Described>,
    pub(super) findings: Vec<Finding>,
}

#[derive(Debug)]
enum Object {
    Tree(Document),
    Workload(Box<ReadWorkload>),
    PassedOver(Arc<str>),
}

/// An object as lowering takes it.
#[derive(Clone, Copy)]
pub(super) enum Item<'d> {
    Tree(&'d Document),
    Workload(&'d ReadWorkload),
    PassedOver(&'d str),
}

/// Objects in their order.
#[derive(Default, Debug)]
pub(crate) struct Objects {
    objects: Vec<Object>,
    pool: Pool,
}

impl Objects {
    pub(crate) fn extend(&mut self, more: Self) {
        self.objects.extend(more.objects);
    }

    pub(crate) fn lower(&self, settings: &Settings) -> Lowered {
        super::lower_items(
            self.objects.iter().map(|object| match object {
                Object::Tree(document) => Item::Tree(document),
                Object::Workload(workload) => Item::Workload(workload),
                Object::PassedOver(kind) => Item::PassedOver(kind),
            }),
            settings,
        )
    }
}

impl Gather for Objects {
    fn take(&mut self, document: Document) {
        let object = read(&document, &mut self.pool).unwrap_or(Object::Tree(document));
        self.objects.push(object);
    }

    fn count(&self) -> usize {
        self.objects.len()
    }

    fn cut(&mut self, count: usize) {
        self.objects.truncate(count);
    }
}

/// `None` for what is not read at once, or has something to be said about its name or text.
fn read(document: &Document, pool: &mut Pool) -> Option<Object> {
    let (api_version, written) = (document.api_version()?, document.kind()?);
    let kind = match kinds::recognise(api_version, written) {
        Recognised::Read(kind) if kind.is_workload() => kind,
        Recognised::No if kinds::meant_policy(api_version, written).is_none() => {
            return Some(Object::PassedOver(pool.text(written)));
        }
        _ => return None,
    };
    let name = document.name().filter(|name| !name.is_empty() && is_object_name(name))?;
    let namespace = document.namespace().filter(|name| !name.is_empty()).unwrap_or("default");
    if !is_object_name(namespace) {
        return None;
    }
    let mut findings = Vec::new();
    let described = read_workload(kind, document, &mut findings, pool);
    Some(Object::Workload(Box::new(ReadWorkload {
        kind,
        namespace: pool.text(namespace),
        name: described.as_ref().map_or_else(|| name.into(), |described| described.name.clone()),
        place: document.place(""),
        described,
        findings,
    })))
}
