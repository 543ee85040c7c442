package values

import (
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// walk decides which of the strings that a pattern matches match returns.
type walk struct {
	// times returns how often to repeat a part: at most high times, or without limit if high is -1.
	times func(low, high int) int
	// pick returns one of so many alternatives or characters.
	pick func(count int) int
	// letter is the preferred character of a class that contains it.
	letter rune
}

func (w walk) match(e *syntax.Regexp) string {
	repeat := func(low, high int) string {
		var text strings.Builder
		for range w.times(low, high) {
			text.WriteString(w.match(e.Sub[0]))
		}
		return text.String()
	}
	switch e.Op { //nolint:exhaustive // Other operations consist of subexpressions or match no text.
	case syntax.OpLiteral:
		return string(e.Rune)
	case syntax.OpCharClass:
		return string(w.character(e.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpAlternate:
		return w.match(e.Sub[w.pick(len(e.Sub))])
	case syntax.OpQuest:
		return repeat(0, 1)
	case syntax.OpStar:
		return repeat(0, -1)
	case syntax.OpPlus:
		return repeat(1, -1)
	case syntax.OpRepeat:
		return repeat(e.Min, e.Max)
	}
	var text strings.Builder
	for _, part := range e.Sub {
		text.WriteString(w.match(part))
	}
	return text.String()
}

// character returns a character of a class, which is a list of ranges.
func (w walk) character(ranges []rune) rune {
	count := 0
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i] <= w.letter && w.letter <= ranges[i+1] {
			return w.letter
		}
		count += int(ranges[i+1]-ranges[i]) + 1
	}
	index := w.pick(count)
	for i := 0; ; i += 2 {
		if length := int(ranges[i+1]-ranges[i]) + 1; index >= length {
			index -= length
			continue
		}
		return ranges[i] + rune(index) //nolint:gosec // The index is within a range of characters.
	}
}

// matching returns a string that matches the pattern: for Maximum the longest one within the limit,
// or else the first that is longer.
func (s source) matching(pattern string, limit int, beyond bool) string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		panic(err) // The API server validates patterns.
	}
	w := walk{letter: 'a', pick: func(int) int { return 0 }}
	switch s.mode {
	case minimum:
		w.times = func(low, _ int) int { return low }
	case another:
		w.letter = 'b'
		w.times = func(low, high int) int {
			if high < 0 {
				return max(low, 2)
			}
			return high
		}
	case anyValue:
		w.letter, w.pick = -1, s.Intn
		w.times = func(low, high int) int {
			if high < 0 {
				high = low + 8
			}
			return low + s.Intn(high-low+1)
		}
	case maximum:
		return longest(w, parsed, limit, beyond)
	}
	return w.match(parsed)
}

// longest repeats the first part that has no limit as often as the limit of the string permits, or
// once more.
func longest(w walk, parsed *syntax.Regexp, limit int, beyond bool) string {
	repeated := func(count int) string {
		first := true
		w.times = func(low, high int) int {
			switch {
			case high >= 0:
				return high
			case first:
				first = false
				return low + count
			}
			return low
		}
		return w.match(parsed)
	}
	none, once := utf8.RuneCountInString(repeated(0)), utf8.RuneCountInString(repeated(1))
	if none == once {
		return repeated(0)
	}
	count := (limit - none) / (once - none)
	if beyond {
		count++
	}
	return repeated(count)
}
