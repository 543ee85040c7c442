// Package crdcompat compares a CRD with a released one: whether valid Echoes stay valid and unchanged, and
// whether OLM v1 accepts the upgrade.
package crdcompat

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// Check returns the reasons for which the replacement of a CRD is incompatible, once for each field. It tries
// Echoes with the limits of each field, and so many random ones.
func Check(old, replacement *apiextensionsv1.CustomResourceDefinition, random uint64) ([]string, error) {
	problems, err := preflight(old, replacement)
	if err != nil {
		return nil, err
	}
	before, err := newServer(old)
	if err != nil {
		return nil, err
	}
	after, err := newServer(replacement)
	if err != nil {
		return append(problems, err.Error()), nil
	}
	manifests, err := validEchoes(values.Of(old), random)
	if err != nil {
		return nil, err
	}
	seen := map[string]string{}
	report := func(what, field, detail string) {
		if key := what + " " + field; seen[key] == "" {
			seen[key] = fmt.Sprintf("%s: %s: %s", field, what, detail)
		}
	}
	for name, manifest := range manifests {
		stored := before.decode(manifest)
		if errs := before.validate(stored); len(errs) > 0 {
			return nil, fmt.Errorf("the released CRD rejects the generated Echo %q: %w", name, errs.ToAggregate())
		}
		read := after.decode(stored)
		for _, err := range after.validate(read) {
			report("valid Echo is rejected", err.Field, err.Detail)
		}
		for _, change := range differences(stored, read) {
			report("stored Echo changes", change, name)
		}
		for _, change := range differences(stored, after.decode(manifest)) {
			report("same manifest creates another Echo", change, name)
		}
	}
	return append(problems, slices.Sorted(maps.Values(seen))...), nil
}

// differences returns the fields in which two objects differ.
func differences(before, after map[string]any) []string {
	r := &reporter{}
	cmp.Equal(before, after, cmp.Reporter(r))
	return r.fields
}

type reporter struct {
	path   cmp.Path
	fields []string
}

func (r *reporter) PushStep(step cmp.PathStep) { r.path = append(r.path, step) }
func (r *reporter) PopStep()                   { r.path = r.path[:len(r.path)-1] }
func (r *reporter) Report(result cmp.Result) {
	if result.Equal() {
		return
	}
	var names []string
	for _, step := range r.path {
		if index, isMap := step.(cmp.MapIndex); isMap {
			names = append(names, index.Key().String())
		}
	}
	r.fields = append(r.fields, strings.Join(names, "."))
}

// validEchoes returns manifests that the CRD accepts, by name.
func validEchoes(schema *values.Schema, random uint64) (map[string]map[string]any, error) {
	manifests := map[string]map[string]any{}
	for _, c := range schema.Cases() {
		if len(c.Rejection) == 0 {
			manifests[c.Name] = c.Echo.Object
		}
	}
	for seed := range random {
		echo := schema.Random(binary.BigEndian.AppendUint64(nil, seed))
		echo.SetGroupVersionKind(values.Kind)
		manifest, err := runtime.DefaultUnstructuredConverter.ToUnstructured(echo)
		if err != nil {
			return nil, err
		}
		delete(manifest, "status")
		manifests[fmt.Sprint("random ", seed)] = manifest
	}
	return manifests, nil
}
