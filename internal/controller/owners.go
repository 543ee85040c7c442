package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// echoOfChild returns the Echo to which an object with its name belongs. Its owner reference and
// its labels may be missing.
func echoOfChild(_ context.Context, child client.Object) []reconcile.Request {
	echo, found := ownerByName(child)
	if !found {
		return nil
	}
	return []reconcile.Request{{NamespacedName: echo}}
}

func ownerByName(child client.Object) (echo types.NamespacedName, found bool) {
	name, found := children.EchoName(child.GetName())
	return types.NamespacedName{Namespace: child.GetNamespace(), Name: name}, found
}
