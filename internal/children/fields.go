package children

import (
	"slices"
	"strings"
)

// DeterminesResponse reports whether the response to a client depends on a field, for example
// "spec.template.spec.containers[echo].args", or on a part of it.
func (k Kind) DeterminesResponse(field string) bool {
	return slices.ContainsFunc(k.ResponseFields, func(response string) bool {
		return within(field, response) || within(response, field)
	})
}

// within reports whether the field is the parent or a part of it.
func within(field, parent string) bool {
	rest, found := strings.CutPrefix(field, parent)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// EchoName returns the name of the Echo to which a child with this name belongs, if any.
func EchoName(childName string) (string, bool) {
	if name, found := strings.CutPrefix(childName, namePrefix); found {
		return name, true
	}
	return strings.CutPrefix(childName, verifierPrefix)
}
