# The example of CoreDNS' plugin's kind: Rego as it was.
package dns

import input.client_ip
import input.name

default action = "allow"

action = "allow" {
	trusted
} else = "refuse" {
	refused[name]
} else = "block" {
	endswith(name, ".test.")
} else = "drop" {
	count(name) > 30
}

trusted {
	net.cidr_contains("10.1.0.0/16", client_ip)
}

refused["www.example.com."]

refused[other] {
	other := sprintf("%v.example.", [data.lists.teams[_].name])
}

refused["bad.example."]
