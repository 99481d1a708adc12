//! What names are made of: Services, EndpointSlices and pods, with the fields that answers need.

use std::net::IpAddr;
use std::sync::Arc;

/// An object within its kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClusterKey {
    /// Empty for namespaces.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClusterKind {
    Namespace,
    Service,
    Slice,
    Pod,
}

#[derive(Clone, PartialEq, Debug)]
pub enum ClusterObject {
    Namespace,
    Service(ServiceRecord),
    Slice(SliceRecord),
    /// With its addresses.
    Pod(Vec<IpAddr>),
}

impl ClusterObject {
    pub fn kind(&self) -> ClusterKind {
        match self {
            Self::Namespace => ClusterKind::Namespace,
            Self::Service(_) => ClusterKind::Service,
            Self::Slice(_) => ClusterKind::Slice,
            Self::Pod(_) => ClusterKind::Pod,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct ServiceRecord {
    pub form: ServiceForm,
    pub ports: Vec<PortRecord>,
}

/// What the name of a Service stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServiceForm {
    /// Its own addresses.
    Balanced(Vec<IpAddr>),
    /// The addresses of its endpoints.
    Headless,
    /// Another name, as it is written.
    ExternalName(Arc<str>),
}

/// A port of a Service or of endpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRecord {
    /// Empty for a port without a name.
    pub name: Arc<str>,
    /// Like `TCP`.
    pub protocol: Arc<str>,
    /// None if no number is declared: addresses are answered, and no SRV record is.
    pub number: Option<u16>,
}

impl PortRecord {
    /// Stands for the ports of an object that declares none.
    pub fn none() -> Self {
        Self { name: "".into(), protocol: "".into(), number: None }
    }
}

/// Endpoints of a Service that are ready.
#[derive(Clone, PartialEq, Debug)]
pub struct SliceRecord {
    /// In the namespace of the slice.
    pub service: Arc<str>,
    pub endpoints: Vec<EndpointRecord>,
    pub ports: Vec<PortRecord>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointRecord {
    pub address: IpAddr,
    pub host_name: Option<Arc<str>>,
    /// The name of the pod behind it.
    pub target: Option<Arc<str>>,
}

impl EndpointRecord {
    /// The first label of its name: its host name, or one that is made of its address.
    pub(crate) fn label(&self, by_pods: bool) -> String {
        let named = self.host_name.as_ref().or(self.target.as_ref().filter(|_| by_pods));
        if let Some(name) = named {
            return name.to_string();
        }
        let dashes = self.address.to_string().replace(['.', ':'], "-");
        // A label does not end with a dash.
        if dashes.ends_with('-') { dashes + "0" } else { dashes }
    }
}
