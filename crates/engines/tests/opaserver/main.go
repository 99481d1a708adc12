// Command opa is Open Policy Agent at the version this module pins, for the
// tests that hold namewall's reading of Rego to it.
package main

import (
	"os"

	"github.com/open-policy-agent/opa/cmd"
)

func main() {
	if err := cmd.RootCommand.Execute(); err != nil {
		os.Exit(1)
	}
}
