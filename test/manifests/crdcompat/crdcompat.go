// Package crdcompat compares a CRD with a released one: whether valid objects stay valid and unchanged,
// and whether OLM v1 accepts the upgrade.
package crdcompat

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Corpus contains sample objects that represent all valid objects of a CRD.
type Corpus struct {
	crd      *apiextensionsv1.CustomResourceDefinition
	versions map[string]valid
}

// valid contains valid objects of one version, and the server that accepts them.
type valid struct {
	server  *server
	objects []map[string]any
}

// NewCorpus generates objects from the schemas of a CRD and adds the seeds, which cover rules that are
// not part of a schema. It fails if the objects do not cover every field. rejected lists the fields that
// the schemas contain but their rules reject with every value.
func NewCorpus(crd *apiextensionsv1.CustomResourceDefinition, seeds []map[string]any, rejected []string) (Corpus, error) {
	corpus := Corpus{crd: crd, versions: map[string]valid{}}
	for _, version := range crd.Spec.Versions {
		server, err := newServer(crd, version.Name)
		if err != nil {
			return corpus, fmt.Errorf("%s: %w", version.Name, err)
		}
		base := map[string]any{
			"apiVersion": crd.Spec.Group + "/" + version.Name,
			"kind":       crd.Spec.Names.Kind,
			"metadata":   map[string]any{"name": "sample"},
		}
		objects, err := generate(server, version.Schema.OpenAPIV3Schema, base, seeds, rejected)
		if err != nil {
			return corpus, fmt.Errorf("%s: %w", version.Name, err)
		}
		corpus.versions[version.Name] = valid{server, objects}
	}
	return corpus, nil
}

// Check returns the incompatibilities of a CRD that replaces the one of the corpus.
func (c Corpus) Check(replacement *apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	problems, err := preflight(c.crd, replacement)
	if err != nil {
		return nil, err
	}
	for version, valid := range c.versions {
		after, err := newServer(replacement, version)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", version, err))
			continue
		}
		problems = append(problems, compare(valid.server, after, valid.objects)...)
	}
	return problems, nil
}

// compare returns how the new server changes or rejects objects of the old one, once for each field.
func compare(before, after *server, objects []map[string]any) []string {
	seen := map[string]string{}
	report := func(what, field, detail string) {
		if key := what + " " + field; seen[key] == "" {
			seen[key] = fmt.Sprintf("%s: %s: %s", field, what, detail)
		}
	}
	for _, manifest := range objects {
		stored := before.decode(manifest)
		read := after.decode(stored)
		for field, change := range differences("", stored, read) {
			report("stored object changes", field, change)
		}
		for _, err := range after.validate(read) {
			report("valid object is rejected", err.Field, err.Detail)
		}
		for field, change := range differences("", stored, after.decode(manifest)) {
			report("same manifest creates another object", field, change)
		}
	}
	return slices.Sorted(maps.Values(seen))
}

// differences returns the fields in which two values differ, and the difference.
func differences(path string, before, after any) map[string]string {
	left, isMap := before.(map[string]any)
	right, isToo := after.(map[string]any)
	if !isMap || !isToo {
		if reflect.DeepEqual(before, after) {
			return nil
		}
		return map[string]string{path: short(before) + " changed to " + short(after)}
	}
	found := map[string]string{}
	names := maps.Clone(left)
	maps.Copy(names, right)
	for name := range names {
		value, had := left[name]
		replaced, has := right[name]
		field := strings.TrimPrefix(path+"."+name, ".")
		switch {
		case !has:
			found[field] = short(value) + " was removed"
		case !had:
			found[field] = short(replaced) + " was added"
		default:
			maps.Copy(found, differences(field, value, replaced))
		}
	}
	return found
}
