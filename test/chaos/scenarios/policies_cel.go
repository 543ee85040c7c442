package scenarios

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// literal returns a JSON value in the Common Expression Language (CEL), in which the elements of a
// list or a map must have one type, which dyn hides.
func literal(value any) string {
	var parts []string
	switch v := value.(type) {
	case string:
		return strconv.Quote(v)
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, fmt.Sprintf("%q: dyn(%s)", key, literal(v[key])))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, item := range v {
			parts = append(parts, fmt.Sprintf("dyn(%s)", literal(item)))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return fmt.Sprint(v)
	}
}

// steps returns the CEL expression of a field of the object, and a condition that is true if the
// field exists.
func steps(field kinds.Field) (expression, exists string) {
	expression = "object"
	var conditions []string
	for _, step := range field {
		switch {
		case step.Name == "":
			conditions = append(conditions, fmt.Sprintf("size(%s) > %d", expression, step.Index))
			expression += fmt.Sprintf("[%d]", step.Index)
		case step.IsKey:
			conditions = append(conditions, fmt.Sprintf("%q in %s", step.Name, expression))
			expression += fmt.Sprintf("[%q]", step.Name)
		default:
			expression += "." + step.Name
			conditions = append(conditions, "has("+expression+")")
		}
	}
	return expression, strings.Join(conditions, " && ")
}

// mutation returns the CEL expression of a JSON patch that makes the change, and no patch of an
// object to which it does not apply.
func mutation(c kinds.Change) string {
	operation := map[kinds.Action]string{kinds.Add: "add", kinds.Set: "replace", kinds.Remove: "remove"}[c.Action]
	applies := c.Field
	if c.Action == kinds.Add {
		applies = c.Field[:len(c.Field)-1]
	}
	list, condition := steps(applies)
	if c.Items > 0 { // Without this condition it would add another item at every write.
		condition += fmt.Sprintf(" && size(%s) == %d", list, c.Items)
	}
	value := ""
	if c.Action != kinds.Remove {
		value = ", value: " + literal(c.Value)
	}
	return fmt.Sprintf("%s ? [JSONPatch{op: %q, path: %q%s}] : []", condition, operation, c.Field.Pointer(), value)
}

// jsonPatch returns the CEL expression of a JSON patch. Its arguments are an operation, a path and the
// CEL expression of a value, for each operation.
func jsonPatch(operations ...string) string {
	var all []string
	for o := range slices.Chunk(operations, 3) {
		value := ""
		if o[2] != "" {
			value = ", value: " + o[2]
		}
		all = append(all, fmt.Sprintf("JSONPatch{op: %q, path: %q%s}", o[0], o[1], value))
	}
	return "[" + strings.Join(all, ", ") + "]"
}
