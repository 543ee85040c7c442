package values

import (
	"math/rand"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill/bytesource"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// Random returns a valid Echo with the defaults of the API server. It prefers edge cases to likely
// values. The same data returns the same Echo. Eight bytes of data are enough.
func (s *Schema) Random(data []byte) *echov1.Echo {
	random := source{anyValue, rand.New(bytesource.New(data))} //nolint:gosec // It must be reproducible.
	names := []string{"hello", "a", "0", "a--b", "echo", "1-2-3", strings.Repeat("n", 56)}
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{
		Namespace: "op-demo", Name: names[random.Intn(len(names))], UID: "11111111-2222-3333-4444-555555555555",
	}}
	spec := random.value("", s.spec).(object)
	repair(spec, "")
	decode(spec, echo)
	return echo
}

// EveryField returns a spec that sets every field, where possible to another value than its default.
func (s *Schema) EveryField() echov1.EchoSpec {
	echo := &echov1.Echo{}
	decode(s.With("", s.Fields()[0].Another), echo)
	return echo.Spec
}

func decode(spec object, echo *echov1.Echo) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &echo.Spec); err != nil {
		panic(err) // The schema is generated from the type.
	}
}
