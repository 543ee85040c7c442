package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// BenchmarkWrites compares POST and PUT of the whole object with server-side apply, on one API
// server and one connection. See docs/adr/0001-post-and-put.md.
func BenchmarkWrites(b *testing.B) {
	c := startAPIServer(b)
	ctx := b.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "performance"}}
	if err := c.Create(ctx, namespace); err != nil {
		b.Fatal(err)
	}
	post := func(d *appsv1.Deployment) error { return c.Create(ctx, d) }
	put := func(d *appsv1.Deployment) error { return c.Update(ctx, d) }
	apply := func(d *appsv1.Deployment) error { return serverSideApply(ctx, c, d) }

	count := 0
	next := func() *appsv1.Deployment {
		count++
		return newDeployment(fmt.Sprint("e", count), "hello")
	}
	b.Run("create/POST", func(b *testing.B) {
		for b.Loop() {
			must(b, post(next()))
		}
	})
	b.Run("create/apply", func(b *testing.B) {
		for b.Loop() {
			must(b, apply(next()))
		}
	})

	b.Run("unchanged/compare", func(b *testing.B) {
		live := newDeployment("compared", "hello")
		for b.Loop() {
			desired := live.DeepCopy()
			children.Deployment(desired, newTestEcho("compared", "hello"), "http-echo")
			if !equality.Semantic.DeepEqual(live, desired) {
				b.Fatal("children.Deployment changed a Deployment in the desired state, want no change")
			}
		}
	})

	for name, write := range map[string]func(*appsv1.Deployment) error{"PUT": put, "apply": apply} {
		first := next()
		if name == "PUT" {
			must(b, post(first))
		} else {
			must(b, apply(first))
		}
		live := &appsv1.Deployment{}
		must(b, c.Get(ctx, client.ObjectKeyFromObject(first), live))
		edit := func(message string) *appsv1.Deployment {
			if name == "apply" {
				return newDeployment(live.Labels[children.EchoLabel], message)
			}
			children.Deployment(live, newTestEcho(live.Labels[children.EchoLabel], message), "http-echo")
			live.ManagedFields = nil
			return live
		}
		edits := 0
		b.Run("edit/"+name, func(b *testing.B) {
			for b.Loop() {
				edits++
				must(b, write(edit(fmt.Sprint("hello ", edits))))
			}
		})
		b.Run("unchanged/"+name, func(b *testing.B) {
			for b.Loop() {
				must(b, write(edit(fmt.Sprint("hello ", edits))))
			}
		})
	}
}

func startAPIServer(b *testing.B) client.Client {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		b.Fatal("KUBEBUILDER_ASSETS is not set: run make bench-writes")
	}
	environment := &envtest.Environment{UseExistingCluster: new(false)}
	config, err := environment.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { must(b, environment.Stop()) })
	config = rest.CopyConfig(config)
	config.QPS = -1
	scheme := runtime.NewScheme()
	must(b, clientgoscheme.AddToScheme(scheme))
	must(b, echov1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(b, err)
	return c
}

func newTestEcho(name, message string) *echov1.Echo {
	return &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "performance", Name: name, UID: "1"},
		Spec:       echov1.EchoSpec{Message: message, Replicas: 1, Port: 80, TargetPort: 5678},
	}
}

func newDeployment(name, message string) *appsv1.Deployment {
	e := newTestEcho(name, message)
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: children.Name(e)},
	}
	children.Deployment(d, e, "http-echo")
	return d
}

func serverSideApply(ctx context.Context, c client.Client, d *appsv1.Deployment) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		return err
	}
	delete(content, "status")
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}),
		client.FieldOwner("echo-operator"), client.ForceOwnership)
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
