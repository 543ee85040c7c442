package verifier

const (
	// window is the number of rounds in which two wrong answers count. A server that should not
	// receive requests answers only some of them, so its answers need not be consecutive.
	window = 10
	// maxWrong is the number of wrong answers within the window that fails the verification.
	maxWrong = 2
)

// Verdict decides from the results of the rounds whether the answer is verified. One failed round
// may be a coincidence: a verified answer fails after threshold consecutive failed rounds, or after
// two wrong answers within ten rounds. A failed one is verified again after one good round, once
// fewer than two of the last ten rounds had a wrong answer. The zero Verdict has no result yet.
type Verdict struct {
	// Threshold is the number of consecutive failed rounds that fails the verification.
	Threshold int

	known, verified bool
	failed          int
	// wrong has an entry for each of the last rounds.
	wrong []bool
}

// Add adds the result of a round. It reports whether the verdict changed.
func (v *Verdict) Add(r Result) (changed bool) {
	known, verified := v.known, v.verified
	v.wrong = append(v.wrong, r.IsWrong())
	if len(v.wrong) > window {
		v.wrong = v.wrong[1:]
	}
	wrong := 0
	for _, w := range v.wrong {
		if w {
			wrong++
		}
	}
	v.failed++
	if r == OK {
		v.failed = 0
	}
	switch {
	case v.failed >= v.Threshold || wrong >= maxWrong:
		v.known, v.verified = true, false
	case r == OK:
		v.known, v.verified = true, true
	}
	return v.known != known || v.verified != verified
}

// Known reports whether there is a verdict.
func (v *Verdict) Known() bool { return v.known }

// Verified reports whether the answer is verified.
func (v *Verdict) Verified() bool { return v.verified }
