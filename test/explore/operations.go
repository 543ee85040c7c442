package explore

import (
	"context"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// operation is what a user or another client does. It depends on nothing but what the client reads.
type operation struct {
	name string
	do   func(context.Context, client.Client) error
}

func creating(name string, object func() client.Object) operation {
	return operation{name, func(ctx context.Context, c client.Client) error { return c.Create(ctx, object()) }}
}

// on does something with an object that exists.
func on[P client.Object](name, object string, do func(context.Context, client.Client, P) error) operation {
	return operation{name, func(ctx context.Context, c client.Client) error {
		found := reflect.New(reflect.TypeFor[P]().Elem()).Interface().(P) //nolint:forcetypeassert // The type is P.
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: object}, found); err != nil {
			return err
		}
		return do(ctx, c, found)
	}}
}

// changing changes an object with a patch like those of the operator. The change may set an earlier version.
func changing[P client.Object](name, object string, change func(P)) operation {
	return on(name, object, func(ctx context.Context, c client.Client, found P) error {
		before := copyOf(found)
		change(found)
		before.SetResourceVersion(found.GetResourceVersion())
		patch, err := children.LockedPatch(before, found)
		if err != nil {
			return err
		}
		return c.Patch(ctx, found, client.RawPatch(types.JSONPatchType, patch))
	})
}

func deleting[P client.Object](name, object string, preconditions client.Preconditions) operation {
	return on(name, object, func(ctx context.Context, c client.Client, found P) error { return c.Delete(ctx, found, preconditions) })
}

func editing(name string, change func(*echov1.EchoSpec)) operation {
	return changing("the user "+name, echoName, func(e *echov1.Echo) { change(&e.Spec) })
}

func newEcho() *echov1.Echo {
	return &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: echoName},
		Spec:       echov1.EchoSpec{Message: "one", StatusCode: 200, Replicas: 1, Port: 80},
	}
}

const (
	server = "echo-" + echoName
	shop   = "shop"
)

var (
	create = creating("the user creates the Echo", func() client.Object { return newEcho() })
	remove = deleting[*echov1.Echo]("the user deletes the Echo", echoName, client.Preconditions{})

	message = func(text string) operation {
		return editing("edits the message to "+text, func(s *echov1.EchoSpec) { s.Message = text })
	}
	scale = func(replicas int32) operation {
		return editing("scales", func(s *echov1.EchoSpec) { s.Replicas = replicas })
	}
	verify    = editing("has it verified", verifyFrom(echov1.VerifyFromCluster))
	everyNode = editing("has it verified from every node", verifyFrom(echov1.VerifyFromEveryNode))
	route     = editing("adds a route", func(s *echov1.EchoSpec) {
		s.Route = &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "public"}}, Scheme: "https", Paths: []echov1.Path{{Value: "/"}}}
	})
	plain    = editing("removes route and verify", func(s *echov1.EchoSpec) { s.Route, s.Verify = nil, nil })
	override = editing("overrides HTTPRoute shop", overrideShop)

	createOverride = creating(create.name, func() client.Object {
		echo := newEcho()
		overrideShop(&echo.Spec)
		return echo
	})
	deploy = creating("another client creates HTTPRoute shop", func() client.Object {
		return &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: shop}, Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "public"}}},
			Rules:           []gatewayv1.HTTPRouteRule{{}},
		}}
	})
	move = changing("another client changes HTTPRoute shop", shop, func(r *gatewayv1.HTTPRoute) {
		r.Spec.Hostnames = []gatewayv1.Hostname{"shop.example.com"}
	})
	uninstall = deleting[*gatewayv1.HTTPRoute]("another client deletes HTTPRoute shop", shop, client.Preconditions{})
	drift     = changing("another client changes the image", server, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "other"
	})
	unlabel = changing("another client removes the operator's label", server, func(d *appsv1.Deployment) {
		delete(d.Labels, children.ManagedByLabel)
	})
	unready = on("another client makes a pod fail its probe", server+"-1", func(ctx context.Context, c client.Client, pod *corev1.Pod) error {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		return c.Status().Update(ctx, pod)
	})
)

func verifyFrom(from string) func(*echov1.EchoSpec) {
	return func(s *echov1.EchoSpec) {
		s.Verify = &echov1.Verify{From: from, PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}
	}
}

func overrideShop(s *echov1.EchoSpec) {
	s.Route = &echov1.Route{Overrides: []echov1.RouteRef{{Name: shop}}, Scheme: "https", Paths: []echov1.Path{{Value: "/"}}}
}
