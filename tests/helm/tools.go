//go:build tools

// Package helm names the program that is built, so that its modules are held in go.sum.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
