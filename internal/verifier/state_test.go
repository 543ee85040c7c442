package verifier

import "testing"

func TestState(t *testing.T) {
	// A letter is a result: o for OK, w for a wrong body, h for a wrong header, t for a timeout. Below it is the state
	// after that round: + verified, - not verified, ? not known.
	for _, c := range []struct{ name, results, states string }{
		{"one good round verifies", "o", "+"},
		{"failed rounds below the threshold decide nothing", "tt", "??"},
		{"failed rounds fail at the threshold", "ttt", "??-"},
		{"a good round ends a failure", "tttto", "??--+"},
		{"failed rounds that are not consecutive do not fail", "ottottotto", "++++++++++"},
		{"one wrong response is a failed round", "owo", "+++"},
		{"two wrong responses fail", "ww", "?-"},
		{"a wrong header and a wrong body fail", "hw", "?-"},
		{"two wrong responses within ten rounds fail", "owoooooooow", "++++++++++-"},
		{"two wrong responses in eleven rounds do not", "owooooooooow", "++++++++++++"},
		{"wrong responses of some connections stay failed", "owowooowoo", "+++-------"},
		{"wrong responses before the first good one do not count after it", "wwwowow", "?--+++-"},
		{"wrong responses expire", "owwooooooooo", "++---------+"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, got := State{Threshold: 3}, ""
			for _, letter := range c.results {
				before := v
				changed := v.Add(map[rune]Result{'o': OK, 'w': WrongBody, 'h': WrongHeader, 't': Timeout}[letter])
				if want := before.Known != v.Known || before.Verified != v.Verified; changed != want {
					t.Errorf("after %q: changed = %t, want %t", got, changed, want)
				}
				switch {
				case !v.Known:
					got += "?"
				case v.Verified:
					got += "+"
				default:
					got += "-"
				}
			}
			if got != c.states {
				t.Errorf("states after %q = %q, want %q", c.results, got, c.states)
			}
		})
	}
}
