// Mutant: retries a rejection without a pause
// Guarantee: 7
// Suite: rejections
// Package: internal/controller

package controller

import "time"

func (i *interval) pause() {
	i.delay = time.Millisecond
	i.next = time.Now().Add(i.delay)
}
