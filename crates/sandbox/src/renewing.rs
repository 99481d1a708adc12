//! What the loop of an agent does about names as time goes by: it keeps what
//! rules deny by name, and looks those names up (S8.7).

use crate::error::Error;
use namewall_agent::{Clock, LearnedElsewhere, Node, Renewal, Renewals, Renewing};
use namewall_dns::lookup::LookupThreads;
use std::net::SocketAddr;
use std::sync::Arc;

/// Names that a node looks up at the same time.
const AT_ONCE: usize = 4;

/// The names of one node.
#[derive(Debug)]
pub(crate) struct NodeNames {
    elsewhere: LearnedElsewhere,
    renewals: Renewals,
}

impl NodeNames {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let renewals = Renewals::new(Box::new(LookupThreads::new(AT_ONCE)));
        Self { elsewhere: LearnedElsewhere::new(clock), renewals }
    }

    /// One turn of the loop. It runs in the node's network namespace, which its lookups start from.
    pub(crate) fn turn(&mut self, node: &Node, servers: &[SocketAddr]) -> Result<(), Error> {
        let learner = node.learner();
        let servers = servers.to_vec();
        let renewing = Renewing { published: &self.elsewhere, servers, is_blocked: false, rules: &**learner };
        let Renewal { heard, kept, .. } = self.renewals.turn(&renewing);
        learner.hear(&heard).map_err(Error::Names)?;
        learner.keep(&kept).map_err(Error::Names)
    }
}
