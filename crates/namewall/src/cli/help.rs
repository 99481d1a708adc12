//! What `--help` says behind the options: examples first, then what one has to
//! know, then exit codes.

use namewall_kubernetes::crds;

pub(super) const CHECK_HELP: &str = "\
Examples:
  namewall check examples/shop
  kubectl get netpol,ns,pods -A -o yaml | namewall check -

Exit codes:
  0  no error was found (there may be warnings and hints)
  1  at least one finding of severity error
  2  the input could not be read";

pub(super) const EXPLAIN_HELP: &str = "\
Examples:
  namewall explain --from shop/web --to shop/db:5432 examples/shop
  namewall explain --from shop/api --to api.payments.example:443 \\
      --dns api.payments.example=198.51.100.7 examples/shop
  namewall explain --from 203.0.113.9 --to shop/web:22/TCP \\
      --expect deny examples/shop
  namewall explain --live --from shop/api --to api.payments.example:443

An end is NAMESPACE/NAME (NAMESPACE/KIND/NAME where two kinds share a name), an
address, or, as a destination, a DNS name. IPv6 addresses with a port stand in
brackets. Without a port the answer says which ports are open.

Exit codes:
  0  the question could be answered, whatever the verdict
  1  --expect was given and the verdict is the other one
  2  the question, the input, or a part of it, could not be read
     (--lenient: only if no answer could be given)";

pub(super) const MATRIX_HELP: &str = "\
Examples:
  namewall matrix examples/shop
  namewall matrix --focus shop/web -o json examples/shop
  namewall matrix -o svg examples/shop > shop.svg
  namewall matrix --port 443/TCP examples/shop
  namewall matrix -o html examples/shop > shop.html

Pods of one Deployment, StatefulSet, DaemonSet or CronJob share a row, on whatever
nodes they run; pods without an owner do if they have the same labels. A row is
split where its pods may not do the same: `db (db-0)`. `--by pod` shows every pod.
A pod's own node may always reach it; rows of workloads leave that out.

Ranges of addresses speak of what is outside: addresses that no workload has.
Names and patterns of names are destinations like workloads and ranges.

Exit codes:
  0  done
  2  the input, or a part of it, could not be read (--lenient: only if none could)";

pub(super) const DIFF_HELP: &str = "\
Examples:
  namewall diff main/manifests manifests
  namewall diff -o md old.yaml new.yaml >> comment.md

Pods are compared by the workload they belong to, so that a rollout, which changes
their names, is no difference. `--by pod` compares them by their names.

Exit codes:
  0  the same connections are open
  1  some connection was added, removed or changed
  2  the input, or a part of it, could not be read (--lenient: only if none could)";

