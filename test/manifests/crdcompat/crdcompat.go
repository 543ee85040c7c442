// Package crdgate compares a CRD with a released one: is everything that was valid still
// valid, does it mean the same, and will OLM v1 agree to the upgrade?
package crdcompat

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Corpus is what stands for all valid objects of a CRD.
type Corpus struct {
	crd      *apiextensionsv1.CustomResourceDefinition
	versions map[string]valid
}

// valid are valid objects of one version, and the server that says so.
type valid struct {
	server  *server
	objects []map[string]any
}

// NewCorpus makes objects from the schemas of a CRD, and adds the seeds, for what no schema
// tells. It fails where the objects do not cover every field; refused are the fields that
// the schemas have and their rules refuse, whatever the value.
func NewCorpus(crd *apiextensionsv1.CustomResourceDefinition, seeds []map[string]any, refused []string) (Corpus, error) {
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
		objects, err := generate(server, version.Schema.OpenAPIV3Schema, base, seeds, refused)
		if err != nil {
			return corpus, fmt.Errorf("%s: %w", version.Name, err)
		}
		corpus.versions[version.Name] = valid{server, objects}
	}
	return corpus, nil
}

// Check returns what stands against another CRD in the place of the corpus' own.
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

// compare returns, once for each field, what the new server does to objects of the old one.
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
			report("a stored object reads back different", field, change)
		}
		for _, err := range after.refuse(read) {
			report("an object that was valid is refused", err.Field, err.Detail)
		}
		for field, change := range differences("", stored, after.decode(manifest)) {
			report("the same manifest makes another object", field, change)
		}
	}
	return slices.Sorted(maps.Values(seen))
}

// differences returns the fields in which two values differ, and how.
func differences(path string, before, after any) map[string]string {
	left, isMap := before.(map[string]any)
	right, isToo := after.(map[string]any)
	if !isMap || !isToo {
		if reflect.DeepEqual(before, after) {
			return nil
		}
		return map[string]string{path: short(before) + " became " + short(after)}
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
			found[field] = short(value) + " is gone"
		case !had:
			found[field] = short(replaced) + " was added"
		default:
			maps.Copy(found, differences(field, value, replaced))
		}
	}
	return found
}
