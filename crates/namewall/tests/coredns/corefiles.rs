//! The table of plain Corefiles, and the questions that all of them are asked.

/// What `hosts` reads.
pub(crate) const HOSTS: &str =
    "192.0.2.10 host.example.org host\n2001:db8::10 host.example.org\n192.0.2.11 two.example.org\n";

/// What `file` reads.
pub(crate) const ZONE: &str = "$ORIGIN example.org.
$TTL 300
@ IN SOA ns.example.org. admin.example.org. 1 3600 600 86400 60
@ IN NS ns.example.org.
ns IN A 192.0.2.53
www IN A 192.0.2.1
www IN AAAA 2001:db8::1
alias IN CNAME www
mail IN MX 10 www
text IN TXT \"one\" \"two\"
*.wild IN A 192.0.2.7
_http._tcp IN SRV 1 2 80 www
";

/// What the upstream answers.
pub(crate) const UPSTREAM_ZONE: &str = "$ORIGIN example.org.
$TTL 120
@ IN SOA ns.example.org. admin.example.org. 1 3600 600 86400 60
@ IN NS ns.example.org.
ns IN A 192.0.2.54
www IN A 192.0.2.2
www IN AAAA 2001:db8::2
v4 IN A 192.0.2.4
alias IN CNAME v4
new IN A 192.0.2.5
a.new IN A 192.0.2.6
mail IN MX 10 new
text IN TXT \"three\"
_http._tcp IN SRV 1 2 80 new
*.wild IN A 192.0.2.8
";

pub(crate) const QUESTIONS: &[&str] = &[
    "A www.example.org",
    "AAAA www.example.org",
    "AAAA v4.example.org",
    "A alias.example.org",
    "AAAA alias.example.org",
    "MX mail.example.org",
    "TXT text.example.org",
    "SRV _http._tcp.example.org",
    "A none.example.org",
    "A old.example.org",
    "A a.old.example.org",
    "A x.wild.example.org",
    "A host.example.org",
    "AAAA two.example.org",
    "SOA example.org",
    "NS example.org",
    "HTTPS www.example.org",
    "A elsewhere.example.com",
    "PTR 10.2.0.192.in-addr.arpa",
    "A localhost",
    "ANY www.example.org",
    "TXT version.bind CH",
    "A WWW.Example.ORG edns=1232",
    "TXT text.example.org edns=4096",
];

