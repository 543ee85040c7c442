//go:build linux

package main

import (
	"fmt"
	"time"
)

// step does one piece of work and prints how it ended and how long it took.
func (c *cluster) step(name string, work func() error) error {
	begin := time.Now()
	err := work()
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	c.report(mark, name, time.Since(begin))
	return err
}

func (c *cluster) report(mark, name string, took time.Duration) {
	fmt.Fprintf(c.out, "%s %-14s %5.1fs\n", mark, name, took.Seconds())
}
