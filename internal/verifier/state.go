package verifier

const (
	// window is the number of rounds in which two wrong responses count. A server that should not
	// receive requests responds to some of them only, so its responses need not be consecutive.
	window = 10
	// maxWrong is the number of wrong responses within the window that fails the verification.
	maxWrong = 2
)

// State decides from the results of the rounds whether the response is verified. One failed round
// may be a coincidence: a verified response fails after threshold consecutive failed rounds, or after
// two wrong responses within ten rounds. A failed one is verified again after one good round, once
// fewer than two of the last ten rounds had a wrong response. Those before the first good round do not
// count after it: a Gateway may need minutes until it uses a new route. The zero State is not known.
type State struct {
	// Threshold is the number of consecutive failed rounds that fails the verification.
	Threshold int

	// Known is true if the rounds suffice for a decision, and Verified if the response is verified.
	Known, Verified bool

	succeeded bool
	failed    int
	// wrong has an entry for each of the last rounds.
	wrong []bool
}

// Add adds the result of a round. It reports whether the state changed.
func (s *State) Add(r Result) (changed bool) {
	known, verified := s.Known, s.Verified
	if r == OK && !s.succeeded {
		s.succeeded, s.wrong = true, nil
	}
	s.wrong = append(s.wrong, r.IsWrong())
	if len(s.wrong) > window {
		s.wrong = s.wrong[1:]
	}
	wrong := 0
	for _, w := range s.wrong {
		if w {
			wrong++
		}
	}
	s.failed++
	if r == OK {
		s.failed = 0
	}
	switch {
	case s.failed >= s.Threshold || wrong >= maxWrong:
		s.Known, s.Verified = true, false
	case r == OK:
		s.Known, s.Verified = true, true
	}
	return s.Known != known || s.Verified != verified
}
