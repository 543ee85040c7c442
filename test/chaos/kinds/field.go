package kinds

import (
	"fmt"
	"strings"
)

// Step leads from a value to one inside it: the name of a field, the key of a map entry, or an
// index of a list.
type Step struct {
	// Name is the name or the key.
	Name string
	// IsKey is true for the key of a map entry.
	IsKey bool
	// Index is the index of an item if Name is empty.
	Index int
}

// Field is a path to a field of an object.
type Field []Step

// Append returns the path with more steps. It does not change the receiver.
func (f Field) Append(steps ...Step) Field {
	return append(append(Field{}, f...), steps...)
}

// String returns the path in the notation of the API server: spec.ports[0].port,
// metadata.labels[app.kubernetes.io/name].
func (f Field) String() string {
	var text strings.Builder
	for i, step := range f {
		switch {
		case step.Name == "":
			fmt.Fprintf(&text, "[%d]", step.Index)
		case step.IsKey:
			fmt.Fprintf(&text, "[%s]", step.Name)
		case i == 0:
			text.WriteString(step.Name)
		default:
			text.WriteString("." + step.Name)
		}
	}
	return text.String()
}
