//! Many objects for a reader: pods, Deployments, Services and policies in the
//! ratio of a large cluster, as one file, as many, and as `kubectl get -o json`
//! prints them.

use crate::layout::Layout;
use crate::{Cluster, objects, policies};
use clap::ValueEnum;
use namewall_cluster::Document;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

/// How the objects are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Form {
    /// One YAML file of many documents.
    Yaml,
    /// A YAML file for every hundred objects.
    Files,
    /// One list, as JSON.
    Json,
}

const OBJECTS_A_FILE: usize = 100;

impl Cluster {
    /// About as many objects: of 155, 100 are pods, 25 Deployments, 25 Services and 5 policies.
    pub fn of_objects(objects: usize) -> Self {
        let pods = objects * 100 / 155;
        Self { pods, policies: pods / 20, namespaces: pods / 50, nodes: pods / 100, replicas: 4, templates: false }
    }

    /// Writes all of them into a folder, which is made if it is missing.
    pub fn write_bulk(&self, folder: &Path, form: Form) -> io::Result<()> {
        let layout = Layout::new(self);
        let mut objects = objects::everything(&layout);
        objects.extend(policies::files(&layout).into_iter().map(|file| file.text));
        fs::create_dir_all(folder)?;
        match form {
            Form::Yaml => fs::write(folder.join("all.yaml"), objects.concat()),
            Form::Files => objects
                .chunks(OBJECTS_A_FILE)
                .enumerate()
                .try_for_each(|(at, some)| fs::write(folder.join(format!("{at:05}.yaml")), some.concat())),
            Form::Json => {
                let (documents, _) = Document::read_all(&Arc::from("all.yaml"), &objects.concat());
                let items: Vec<_> = documents.iter().map(|document| &document.node).collect();
                let list = json!({"apiVersion": "v1", "items": items, "kind": "List"});
                fs::write(folder.join("all.json"), serde_json::to_vec(&list)?)
            }
        }
    }
}
