// Command prober requests URLs at a constant rate, and serves the counts of successful and failed requests on port 8080.
// Each URL has four clients: GET and POST, over new connections and over one that is kept alive. An answer must have
// status 200 and contain one of the target's texts; the first text that it contains is counted.
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
	// interval is the time between two requests of a client.
	interval = 100 * time.Millisecond
	timeout  = 5 * time.Second
	// maxFailures limits the failures that are described.
	maxFailures = 20
)

// counts is what the prober serves.
type counts struct {
	sync.Mutex
	// Sent and Failed count the requests over new connections.
	Sent, Failed int
	// KeptSent and KeptFailed count the requests over connections that are kept alive.
	KeptSent, KeptFailed int
	// Answers counts the successful requests over new connections by the text that the answer contained.
	Answers map[string]int
	// Failures describes the first failed requests over new connections.
	Failures []string
}

func main() {
	counted := &counts{Answers: map[string]int{}}
	for _, target := range os.Args[1:] {
		url, texts, found := strings.Cut(target, "=")
		if !found {
			log.Fatalf("invalid target %q: want a URL, =, and texts separated by |", target) //nolint:gosec // The target comes from the pod's own manifest.
		}
		counted.probe(url, strings.Split(texts, "|"))
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		counted.Lock()
		defer counted.Unlock()
		if err := json.NewEncoder(w).Encode(counted); err != nil {
			log.Print(err)
		}
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: timeout}
	log.Fatal(server.ListenAndServe())
}

// probe starts four clients that request the URL until the program ends. They start after the URL has answered once: the
// first packets of a new pod may be lost.
func (c *counts) probe(url string, texts []string) {
	for {
		_, err := request(&http.Client{Timeout: timeout}, http.MethodGet, url, texts)
		if err == nil {
			break
		}
		log.Print(err)
		time.Sleep(interval)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, kept := range []bool{false, true} {
			client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: !kept}}
			go func() {
				for range time.Tick(interval) {
					go func() {
						text, err := request(client, method, url, texts)
						c.add(kept, text, err)
					}()
				}
			}()
		}
	}
}

// request makes one request, and returns the first of the texts that the answer contains.
func request(client *http.Client, method, url string, texts []string) (string, error) {
	var content io.Reader
	if method == http.MethodPost {
		content = strings.NewReader("content")
	}
	r, err := http.NewRequest(method, url, content) //nolint:gosec // The URL comes from the pod's own manifest.
	if err != nil {
		return "", err
	}
	response, err := client.Do(r) //nolint:gosec // The same.
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", method, url, err)
	}
	i := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(string(body), text) })
	if i < 0 || response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s %s: %s: %.100q, want 200 and one of %q", method, url, response.Status, body, texts)
	}
	return texts[i], nil
}

func (c *counts) add(kept bool, text string, err error) {
	c.Lock()
	defer c.Unlock()
	switch {
	case kept && err == nil:
		c.KeptSent++
	case kept:
		c.KeptSent++
		c.KeptFailed++
	case err == nil:
		c.Sent++
		c.Answers[text]++
	default:
		c.Sent++
		c.Failed++
		if len(c.Failures) < maxFailures {
			c.Failures = append(c.Failures, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
		}
	}
}
