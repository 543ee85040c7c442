//go:build linux

package main

import (
	"fmt"
	"time"
)

// step is one step of a command.
type step struct {
	name string
	run  func() error
}

// runSteps runs each step, and prints its result and duration. It stops at the first error.
func (c *cluster) runSteps(steps []step) error {
	for _, step := range steps {
		begin := time.Now()
		if err := step.run(); err != nil {
			c.report("✗", step.name, time.Since(begin))
			return err
		}
		c.report("✓", step.name, time.Since(begin))
	}
	return nil
}

func (c *cluster) report(mark, name string, duration time.Duration) {
	fmt.Fprintf(c.out, "%s %-14s %5.1fs\n", mark, name, duration.Seconds())
}
