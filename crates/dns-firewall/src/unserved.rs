//! What a Corefile may say though nothing comes of it yet. Nothing here would let through what should not pass;
//! it is told all the same (S10.2).

use namewall_corefile::ServerBlock;

pub(crate) fn warnings(server: &ServerBlock) -> Vec<String> {
    let options = [(server.loadbalance, "loadbalance"), (server.detects_loops, "loop")];
    let unserved = options.iter().filter(|(is_there, _)| *is_there);
    unserved.map(|(_, name)| format!("{}: `{name}` has no effect yet", server.place)).collect()
}
