// Command prober requests URLs at a constant rate, each request over a new connection, and serves
// the counts of successful and failed requests on port 8080. An answer must have status 200 and
// contain one of the target's texts; the first text that it contains is counted.
//
//	prober 'http://echo-hello.op-demo.svc/=hello|hello again' ...
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
	// maxFailures limits the failures that are described.
	maxFailures = 20
)

// counts is what the prober serves.
type counts struct {
	sync.Mutex
	Sent, Failed int
	// Answers counts the successful requests by the text that the answer contained.
	Answers map[string]int
	// Failures describes the first failed requests.
	Failures []string
}

func main() {
	counted := counts{Answers: map[string]int{}}
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, target := range os.Args[1:] {
		url, texts, found := strings.Cut(target, "=")
		if !found {
			log.Fatalf("invalid target %q: want a URL, =, and texts separated by |", target) //nolint:gosec // The target comes from the pod's own manifest.
		}
		go func() {
			for range time.Tick(interval) {
				go func() { counted.add(request(client, url, strings.Split(texts, "|"))) }()
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

// request makes one request, and returns the first of the texts that the answer contains.
func request(client *http.Client, url string, texts []string) (string, error) {
	response, err := client.Get(url) //nolint:gosec // The URL comes from the pod's own manifest.
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
		return "", fmt.Errorf("%s: %s: %.100q, want 200 and one of %q", url, response.Status, body, texts)
	}
	return texts[i], nil
}

func (c *counts) add(text string, err error) {
	c.Lock()
	defer c.Unlock()
	c.Sent++
	if err == nil {
		c.Answers[text]++
		return
	}
	c.Failed++
	if len(c.Failures) < maxFailures {
		c.Failures = append(c.Failures, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
	}
}
