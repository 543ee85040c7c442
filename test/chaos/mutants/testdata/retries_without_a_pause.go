// Mutant: retries a rejection without a pause
// Guarantee: 7
// Suite: rejections
// Package: internal/backoff

package backoff

import "time"

func (e *entry[R]) startPause() {
	e.pause = time.Millisecond
	e.next = time.Now().Add(e.pause)
}
