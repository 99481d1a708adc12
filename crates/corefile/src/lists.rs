//! Which lists of names the expressions of a Corefile ask.

use crate::{Corefile, Reload, RuleKind, Text};
use std::time::Duration;

/// How often files are looked at unless the Corefile says otherwise, as CoreDNS has it.
const LOOK_EVERY: Duration = Duration::from_secs(30);

impl Corefile {
    /// The files of lists, each with its place, as often as they are named.
    pub fn lists(&self) -> Vec<Text> {
        let mut lists = Vec::new();
        for server in &self.servers {
            for rule in server.firewalls.iter().flat_map(|list| &list.rules) {
                let RuleKind::Expression { text, expression, .. } = &rule.kind else { continue };
                let of_rule = expression.lists().map(|(file, at)| Text { text: file.clone(), place: text.piece(at) });
                lists.extend(of_rule);
            }
            if let Some(view) = &server.view {
                let all = view.conditions.iter().flat_map(|condition| condition.lists());
                lists.extend(all.map(|(file, _)| Text { text: file.clone(), place: view.place.clone() }));
            }
        }
        lists
    }

    /// How often the Corefile and its lists are looked at; none is never.
    pub fn looked_at_every(&self) -> Option<Duration> {
        match self.servers.iter().find_map(|server| server.reload) {
            Some(Reload::Off) => None,
            Some(Reload::Every { interval, .. }) => Some(interval),
            None => Some(LOOK_EVERY),
        }
    }
}
