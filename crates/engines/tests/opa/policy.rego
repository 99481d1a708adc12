# What policies are written with: each way through it is one of Rego's.
package dns

import data.lists

action := "block" if {
	some zone in zones
	lists.blocked[zone]
} else := "drop" if {
	regex.match(`^[0-9a-f]{16,}\.`, input.name)
} else := "refuse" if {
	glob.match("ads*.**", ["."], domain)
} else := {"action": "redirect", "to": server} if {
	server := lists.servers[tld]
	from_office
} else := "log" if {
	input.type == "ANY"
} else := "allow" if {
	allowed
} else := "sometimes" if {
	tld == "odd"
} else := 7 if {
	tld == "number"
} else := verdict if {
	tld == "conflict"
}

# Two answers at once, which is an error, to names that begin with `both`.
verdict := "allow" if startswith(domain, "both")

verdict := "block" if contains(domain, "both")

domain := lower(trim_suffix(input.name, "."))

labels := split(domain, ".")

tld := labels[count(labels) - 1]

# The name and all above it.
zones contains zone if {
	some at, _ in labels
	zone := concat(".", array.slice(labels, at, count(labels)))
}

from_office if {
	some network in lists.office
	net.cidr_contains(network, input.client_ip)
}

is_public(address) if {
	every network in lists.private {
		not net.cidr_contains(network, address)
	}
}

allowed if {
	input.rcode == ""
	tld in {"com", "example"}
	not closed
}

closed if object.get(lists.teams, input.team, {"closed": true}).closed

allowed if {
	input.rcode == "NOERROR"
	is_public(input.response_ip)
	count([label | some label in labels; startswith(label, "x")]) < 2
}

allowed if {
	to_number(labels[0]) % 2 == 1
	sprintf("%s-%d", [tld, count(labels)]) == "arpa-3"
}

allowed if input.rcode == json.unmarshal(`"NXDOMAIN"`)
