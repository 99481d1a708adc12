// Command kubenetworkpolicies answers questions about clusters with the policy
// engine of kube-network-policies, without a cluster and without packets.
//
// Each line of standard input is a Batch. Each line of standard output answers
// one, with a `+` (allowed) or a `-` (denied) for every connection: pair by
// pair, and for each pair port by port.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

// Batch is a cluster and the connections that are asked about.
type Batch struct {
	Objects []json.RawMessage `json:"objects"`
	// Ends are addresses; a pair has the indices of its source and its destination.
	Ends  []string `json:"ends"`
	Pairs [][2]int `json:"pairs"`
	Ports []Port   `json:"ports"`
}

// Port is a protocol and the destination's port.
type Port struct {
	Protocol corev1.Protocol `json:"protocol"`
	Port     int             `json:"port"`
}

func main() {
	klog.SetLogger(klog.Logger{})
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kubenetworkpolicies:", err)
		os.Exit(1)
	}
}

func run() error {
	var batches []Batch
	decoder := json.NewDecoder(bufio.NewReader(os.Stdin))
	for decoder.More() {
		var batch Batch
		if err := decoder.Decode(&batch); err != nil {
			return fmt.Errorf("batch %d: %w", len(batches), err)
		}
		batches = append(batches, batch)
	}
	answers, failures := make([][]byte, len(batches)), make([]error, len(batches))
	var workers sync.WaitGroup
	for worker := range runtime.NumCPU() {
		workers.Go(func() {
			for at := worker; at < len(batches); at += runtime.NumCPU() {
				answers[at], failures[at] = answer(&batches[at])
			}
		})
	}
	workers.Wait()
	out := bufio.NewWriter(os.Stdout)
	for at, line := range answers {
		if failures[at] != nil {
			return fmt.Errorf("batch %d: %w", at, failures[at])
		}
		out.Write(append(line, '\n'))
	}
	return out.Flush()
}

func answer(batch *Batch) ([]byte, error) {
	engine, err := build(batch.Objects)
	if err != nil {
		return nil, err
	}
	ends := make([]net.IP, len(batch.Ends))
	for at, text := range batch.Ends {
		if ends[at] = net.ParseIP(text); ends[at] == nil {
			return nil, fmt.Errorf("%q is not an address", text)
		}
	}
	line := make([]byte, 0, len(batch.Pairs)*len(batch.Ports))
	for _, pair := range batch.Pairs {
		for _, port := range batch.Ports {
			allowed, err := ask(engine, ends[pair[0]], ends[pair[1]], port)
			if err != nil {
				return nil, err
			}
			if allowed {
				line = append(line, '+')
			} else {
				line = append(line, '-')
			}
		}
	}
	return line, nil
}

func ask(engine *networkpolicy.PolicyEngine, from, to net.IP, port Port) (bool, error) {
	packet := network.Packet{
		Family: corev1.IPv6Protocol,
		SrcIP:  from, DstIP: to,
		Proto:   port.Protocol,
		SrcPort: 40000, DstPort: port.Port,
	}
	if to.To4() != nil {
		packet.Family = corev1.IPv4Protocol
	}
	return engine.EvaluatePacket(context.Background(), &packet)
}
