// Command isolation runs a command with a kubeconfig that points at a recording server, and fails
// if the command connects to that server. Tests that need no cluster have to pass it:
//
//	isolation go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: recorder
contexts: [{name: recorder, context: {cluster: recorder, user: recorder}}]
clusters: [{name: recorder, cluster: {server: "http://%s"}}]
users: [{name: recorder, user: {}}]
`

// checkPath is the path of the recorder's own request.
const checkPath = "/isolation"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolation:", err)
		os.Exit(1)
	}
}

// run runs the command. It returns an error if the command fails or connects to the cluster of
// its kubeconfig.
func run(ctx context.Context, command []string) (err error) {
	if len(command) == 0 {
		return errors.New("usage: isolation COMMAND [ARGUMENT ...]")
	}
	recorder, err := startRecorder(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, recorder.server.Close()) }()
	home, err := os.MkdirTemp("", "isolation-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	environment, err := environment(ctx, home, recorder.address)
	if err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // The caller says what to run.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if strings.Contains(os.Getenv("MAKEFLAGS"), "--jobserver-auth=3,4") {
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "jobserver"), os.NewFile(4, "jobserver")}
	}
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", strings.Join(command, " "), err), recorder.check(ctx, command))
	}
	return recorder.check(ctx, command)
}

// environment returns the variables that make the recorder the caller's cluster, by KUBECONFIG
// and by the home directory. Caches and configuration stay where they are.
func environment(ctx context.Context, home, address string) ([]string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return nil, err
	}
	gopath, err := exec.CommandContext(ctx, "go", "env", "GOPATH").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	file := filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, kubeconfig, address), 0o600); err != nil {
		return nil, err
	}
	variables := []string{
		"HOME=" + home, "KUBECONFIG=" + file,
		// The permission to use any cluster must not reach a test that needs none.
		"USE_EXISTING_CLUSTER=true",
		"XDG_CACHE_HOME=" + cache, "XDG_CONFIG_HOME=" + config, "GOPATH=" + strings.TrimSpace(string(gopath)),
	}
	git := filepath.Join(os.Getenv("HOME"), ".gitconfig")
	if _, err := os.Stat(git); err == nil && os.Getenv("GIT_CONFIG_GLOBAL") == "" {
		variables = append(variables, "GIT_CONFIG_GLOBAL="+git)
	}
	return variables, nil
}

// recorder is a server that takes the place of an API server and records what it receives.
type recorder struct {
	address string
	server  *http.Server

	mutex       sync.Mutex
	connections int
	requests    []string
}

func startRecorder(ctx context.Context) (*recorder, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &recorder{address: listener.Addr().String()}
	r.server = &http.Server{Handler: r, ConnState: r.connection, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // Close ends it.
	return r, nil
}

// ServeHTTP records the request and rejects it.
func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path != checkPath {
		r.mutex.Lock()
		r.requests = append(r.requests, fmt.Sprintf("%s %s (%s)", request.Method, request.URL, request.UserAgent()))
		r.mutex.Unlock()
	}
	http.Error(w, "this test must not use a cluster", http.StatusForbidden)
}

func (r *recorder) connection(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		r.mutex.Lock()
		r.connections++
		r.mutex.Unlock()
	}
}

// check returns an error if the recorder received anything. The server accepts connections in
// their order: once it answers a request of check itself, all earlier connections are counted.
func (r *recorder) check(ctx context.Context, command []string) error {
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+r.address+checkPath, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if connections := r.connections - 1; connections > 0 {
		return fmt.Errorf("%s: connections to the cluster of the kubeconfig = %d, want 0; requests:\n%s",
			strings.Join(command, " "), connections, strings.Join(slices.Compact(slices.Sorted(slices.Values(r.requests))), "\n"))
	}
	return nil
}
