// Mutant: retries a rejection without a pause
// Guarantee: 7
// Suite: rejections
// Package: internal/backoff

package backoff

import "time"

func (p *Pause) start(late time.Duration) {
	p.length = time.Millisecond
	p.next = time.Now().Add(p.length)
	p.forget = p.next.Add(late)
}
