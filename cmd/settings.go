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
	// namespacesVariable contains the namespaces to watch, separated by commas. Empty means all.
	namespacesVariable = "WATCH_NAMESPACE"
	// serverImageVariable contains the default server image. OLM reads variables with this
	// prefix to find the images that a disconnected cluster has to mirror.
	serverImageVariable = "RELATED_IMAGE_HTTP_ECHO"
	// verifierImageVariable contains the image of verifiers.
	verifierImageVariable = "RELATED_IMAGE_VERIFIER"
	// everyNodeVariable allows verifiers on every node if it is "true". A Subscription of OLM can set
	// variables, but no flags.
	everyNodeVariable = "ALLOW_EVERY_NODE_VERIFICATION"
	// conditionVariable contains the name of the OperatorCondition that makes OLM v0 wait with
	// an upgrade. OLM v0 sets it. OLM v1 has no OperatorConditions and does not set it.
	conditionVariable = "OPERATOR_CONDITION_NAME"
	// ownNamespaceVariable contains the operator's own namespace, where the leader keeps its lease.
	ownNamespaceVariable = "POD_NAMESPACE"
)

// Flags whose value is an address.
const (
	metricsFlag = "metrics-bind-address"
	healthFlag  = "health-probe-bind-address"
	pprofFlag   = "pprof-bind-address"
)

// settings are the values of the flags and environment variables.
type settings struct {
	namespaces              []string
	serverImage             string
	verifierImage           string
	allowEveryNode          bool
	ownNamespace            string
	operatorCondition       *types.NamespacedName
	metricsAddress          string
	healthAddress           string
	pprofAddress            string
	leaderElect             bool
	maxConcurrentReconciles int
	log                     zap.Options
}

// parseSettings reads the flags and the environment. An error names the setting and the
// allowed values.
func parseSettings(args []string, getenv func(string) string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("echo-operator", flag.ContinueOnError)
	flags.StringVar(&s.metricsAddress, metricsFlag, ":8443",
		"`address` of the metrics endpoint (HTTPS); 0 disables it")
	flags.StringVar(&s.healthAddress, healthFlag, ":8081",
		"`address` of /healthz and /readyz; 0 disables them")
	flags.StringVar(&s.pprofAddress, pprofFlag, "0",
		"`address` of the pprof endpoint; 0 disables it")
	flags.BoolVar(&s.leaderElect, "leader-elect", false,
		"enable leader election; required with more than one replica")
	flags.IntVar(&s.maxConcurrentReconciles, "max-concurrent-reconciles", 8,
		"maximum `number` of Echoes of a namespace that are reconciled concurrently, at least 1")
	flags.BoolVar(&s.allowEveryNode, "allow-every-node-verification", false,
		"allow Echoes that are verified by a pod on every node; "+everyNodeVariable+"=true allows them, too")
	s.log.BindFlags(flags)

	// Package flag would print the usage of every flag after an invalid flag.
	flags.SetOutput(io.Discard)
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
		return s, fmt.Errorf("--max-concurrent-reconciles is %d: it must be at least 1", s.maxConcurrentReconciles)
	}
	s.serverImage, s.verifierImage = getenv(serverImageVariable), getenv(verifierImageVariable)
	for _, image := range []struct{ variable, value, description string }{
		{serverImageVariable, s.serverImage, "the default server image, for example ghcr.io/kkloud-io/echo-operator-http-echo:v1.0.0"},
		{verifierImageVariable, s.verifierImage, "the image of verifiers, for example ghcr.io/kkloud-io/echo-operator-verifier:v1.0.0"},
	} {
		if image.value == "" || strings.ContainsFunc(image.value, unicode.IsSpace) {
			return s, fmt.Errorf("%s is %q: it must be %s", image.variable, image.value, image.description)
		}
	}
	switch value := getenv(everyNodeVariable); value {
	case "true":
		s.allowEveryNode = true
	case "", "false":
	default:
		return s, fmt.Errorf("%s is %q: it must be true, false or empty", everyNodeVariable, value)
	}
	s.ownNamespace = getenv(ownNamespaceVariable)
	if name := getenv(conditionVariable); name != "" {
		s.operatorCondition = &types.NamespacedName{Namespace: s.ownNamespace, Name: name}
		if s.ownNamespace == "" {
			return s, fmt.Errorf("%s is empty: it must be the operator's own namespace because %s is set", ownNamespaceVariable, conditionVariable)
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
		return fmt.Errorf("--%s is %q: it must be an address with a port, for example :8080, or 0", flagName, address)
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
			return nil, fmt.Errorf("%s contains %q: it must be empty (all namespaces), one namespace, or several namespaces separated by commas",
				namespacesVariable, namespaces[i])
		}
	}
	return namespaces, nil
}
