package explore

import (
	"reflect"
	"regexp"
	"unsafe"

	"github.com/davecgh/go-spew/spew"
	"github.com/huandu/go-clone"

	"github.com/kkloud-io/echo-operator/internal/controller"
)

// remembered are the fields of the reconciler that a crash loses. Each of its reconciliations may change them.
var remembered = []string{"memories", "versions"}

// field returns a field that is not exported.
func field(pointer any, name string) reflect.Value {
	v := reflect.ValueOf(pointer).Elem().FieldByName(name)
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() //nolint:gosec // The value has this type.
}

// copyOperator returns a reconciler with a copy of what it remembers, or with none.
func copyOperator(r *controller.EchoReconciler, withMemory bool) *controller.EchoReconciler {
	c := &controller.EchoReconciler{
		Client: r.Client, APIReader: r.APIReader, Recorder: r.Recorder, ServerImage: r.ServerImage, VerifierImage: r.VerifierImage,
		AllowEveryNodeVerification: r.AllowEveryNodeVerification, Optional: r.Optional, Metrics: r.Metrics,
	}
	if withMemory {
		for _, name := range remembered {
			field(c, name).Set(reflect.ValueOf(clone.Clone(field(r, name).Interface())))
		}
	}
	return c
}

var printer = spew.ConfigState{SortKeys: true, DisablePointerAddresses: true, DisableCapacities: true}

// unused are the times that only bound the memory.
var unused = regexp.MustCompile(`(used|swept): \(time.Time\).*`)

// describe returns what the operator remembers.
func describe(r *controller.EchoReconciler) (text string) {
	for _, name := range remembered {
		text += printer.Sdump(field(r, name).Addr().Interface())
	}
	return unused.ReplaceAllString(text, "")
}
