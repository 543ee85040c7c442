package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// The environment variables that OLM and the manifests set.
const (
	// namespacesVariable lists the namespaces to watch, separated by commas; empty means all.
	namespacesVariable = "WATCH_NAMESPACE"
	// serverImageVariable names the default server image. OLM reads variables of this
	// prefix to know which images a disconnected cluster has to mirror.
	serverImageVariable = "RELATED_IMAGE_HTTP_ECHO"
	// conditionVariable names the OperatorCondition by which OLM is told when not to
	// upgrade. OLM sets it; OLM v1, which knows none, does not.
	conditionVariable = "OPERATOR_CONDITION_NAME"
	// ownNamespaceVariable is the operator's own namespace, which has the lease of its leader.
	ownNamespaceVariable = "POD_NAMESPACE"
)

// The flags that take an address.
const (
	metricsFlag = "metrics-bind-address"
	healthFlag  = "health-probe-bind-address"
	pprofFlag   = "pprof-bind-address"
)

// settings is what can be set from outside.
type settings struct {
	namespaces              []string
	serverImage             string
	ownNamespace            string
	operatorCondition       *types.NamespacedName
	metricsAddress          string
	healthAddress           string
	pprofAddress            string
	leaderElect             bool
	maxConcurrentReconciles int
	log                     zap.Options
}

// parseSettings reads flags and environment. An error names the setting and says what is
// allowed.
func parseSettings(args []string, getenv func(string) string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("echo-operator", flag.ContinueOnError)
	flags.StringVar(&s.metricsAddress, metricsFlag, ":8443",
		"`address` of the metrics endpoint, which speaks HTTPS; 0 turns it off")
	flags.StringVar(&s.healthAddress, healthFlag, ":8081",
		"`address` of /healthz and /readyz; 0 turns them off")
	flags.StringVar(&s.pprofAddress, pprofFlag, "0",
		"`address` of the profiling endpoint; 0 turns it off")
	flags.BoolVar(&s.leaderElect, "leader-elect", false,
		"let one replica at a time act; needed with more than one replica")
	flags.IntVar(&s.maxConcurrentReconciles, "max-concurrent-reconciles", 8,
		"the `number` of Echoes reconciled at a time, 1 or more")
	s.log.BindFlags(flags)

	// The package would print its whole usage after a wrong flag.
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(os.Stdout)
			flags.PrintDefaults()
			return s, err
		}
		return s, fmt.Errorf("%w: see --help", err)
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: only flags are allowed, see --help", flags.Arg(0))
	}
	for _, name := range []string{metricsFlag, healthFlag, pprofFlag} {
		if err := checkAddress(name, flags.Lookup(name).Value.String()); err != nil {
			return s, err
		}
	}
	if s.maxConcurrentReconciles < 1 {
		return s, fmt.Errorf("--max-concurrent-reconciles is %d: it must be 1 or more", s.maxConcurrentReconciles)
	}
	s.serverImage = getenv(serverImageVariable)
	if s.serverImage == "" || strings.ContainsFunc(s.serverImage, unicode.IsSpace) {
		return s, fmt.Errorf("%s is %q: it must name the default server image, as in ghcr.io/kkloud-io/echo-operator-http-echo:1.0.0",
			serverImageVariable, s.serverImage)
	}
	s.ownNamespace = getenv(ownNamespaceVariable)
	if name := getenv(conditionVariable); name != "" {
		s.operatorCondition = &types.NamespacedName{Namespace: s.ownNamespace, Name: name}
		if s.ownNamespace == "" {
			return s, fmt.Errorf("%s is empty: it must be the operator's own namespace, as %s is set", ownNamespaceVariable, conditionVariable)
		}
	}
	namespaces, err := parseNamespaces(getenv(namespacesVariable))
	s.namespaces = namespaces
	return s, err
}

func checkAddress(flagName, address string) error {
	if address == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("--%s is %q: it must be an address with a port, as in :8080, or 0", flagName, address)
	}
	return nil
}

func parseNamespaces(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	namespaces := strings.Split(list, ",")
	for i, namespace := range namespaces {
		namespaces[i] = strings.TrimSpace(namespace)
		if len(validation.ValidateNamespaceName(namespaces[i], false)) > 0 {
			return nil, fmt.Errorf("%s has %q: it must be empty (all namespaces), one namespace, or several separated by commas",
				namespacesVariable, namespaces[i])
		}
	}
	return namespaces, nil
}
