// Command caller calls the Services of Echoes at a steady rate, every request over a
// connection of its own, and tells on port 8080 how many were answered as they should be.
// An answer must contain one of the texts; the first that it contains is counted.
//
//	caller 'http://echo-hello.op-demo.svc/=hello|hello again' ...
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	interval = 50 * time.Millisecond
	timeout  = 5 * time.Second
	// kept is how many failures are told.
	kept = 20
)

// count is what the caller tells.
type count struct {
	sync.Mutex
	Sent, Failed int
	// Answers are the others, by their texts.
	Answers map[string]int
	// Failures are the first ones, in words.
	Failures []string
}

func main() {
	counted := count{Answers: map[string]int{}}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, target := range os.Args[1:] {
		url, texts, found := strings.Cut(target, "=")
		if !found {
			log.Fatalf("%q is no target: it must be a URL, =, and parts of its answers, with | between them", target) //nolint:gosec // It is what the caller wrote.
		}
		go func() {
			for range time.Tick(interval) {
				go func() { counted.add(call(client, url, strings.Split(texts, "|"))) }()
			}
		}()
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		counted.Lock()
		defer counted.Unlock()
		if err := json.NewEncoder(w).Encode(&counted); err != nil {
			log.Print(err)
		}
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: timeout}
	log.Fatal(server.ListenAndServe())
}

// call makes one request, and returns which of the texts is part of its answer.
func call(client *http.Client, url string, texts []string) (string, error) {
	response, err := client.Get(url) //nolint:gosec // It is told whom to call.
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(string(body), text) })
	if i < 0 || response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %.100q", url, response.Status, body)
	}
	return texts[i], nil
}

func (c *count) add(text string, err error) {
	c.Lock()
	defer c.Unlock()
	c.Sent++
	if err == nil {
		c.Answers[text]++
		return
	}
	c.Failed++
	if len(c.Failures) < kept {
		c.Failures = append(c.Failures, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
	}
}
