package values

import (
	"fmt"
	"maps"
	"math"
	"math/rand"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// source decides which of the valid values of a schema a value is.
type source struct {
	mode mode
	*rand.Rand
}

type mode int

const (
	minimum mode = iota
	maximum
	another
	anyValue // It needs a Rand.
)

// value returns a value that satisfies the keywords of the schema. A rule may reject it: see repair.
func (s source) value(path string, schema *props) any {
	if choices := choices[path]; len(choices) > 0 {
		return choices[s.index(len(choices))]
	}
	switch {
	case len(schema.Enum) > 0:
		value := decoded(schema.Enum[s.index(len(schema.Enum))].Raw)
		if s.mode == another && schema.Default != nil && value == decoded(schema.Default.Raw) {
			return decoded(schema.Enum[0].Raw)
		}
		return value
	case schema.Type == "string" && schema.Pattern != "":
		return s.patterned(schema)
	case schema.Type == "string":
		low, high := limits(schema.MinLength, schema.MaxLength, 300)
		return s.text(low, high)
	case schema.Type == "integer":
		return s.integer(schema)
	case schema.Type == "array":
		low, high := limits(schema.MinItems, schema.MaxItems, 3)
		return s.list(path, schema, s.length(low, high))
	case schema.AdditionalProperties != nil:
		low, high := limits(schema.MinProperties, schema.MaxProperties, 3)
		if s.mode == maximum && isResources(path) {
			high = 3 // Pods without requests of the same size reject other resources than the first three.
		}
		return s.entries(path, schema, s.length(low, high))
	case schema.Type == "boolean":
		return s.index(2) == 1
	}
	fields := object{}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property, at := schema.Properties[name], join(path, name)
		choices, found := choices[at]
		switch {
		case found && len(choices) == 0:
		case slices.Contains(schema.Required, name) || at == "message" && s.mode == minimum || s.mode != minimum && (s.mode != anyValue || s.Intn(2) == 0):
			fields[name] = s.value(at, &property)
		case s.mode == anyValue && property.Default != nil:
			fields[name] = decoded(property.Default.Raw)
		}
	}
	return fields
}

// index returns the index of one of so many values: the first, the last, the second, or any.
func (s source) index(count int) int {
	switch s.mode {
	case minimum:
		return 0
	case maximum:
		return count - 1
	case another:
		return min(1, count-1)
	case anyValue:
	}
	return s.Intn(count)
}

// length returns the length of a list or a map.
func (s source) length(low, high int) int {
	switch s.mode {
	case minimum:
		return low
	case maximum:
		return high
	case another:
		return min(max(low, 2), high)
	case anyValue:
	}
	if s.Intn(10) == 0 {
		return high
	}
	return min(low+s.Intn(4), high)
}

func (s source) integer(schema *props) int64 {
	low, high := int64(-1), int64(1<<62)
	if schema.Format == "int32" {
		high = math.MaxInt32
	}
	if schema.Minimum != nil {
		low = int64(*schema.Minimum)
	}
	if schema.Maximum != nil {
		high = int64(*schema.Maximum)
	}
	switch s.mode {
	case minimum:
		return low
	case maximum:
		return high
	case another:
		return low + (high-low)/2
	case anyValue:
	}
	// Ports and status codes that the operator treats differently are among the edge cases.
	edge := []int64{low, high, 80, 204, 205, 301, 304, 401, 405, 407, 1023, 1024, low + s.Int63n(high-low+1)}[s.Intn(13)]
	return max(low, min(edge, high))
}

// patterned returns a string that matches the pattern and has a valid length.
func (s source) patterned(schema *props) string {
	low, high := limits(schema.MinLength, schema.MaxLength, 300)
	if s.mode == anyValue && s.Intn(4) == 0 {
		s.mode = mode(s.Intn(2))
	}
	text := s.matching(schema.Pattern, high, false)
	if length := utf8.RuneCountInString(text); low <= length && length <= high && regexp.MustCompile(schema.Pattern).MatchString(text) {
		return text
	}
	return source{mode: minimum}.matching(schema.Pattern, high, false)
}

// list returns a list of so many items, which differ where the schema requires that.
func (s source) list(path string, schema *props, length int) []any {
	items := []any{}
	for range length {
		items = append(items, s.value(path+".*", schema.Items.Schema))
	}
	for _, key := range schema.XListMapKeys {
		for _, item := range items {
			if fields := item.(object); fields[key] == nil || fields[key] == "" {
				fields[key] = s.value(path+".*."+key, new(schema.Items.Schema.Properties[key]))
			}
		}
		makeDistinct(items, key)
	}
	if choices := schema.Items.Schema.Enum; len(choices) > 0 { // Such lists are sets.
		for i, start := 0, s.index(len(choices)); i < length; i++ {
			items[i] = decoded(choices[(start+i)%len(choices)].Raw)
		}
	}
	return items
}

// makeDistinct changes the texts at the key, if any of them are equal, regardless of upper and lower case.
func makeDistinct(items []any, key string) {
	seen := map[string]bool{}
	for _, item := range items {
		text, _ := item.(object)[key].(string)
		seen[strings.ToLower(text)] = true
	}
	for i := 0; len(seen) < len(items) && i < len(items); i++ {
		text, _ := items[i].(object)[key].(string)
		items[i].(object)[key] = string(rune('a'+i)) + text[min(1, len(text)):]
	}
}

// entries returns a map with so many entries.
func (s source) entries(path string, schema *props, length int) object {
	entries := object{}
	for i, known := 0, keys(path); len(entries) < length; i++ {
		key := known[i%len(known)]
		if s.mode == anyValue {
			key = known[s.Intn(len(known))]
			length-- // Equal keys make the map smaller.
		} else if i >= len(known) || s.mode == maximum && len(known) < length {
			key = fmt.Sprintf("%s/%02d%s", strings.Repeat("p", 253), i, strings.Repeat("k", 61))
		}
		entries[key] = s.value(path+".*", schema.AdditionalProperties.Schema)
	}
	return entries
}

// text returns a string without a pattern. Random ones have edge cases of lengths, and strings with a
// special meaning in HTML, for the kubelet, in Go templates, in terminals or in logs.
func (s source) text(low, high int) string {
	switch s.mode {
	case minimum:
		return strings.Repeat("a", low)
	case maximum:
		return strings.Repeat("🦜", high)
	case another:
		return shortened("costs $5 & <b>\"$(HOME)\"</b>\n  é", high)
	case anyValue:
	}
	text := []rune(strings.Repeat("m", low))
	for range s.Intn(12) {
		piece := []rune([]string{
			"", "a", " ", "\n", "\r\n", "\t", "\x00", "\x1b[31m", "\u202e", "\ufeff", "\u2028", "é", "😀",
			"<", "</title>", "</main>", "<script>alert(1)</script>", "<!--", "-->", "]]>", "&amp;", "&#0;", `"`, "'", "`", `\`, "%s%n",
			"{{.}}", "$", "$$", "$(HOME)", "$(ECHO_TEXT)", "$(", "level=error", string(s.Int31n(0xD800)),
		}[s.Intn(35)])
		if s.Intn(20) == 0 {
			piece = slices.Repeat(piece, high/max(1, len(piece)))
		}
		text = append(text, piece...)
	}
	return string(text[:min(len(text), high)])
}

// limits returns the limits of a length. Without an upper one, it is so many more than the lower one.
func limits(low, high *int64, more int) (least, most int) {
	if low != nil {
		least = int(*low)
	}
	if high != nil {
		return least, int(*high)
	}
	return least, least + more
}
