// Reads dnstap with the reader of those who made it, from a socket of either
// kind, and prints each message as a line of JSON: theirs, and beside it what
// theirs leaves out.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"

	dnstap "github.com/dnstap/golang-dnstap"
	"google.golang.org/protobuf/proto"
)

func main() {
	// Whoever asked for a port gets told which.
	listener, err := net.Listen(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	frames := make(chan []byte, 64)
	go dnstap.NewFrameStreamSockInput(listener).ReadInto(frames)
	for frame := range frames {
		message := new(dnstap.Dnstap)
		if err := proto.Unmarshal(frame, message); err != nil {
			fmt.Println(err)
			continue
		}
		theirs, _ := dnstap.JSONFormat(message)
		extra, _ := json.Marshal(string(message.GetExtra()))
		fmt.Printf("{\"extra\":%s,\"dnstap\":%s}\n", extra, theirs[:len(theirs)-1])
	}
}
