// Package olm contains what the suites of both OLMs share: the catalog that they install from, and the
// objects that OLM has installed.
package olm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

const namePrefix = "echo-operator.v"

// Image is the name of the images of the catalog, without the tag.
const Image = "ghcr.io/kkloud-io/echo-operator-catalog"

// Catalog contains the versions of the catalog that hack/catalog/test-catalogs.sh builds.
type Catalog struct {
	// Predecessor is the version before Tree, which is the version of this tree.
	Predecessor, Tree string
	// Broken follows Tree and never becomes ready. Fixed replaces it.
	Broken, Fixed string
	// NextMajor is the newest version of the next major version.
	NextMajor string

	major   uint64
	bundles map[string]declcfg.Bundle
}

// Read reads the catalog in bin of the repository.
func Read(root string) (Catalog, error) {
	c := Catalog{bundles: map[string]declcfg.Bundle{}}
	config, err := declcfg.LoadFS(context.Background(), os.DirFS(root+"/bin/catalogs/next"))
	if err != nil {
		return c, fmt.Errorf("run `make test-catalogs`: %w", err)
	}
	for _, bundle := range config.Bundles {
		c.bundles[strings.TrimPrefix(bundle.Name, namePrefix)] = bundle
	}
	channels := map[string][]string{}
	for _, channel := range config.Channels {
		for _, entry := range channel.Entries {
			channels[channel.Name] = append(channels[channel.Name], strings.TrimPrefix(entry.Name, namePrefix))
		}
	}
	fixed := channels["fixed"]
	c.Tree, c.Broken, c.Fixed = fixed[0], fixed[1], fixed[2]
	c.major = semver.MustParse(c.Tree).Major
	c.Predecessor = channels[c.Channel("candidate")][0]
	c.NextMajor = channels[c.NextChannel("stable")][1]
	return c, nil
}

// Channel returns the channel of the major version of this tree.
func (c Catalog) Channel(stability string) string { return fmt.Sprintf("%s-v%d", stability, c.major) }

// NextChannel returns the channel of the next major version.
func (c Catalog) NextChannel(stability string) string {
	return fmt.Sprintf("%s-v%d", stability, c.major+1)
}

// RelatedImages returns all images that a version needs, including its bundle.
func (c Catalog) RelatedImages(version string) (images []string) {
	for _, related := range c.bundles[version].RelatedImages {
		images = append(images, related.Image)
	}
	return images
}

// CSV returns the name of the ClusterServiceVersion of a version.
func CSV(version string) string { return namePrefix + version }

var (
	namespaced = []schema.GroupVersionKind{
		appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("Service"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"), rbacv1.SchemeGroupVersion.WithKind("Role"),
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
	}
	clusterScoped = []schema.GroupVersionKind{
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
		apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
	}
)

// Objects lists the objects with a label that OLM has installed for an operator in a namespace, each as "<kind> <name>".
func Objects(namespace, label, value string) (objects []string, err error) {
	for i, kind := range append(slices.Clone(clusterScoped), namespaced...) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		options := []client.ListOption{client.MatchingLabels{label: value}}
		if i >= len(clusterScoped) {
			options = append(options, client.InNamespace(namespace))
		}
		if err := cluster.Client().List(context.Background(), list, options...); err != nil {
			return nil, err
		}
		for _, item := range list.Items {
			if label == "olm.owner" && i < len(clusterScoped) && item.Labels["olm.owner.namespace"] != namespace {
				continue // Another spec may have installed the same version.
			}
			objects = append(objects, kind.Kind+" "+item.Name)
		}
	}
	slices.Sort(objects)
	return objects, nil
}
