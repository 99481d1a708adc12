//go:build tools

// Package tools names what scripts/peers/pdpserver builds, so that go.mod and go.sum
// have all of it.
package tools

import _ "github.com/infobloxopen/themis/pdpserver"