/// Names, and server blocks: the zone in the first line, then directives. `---` stands between two blocks.
pub(crate) const COREFILES: &[(&str, &str)] = &[
    ("forward", ".\nforward . UPSTREAM"),
    ("forward-zone", ".\nforward example.org UPSTREAM"),
    ("forward-except", ".\nforward . UPSTREAM {\n except www.example.org\n}"),
    ("two-zones", "example.org\nforward . UPSTREAM\n---\n.\nwhoami"),
    ("cache", ".\nforward . UPSTREAM\ncache 30"),
    ("cache-long", ".\nforward . UPSTREAM\ncache 3600"),
    ("hosts", ".\nhosts hosts {\n fallthrough\n}\nforward . UPSTREAM"),
    ("hosts-alone", ".\nhosts hosts"),
    (
        "hosts-inline",
        ".\nhosts hosts {\n 192.0.2.99 inline.example.org www.example.org\n ttl 77\n fallthrough\n}\nforward . UPSTREAM",
    ),
    ("hosts-no-reverse", ".\nhosts hosts {\n no_reverse\n fallthrough\n}\nforward . UPSTREAM"),
    ("hosts-zone", ".\nhosts hosts example.org {\n fallthrough example.org\n}\nforward . UPSTREAM"),
    ("file", "example.org\nfile db.example"),
    ("file-fallthrough", "example.org\nfile db.example {\n fallthrough\n}\nforward . UPSTREAM"),
    (
        "template",
        ".\ntemplate IN A example.org {\n match ^(?P<host>[a-z]+)[.]example[.]org[.]$\n answer \"{{ .Name }} 60 IN A 192.0.2.200\"\n fallthrough\n}\nforward . UPSTREAM",
    ),
    (
        "template-nxdomain",
        ".\ntemplate ANY ANY example.org {\n rcode NXDOMAIN\n authority \"example.org. 60 IN SOA ns.example.org. a.example.org. 1 60 60 60 60\"\n}\nforward . UPSTREAM",
    ),
    ("local", ".\nlocal\nforward . UPSTREAM"),
    ("any", ".\nany\nforward . UPSTREAM"),
    ("chaos", ".\nchaos CoreDNS-1 alice\nforward . UPSTREAM"),
    ("whoami", "example.com\nwhoami\n---\n.\nforward . UPSTREAM"),
    ("minimal", ".\nminimal\nforward . UPSTREAM"),
    ("minimal-file", "example.org\nminimal\nfile db.example"),
    ("header-set", ".\nheader {\n response set aa ra\n}\nforward . UPSTREAM"),
    ("header-clear", "example.org\nheader {\n response clear aa\n}\nfile db.example"),
    ("header-query", ".\nheader {\n query clear rd\n response set aa\n}\nforward . UPSTREAM"),
    ("bufsize", ".\nbufsize 1232\nforward . UPSTREAM"),
    ("bufsize-small", "example.org\nbufsize 512\nfile db.example"),
    ("nsid", ".\nnsid the-server\nforward . UPSTREAM"),
    ("acl-block", ".\nacl example.org {\n block type TXT MX net 127.0.0.0/8\n}\nforward . UPSTREAM"),
    ("acl-filter", ".\nacl {\n filter type AAAA net *\n}\nforward . UPSTREAM"),
    ("acl-allow", ".\nacl example.org {\n allow net 127.0.0.1\n block\n}\nforward . UPSTREAM"),
    ("acl-other-client", ".\nacl {\n block net 192.0.2.0/24\n}\nforward . UPSTREAM"),
    (
        "acl-two",
        ".\nacl www.example.org {\n allow type A\n}\nacl example.org {\n block type A AAAA\n}\nforward . UPSTREAM",
    ),
    ("rewrite-exact", ".\nrewrite name old.example.org new.example.org\nforward . UPSTREAM"),
    ("rewrite-exact-word", ".\nrewrite name exact old.example.org new.example.org\nforward . UPSTREAM"),
    ("rewrite-suffix", ".\nrewrite name suffix old.example.org new.example.org answer auto\nforward . UPSTREAM"),
    ("rewrite-suffix-plain", ".\nrewrite name suffix old.example.org new.example.org\nforward . UPSTREAM"),
    ("rewrite-prefix", ".\nrewrite name prefix a.old a.new answer auto\nforward . UPSTREAM"),
    ("rewrite-substring", ".\nrewrite name substring old new answer auto\nforward . UPSTREAM"),
    (
        "rewrite-regex",
        ".\nrewrite name regex (.*)old[.]example[.]org {1}new.example.org answer auto\nforward . UPSTREAM",
    ),
    (
        "rewrite-answer-name",
        ".\nrewrite stop {\n name regex (.*)old[.]example[.]org {1}new.example.org\n answer name (.*)new[.]example[.]org {1}old.example.org\n}\nforward . UPSTREAM",
    ),
    (
        "rewrite-answer-value",
        ".\nrewrite stop {\n name exact alias.example.org alias.example.org\n answer value v4[.]example[.]org other.example.org\n}\nforward . UPSTREAM",
    ),
    (
        "rewrite-continue",
        ".\nrewrite continue name old.example.org alias.example.org\nrewrite name alias.example.org new.example.org\nforward . UPSTREAM",
    ),
    ("rewrite-type", ".\nrewrite type HTTPS A\nforward . UPSTREAM"),
    ("rewrite-class", ".\nrewrite class CH IN\nforward . UPSTREAM"),
    ("rewrite-ttl", ".\nrewrite ttl suffix example.org 15-45\nforward . UPSTREAM"),
    ("rewrite-ttl-exact", ".\nrewrite ttl www.example.org 7\nforward . UPSTREAM"),
    (
        "rewrite-hosts",
        ".\nrewrite name old.example.org host.example.org\nhosts hosts {\n fallthrough\n}\nforward . UPSTREAM",
    ),
    ("dns64", ".\ndns64 {\n allow_ipv4\n}\nforward . UPSTREAM"),
    ("dns64-prefix", ".\ndns64 {\n prefix 2001:db8:64::/48\n allow_ipv4\n translate_all\n}\nforward . UPSTREAM"),
    ("dns64-ipv6-only", ".\ndns64\nforward . UPSTREAM"),
    ("dns64-hosts", ".\ndns64 {\n allow_ipv4\n}\nhosts hosts {\n fallthrough\n}\nforward . UPSTREAM"),
    ("dns64-acl-filter", ".\nacl {\n filter type AAAA\n}\ndns64 {\n allow_ipv4\n}\nforward . UPSTREAM"),
    ("dns64-acl-block", ".\nacl {\n block type AAAA\n}\ndns64 {\n allow_ipv4\n}\nforward . UPSTREAM"),
    (
        "view",
        "example.org\nview mail {\n expr type() in ['MX', 'TXT']\n}\nforward . UPSTREAM\n---\nexample.org\nfile db.example",
    ),
    (
        "view-client",
        ".\nview near {\n expr incidr(client_ip(), '127.0.0.0/8') && name() != 'www.example.org.'\n}\nforward . UPSTREAM\n---\n.\nhosts hosts",
    ),
    ("timeouts", ".\ntimeouts {\n idle 20s\n}\nforward . UPSTREAM"),
    ("loadbalance", ".\nloadbalance\nforward . UPSTREAM"),
];
