// Mutant: keeps its seat during a slow call
// Guarantee: 7
// Suite: isolation
// Package: internal/fairqueue

package fairqueue

func (q *Queue[T]) giveBack(T, *seat) {}
