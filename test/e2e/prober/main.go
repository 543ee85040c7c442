// Command prober requests URLs at a constant rate, and serves the counts of successful and failed requests on port 8080.
// A request for /request?target=<target> makes one request at once, and responds with 502 with the reason if it fails.
// Each URL has clients for GET and POST, over new connections and over those that are kept alive. A response must have
// status 200 and contain one of the target's texts; the first text that it contains is counted.
//
//	prober 'http://echo-hello.op-demo.svc/=hello|hello again' ...
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
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
	timeout  = 10 * time.Second
	// newClients and keptClients are the numbers of clients for each URL and method.
	newClients, keptClients = 1, 5
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
	// Responses counts the successful requests by the text that the response contained.
	Responses map[string]int
	// Failures describes the first failed requests.
	Failures []string
}

func main() {
	counted := &counts{Responses: map[string]int{}}
	for _, target := range os.Args[1:] {
		url, texts, err := parse(target)
		if err != nil {
			log.Fatal(err) //nolint:gosec // The target comes from the pod's own manifest.
		}
		go counted.probe(url, texts)
	}
	http.HandleFunc("/request", func(w http.ResponseWriter, r *http.Request) {
		url, texts, err := parse(r.FormValue("target"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, err := (&prober{method: http.MethodGet, url: url}).request(texts); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
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

func parse(target string) (url string, texts []string, err error) {
	url, text, found := strings.Cut(target, "=")
	if !found {
		return "", nil, fmt.Errorf("invalid target %q: want a URL, =, and texts separated by |", target)
	}
	return url, strings.Split(text, "|"), nil
}

// probe starts clients that request the URL until the program ends. They start after the URL has responded once: the
// first packets of a new pod may be lost.
func (c *counts) probe(url string, texts []string) {
	for {
		if _, err := (&prober{method: http.MethodGet, url: url}).request(texts); err == nil {
			break
		}
		time.Sleep(interval)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for range newClients {
			go func() {
				for range time.Tick(interval) {
					go func() {
						text, err := (&prober{method: method, url: url}).request(texts)
						c.add(false, text, err)
					}()
				}
			}()
		}
		for range keptClients {
			go func() {
				p := &prober{method: method, url: url, keep: true}
				for range time.Tick(interval) {
					text, err := p.request(texts)
					c.add(true, text, err)
				}
			}()
		}
	}
}

// prober makes requests, one at a time, without retries. Go's HTTP client would retry one that fails because the server
// closes a kept connection.
type prober struct {
	method, url string
	keep        bool
	connection  net.Conn
	reader      *bufio.Reader
}

// request makes one request, and returns the first of the texts that the response contains.
func (p *prober) request(texts []string) (text string, err error) {
	defer func() {
		if err != nil && p.connection != nil {
			_ = p.connection.Close()
			p.connection = nil
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", p.method, p.url, err)
		}
	}()
	var content io.Reader
	if p.method == http.MethodPost {
		content = strings.NewReader("content")
	}
	request, err := http.NewRequest(p.method, p.url, content) //nolint:gosec // The URL comes from the pod's own manifest.
	if err != nil {
		return "", err
	}
	request.Close = !p.keep
	if p.connection == nil {
		address := request.URL.Host
		if request.URL.Port() == "" {
			address += ":80"
		}
		if p.connection, err = net.DialTimeout("tcp", address, timeout); err != nil {
			return "", err
		}
		p.reader = bufio.NewReader(p.connection)
	}
	if err := p.connection.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if err := request.Write(p.connection); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(p.reader, request)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.Close || !p.keep {
		_ = p.connection.Close()
		p.connection = nil
	}
	i := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(string(body), text) })
	if i < 0 || response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %.100q, want 200 and one of %q", response.Status, body, texts)
	}
	return texts[i], nil
}

func (c *counts) add(kept bool, text string, err error) {
	c.Lock()
	defer c.Unlock()
	switch {
	case kept && err == nil:
		c.KeptSent++
		c.Responses[text]++
	case kept:
		c.KeptSent++
		c.KeptFailed++
		c.describe("kept connection: ", err)
	case err == nil:
		c.Sent++
		c.Responses[text]++
	default:
		c.Sent++
		c.Failed++
		c.describe("new connection: ", err)
	}
}

func (c *counts) describe(connection string, err error) {
	if len(c.Failures) < maxFailures {
		c.Failures = append(c.Failures, time.Now().UTC().Format(time.TimeOnly)+" "+connection+err.Error())
	}
}
