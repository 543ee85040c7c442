package crdcompat

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// matches returns strings that match a pattern: with each of its alternatives, and with few and many
// repetitions.
func matches(pattern string) []string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
	parsed, compiled := parsed.Simplify(), regexp.MustCompile(pattern)
	var texts []string
	for choice := range 6 {
		text := match(parsed, choice)
		if compiled.MatchString(text) && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}

func match(e *syntax.Regexp, choice int) string {
	switch e.Op { //nolint:exhaustive // other operations consist of subexpressions or match no text
	case syntax.OpLiteral:
		return string(e.Rune)
	case syntax.OpCharClass:
		return string(e.Rune[choice*2%len(e.Rune)])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpAlternate:
		return match(e.Sub[choice%len(e.Sub)], choice)
	case syntax.OpQuest:
		return strings.Repeat(match(e.Sub[0], choice), choice%2)
	case syntax.OpStar:
		return strings.Repeat(match(e.Sub[0], choice), choice)
	case syntax.OpPlus:
		return strings.Repeat(match(e.Sub[0], choice), choice+1)
	}
	var text strings.Builder
	for _, part := range e.Sub {
		text.WriteString(match(part, choice))
	}
	return text.String()
}