pub(super) const TEST_HELP: &str = "\
Examples:
  namewall test examples/shop/scenario.yaml
  namewall test -o junit tests/*.yaml > report.xml
  namewall test --real tests/scenarios/packets
  namewall test --real --tell examples/names

With --real every step is also taken in network namespaces, and every probe is
tried with packets: what is denied must go unanswered, and the kernel must tell of
it by the rule the core names. It takes root, or user namespaces; `advance` really
waits.

Exit codes:
  0  every probe was answered as expected
  1  at least one was not
  2  the input, or a part of it, could not be read (--lenient: only if none could)";

pub(super) const RULES_HELP: &str = "\
Examples:
  namewall rules examples/shop
  namewall rules --node node-1 examples/shop | less
  namewall rules --live
  namewall rules --live --pod 10.244.1.10
  namewall rules --live --namespace shop /etc/namewall

Sets are shown without their elements. Nothing is changed, and no rights are needed.

With --live it reads the table that the kernel of this machine has, as root. For
each group of pods it prints the rules that judge them, in order: of which
policy, what it does, how many connections it has decided, and which addresses
are open by name, for how long. The kernel knows pods by their addresses; with
manifests they have names too. `nft list table inet namewall` shows the same
table in nftables' words.

Exit codes:
  0  done
  2  the input, or a part of it, could not be read (--lenient: only if none
     could); --live: there is no table, or no right to read it";

pub(super) const RUN_HELP: &str = "\
Examples:
  namewall run --manifests /etc/namewall
  namewall run --manifests policies.yaml --node node-1 --upstream 10.96.0.10 --upstream 9.9.9.9
  namewall run --manifests . --config namewall.yaml
  namewall run --manifests . --take-over

Pods' questions to any DNS server are taken to namewall's own and go on to the server
they were meant for, if that is an upstream or trusted, else to the upstreams; whose
answers are what names open. Without --upstream those of /etc/resolv.conf are asked.
What a name opens is in the kernel before the pod has its answer.

Files are watched: a change is enforced within a second, and a file that cannot be read
keeps its last good version. SIGHUP reads the configuration again, SIGTERM ends it. The
kernel's rules stay, whatever becomes of the process; `namewall uninstall` removes them.
With --take-over it takes over from one that runs, without losing a question.

Exit codes:
  0  it was told to end
  2  it could not start";

pub(super) const AGENT_HELP: &str = "\
Examples:
  namewall agent --node node-1
  namewall agent --node node-1 --kubeconfig ~/.kube/config --upstream 10.96.0.10

The cluster's objects are watched, and what they say is enforced in this node's kernel as
they change. Nothing is enforced anew before all of them are known; while the API server
is away, what was known stays in force and names are learned as before. In a pod the
service account's token is used.

DNS is served as by `namewall run`, and so are `namewall status`, `leases`, `explain
--live` and `uninstall`.

Exit codes:
  0  it was told to end
  2  it could not start";

pub(super) const CONTROLLER_HELP: &str = "\
Examples:
  namewall controller
  namewall controller --kubeconfig ~/.kube/config --namespace namewall --resolver 10.96.0.10
  namewall controller --all-names

There is one DNSNameResolver for every name in EgressFirewalls, made when the first rule
with it comes and deleted when the last one goes. Its addresses are looked up again when
their TTL is over, at up to five resolvers; agents open on their nodes what it says. Of
several replicas one leads; another takes over within 15 seconds.

Exit codes:
  0  it was told to end
  2  it could not start";

pub(super) const DNS_HELP: &str = "\
Examples:
  namewall dns --conf Corefile
  namewall dns --conf Corefile --check
  namewall dns --conf Corefile --explain 'A www.example.com from 10.1.2.3 edns0:0xffed=abc'
  namewall dns --conf Corefile -o json --explain 'A www.example.com answer 192.0.2.1,192.0.2.2'
  namewall dns --conf Corefile --manifests cluster.yaml
  namewall dns --conf Corefile --kubeconfig ~/.kube/config

Directives and rules are those of CoreDNS and its policy plugins: see docs/corefile.md and
docs/expressions.md. A mistake is told with its place before any socket opens. The file, what
it imports and what its engines read are watched (`reload`), and SIGHUP has all of it read
again; what is wrong changes nothing. `dnsnameresolver` writes to the API server that
--kubeconfig names, or that of the pod it runs in; rules then know clients as its pods.

--explain prints what becomes of a question, rule by rule, and asks nobody but engines:
  TYPE NAME [from ADDRESS[:PORT]] [at ADDRESS[:PORT]] [over udp|tcp] [edns0:CODE=TEXT|0xHEX]...
      [answer ADDRESS,...|NODATA|NXDOMAIN|SERVFAIL|REFUSED]
With an answer, or where `hosts` has one, response rules are explained too.

Exit codes:
  0  it was told to end; with --check, the Corefile can be served
  1  with --check, it cannot; with --explain, the question does not pass
  2  it could not start";

pub(super) const STATUS_HELP: &str = "\
Examples:
  namewall status
  namewall status -o json

Exit codes:
  0  it runs
  2  none runs, or it does not answer";

pub(super) const LEASES_HELP: &str = "\
Examples:
  namewall leases
  namewall leases api.example.com
  namewall leases -o json

Exit codes:
  0  done
  2  none runs, or it does not answer";

pub(super) const SANDBOX_HELP: &str = "\
Examples:
  namewall sandbox up examples/shop
  namewall sandbox probe
  namewall sandbox exec shop/web -- ping -c1 10.244.1.12
  namewall sandbox down

Every node and every pod is a network namespace, Services are translated as
kube-proxy does it, and the policies are enforced in the nodes by this machine's
own kernel. The machine's own network is not touched. It takes root, or user
namespaces. There is one sandbox a user; a second `up` replaces the first. To have
more, set NAMEWALL_RUNTIME_DIR to a folder for each.";

pub(super) const SANDBOX_PROBE_HELP: &str = "\
Examples:
  namewall sandbox probe
  namewall sandbox probe --port 443/TCP --port 53/UDP -o json

Every pod and every host outside tries every pod's ports, every node and every
Service. `+` is open, `·` is denied (the packets are dropped, nobody answers), `!`
is not what was predicted.

Exit codes:
  0  everything is as predicted
  1  something is not
  2  no sandbox is up, or it could not be asked";

pub(super) const SANDBOX_EXEC_HELP: &str = "\
Examples:
  namewall sandbox exec shop/web -- ip address
  namewall sandbox exec --node node-1 -- nft list ruleset
  namewall sandbox exec --outside -- nc -vz 10.244.1.10 8080

The command's exit code is passed on.";

pub(super) const UNINSTALL_HELP: &str = "\
Examples:
  namewall uninstall
  namewall uninstall --table other

Only namewall's own table is removed. It takes root, or the capability NET_ADMIN.
The CNI plugin goes too, as by `namewall cni uninstall`: of this machine, and of
the node whose files are at /host, where `kubectl debug node/NAME` has them.
While a namewall is running, its table is not removed: after 10 s the command
fails, and says which process still holds the table.

Exit codes:
  0  nothing of it is left
  2  it could not be removed";

pub(super) const CNI_HELP: &str = "\
Examples:
  namewall cni install
  namewall cni install --bin-dir /host/opt/cni/bin --conf-dir /host/etc/cni/net.d --watch
  namewall cni uninstall

The plugin is this binary. The container runtime runs it for every pod, after the
plugin that gives the pod its network; it returns when the node's agent enforces
the pod's policies, so that the pod's first packet finds them.

`install` copies the binary to --bin-dir and writes a copy of the first
configuration in --conf-dir with the plugin appended, under a name that comes
before it. The original is not changed: `uninstall` removes both copies.

Exit codes:
  0  done
  2  it could not be done";

pub(super) fn crds_help() -> String {
    let own: Vec<&str> = crds::kinds().into_iter().filter(|kind| kind.is_own()).map(|kind| kind.name).collect();
    format!(
        "\
Examples:
  namewall crds | kubectl apply --server-side -f -
  namewall crds --only {}
  namewall crds -o json > crds.json

{} are namewall's own. The others are in the
form their projects publish; leave them out where the cluster has them already.

Exit codes:
  0  done
  2  there is no such kind",
        own.join(" "),
        own.join(" and ")
    )
}

pub(super) const POLICIES_HELP: &str = "\
Examples:
  namewall policies shop/web examples/shop

Exit codes:
  0  done
  2  the input, or a part of it, could not be read (--lenient: only if none could)";

pub(super) const AUDIT_PATHS_HELP: &str = "\
Examples:
  namewall audit-paths metadata examples/cluster-egress-firewall
  namewall audit-paths nodes -o json examples/cluster-egress-firewall
  namewall audit-paths 198.51.100.20 examples/cluster-egress-firewall
  namewall audit-paths apiserver --live
  namewall audit-paths metadata --attack examples/cluster-egress-firewall

A way is a direct connection, a Service whose endpoints are the destination (at
its addresses, at a port of every node, by its name), an address of a further
network of a pod, or a rule by name whose answer points there; to a node also
loopback and link-local addresses, broadcast and multicast. Each is judged from
every workload, and what leads to pods, nodes and Services from outside the
cluster too. Pods on the host's network are out of reach: nobody can tell them
from their node. So are nodes themselves, from outside.
`metadata` is 169.254.169.254 and fd00:ec2::254. A node that is called like one
of the words is written node/NAME.

With --attack a sandbox is built of the same objects (see namewall sandbox), and
a connection takes each way that has one: from each of a workload's addresses,
at each address and node port of a Service. Predicted is what the policies say,
seen is what packets did. What is listed and not tried is told as `not tried`,
with the reason; the numbers of both add up to what is listed.

Exit codes:
  0  every way is closed, but for those that are out of reach
  1  a way is open, or depends on what the input does not say; with --attack
     also if a way fares otherwise than predicted
  2  the destination, the input, or a part of it, could not be read
     (--lenient: only if no answer could be given)";
