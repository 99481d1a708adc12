//! What a Corefile may say though nothing comes of it yet. Nothing here would let through what should not pass;
//! it is told all the same (S10.2).

use crate::corefile::ServerBlock;

pub(super) fn warnings(server: &ServerBlock) -> Vec<String> {
    let mut all = Vec::new();
    let cache = server.cache.as_ref();
    let of_block = [
        (cache.is_some_and(|cache| cache.prefetch.is_some()), "prefetch"),
        (cache.is_some_and(|cache| cache.serve_stale.is_some()), "serve_stale"),
        (server.loadbalance, "loadbalance"),
        (server.detects_loops, "loop"),
        (server.dns_name_resolver.is_some(), "dnsnameresolver"),
    ];
    let mut warn = |place, options: &[(bool, &str)]| {
        for (_, name) in options.iter().filter(|(is_there, _)| *is_there) {
            all.push(format!("{place}: `{name}` has no effect yet"));
        }
    };
    warn(&server.place, &of_block);
    for forward in &server.forwards {
        let options = [
            (!forward.next.is_empty(), "next"),
            (!forward.failover.is_empty(), "failover"),
            (forward.max_concurrent.is_some(), "max_concurrent"),
            (forward.max_connect_attempts.is_some(), "max_connect_attempts"),
            (forward.max_idle_connections.is_some(), "max_idle_conns"),
            (forward.max_age.is_some(), "max_age"),
            (forward.fail_fast, "failfast_all_unhealthy_upstreams"),
        ];
        warn(&forward.place, &options);
    }
    all
}
